package reentrant_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/reentrant"
)

func TestEachEntryOfAHoldIsToldWhenSomebodyWaits(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		m, other := reentrant.New(kit.Dial(t, s), kit.Name(t)), reentrant.New(kit.Dial(t, s), kit.Name(t))
		outer, err := m.Lock(t.Context())
		require.NoError(t, err)
		inner, err := m.Lock(outer.Context())
		require.NoError(t, err)
		inner.Wanted()
		next := kit.Lock(t.Context(), other.Lock)
		kit.Await(t, inner.Wanted(), "the word to the inner one")
		kit.Await(t, outer.Wanted(), "the word to the outer one, which asks later")
		last, err := m.Lock(outer.Context())
		require.NoError(t, err)
		kit.Await(t, last.Wanted(), "the word to one that enters later")
		last.Unlock()
		inner.Unlock()
		kit.Release(t, outer)
		kit.Release(t, next.Value(t))
	})
}
