// Package must says in one line what a test wants of a call. It needs no other package of the module: package kit has the
// same for all tests but those of what kit itself is made of.
package must

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Got is what a call returned that must not fail: must.Got(m.Lock(ctx))(t).
func Got[T any](value T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		require.NoError(t, err)
		return value
	}
}

// Err is the error of a call that returns something else too, which the test does not need.
func Err[T any](_ T, err error) error { return err }

// Fails asserts what an error is, where an error is given, and what it says, where a text is.
func Fails(t testing.TB, err error, wanted ...any) {
	t.Helper()
	for _, w := range wanted {
		if is, ok := w.(error); ok {
			require.ErrorIs(t, err, is)
		} else {
			require.ErrorContains(t, err, w.(string))
		}
	}
}

// As is the error of its type that an error must be.
func As[E error](t testing.TB, err error) (as E) {
	t.Helper()
	require.ErrorAs(t, err, &as)
	return as
}

// Within is a context that ends after some time, or with the test.
func Within(t testing.TB, limit time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}
