package calls

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/must"
	"github.com/headwaiter/headwaiter/lease"
)

func TestTheErrorOfAContextHasItsCause(t *testing.T) {
	require.NoError(t, WhyEnded(t.Context()))
	cause := errors.New("lunch")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	must.Fails(t, WhyEnded(ctx), context.Canceled, cause)

	plain, stop := context.WithCancel(t.Context())
	stop()
	require.Equal(t, context.Canceled, WhyEnded(plain), "it is not named twice")
	cause = fmt.Errorf("late: %w", context.DeadlineExceeded)
	late, end := context.WithTimeoutCause(t.Context(), -1, cause)
	defer end()
	require.Equal(t, cause, WhyEnded(late), "a cause that says the same is told alone")
}

func TestACallWithoutABoundKeepsItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		ctx, free, err := InTime(t.Context(), time.Second)
		require.NoError(t, err)
		defer free()
		<-ctx.Done()
		require.Equal(t, time.Second, time.Since(begun))
		must.Fails(t, WhyEnded(ctx), lease.ErrWaitTimeout, context.DeadlineExceeded)
	})
	ctx := t.Context()
	require.Zero(t, testing.AllocsPerRun(100, func() {
		same, free, err := InTime(ctx, 0)
		free()
		if same != ctx || err != nil {
			t.Error("it is another")
		}
	}))
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
		require.ErrorIs(t, Rest(must.Within(t, time.Second), time.Minute), context.DeadlineExceeded)
		require.Equal(t, time.Minute+time.Second, time.Since(begun))
	})
}
