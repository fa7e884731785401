package retry

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTheErrorOfAContextHasItsCause(t *testing.T) {
	require.NoError(t, WhyEnded(t.Context()))
	cause := errors.New("lunch")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	err := WhyEnded(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, cause)

	plain, stop := context.WithCancel(t.Context())
	stop()
	require.Equal(t, context.Canceled, WhyEnded(plain), "it is not named twice")
	late, end := context.WithTimeoutCause(t.Context(), -1, fmt.Errorf("late: %w", context.DeadlineExceeded))
	defer end()
	require.Equal(t, context.DeadlineExceeded, WhyEnded(late), "a cause that says the same is not told twice")
}

func TestPausesGrowToASecondAndAreNotTheSameForAll(t *testing.T) {
	seen := map[time.Duration]bool{}
	for tries := range 100 {
		d := Backoff(tries)
		whole := min(FirstBackoff<<min(tries, 10), time.Second)
		require.GreaterOrEqual(t, d, whole/2)
		require.Less(t, d, whole)
		seen[d] = true
	}
	require.Greater(t, len(seen), 50)
}

func TestARestEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		require.NoError(t, Rest(t.Context(), time.Minute))
		require.Equal(t, time.Minute, time.Since(begun))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, Rest(ctx, time.Minute), context.DeadlineExceeded)
		require.Equal(t, time.Minute+time.Second, time.Since(begun))
	})
}
