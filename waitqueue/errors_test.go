package waitqueue

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/retry"
	"github.com/headwaiter/headwaiter/lease"
)

func TestPausesGrowToALimitAndAreLeftToChance(t *testing.T) {
	for n := range 40 {
		longest := min(retry.FirstBackoff<<min(n, 20), retry.LongestBackoff)
		seen := map[time.Duration]bool{}
		for range 100 {
			d := retry.Backoff(n)
			require.GreaterOrEqual(t, d, longest/2)
			require.LessOrEqual(t, d, longest)
			seen[d] = true
		}
		require.Greater(t, len(seen), 50)
	}
	require.Equal(t, time.Second, retry.Jitter(time.Second, time.Second))
	require.Equal(t, time.Second, retry.Jitter(time.Second, 0))
}

func TestSentinelsAreToldApart(t *testing.T) {
	all := []error{lease.ErrBusy, lease.ErrClosed, lease.ErrDeadlock, lease.ErrTooLarge, lease.ErrInvalid, lease.ErrMismatch, lease.ErrOutcomeUnknown, lease.ErrUnwoken, lease.ErrUnusable, lease.ErrNotHeld}
	texts := map[string]bool{}
	for i, a := range all {
		texts[a.Error()] = true
		for j, b := range all {
			require.Equal(t, i == j, errors.Is(a, b))
		}
		require.Equal(t, strings.TrimSpace(a.Error()), a.Error())
	}
	require.Len(t, texts, len(all))
}
