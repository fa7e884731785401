package keeper

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/reason"
)

// A progress that has looked at the clock before its end, and would set it back after a lease has seen the end, comes too
// late: else one lease of a hold would have ended and another go on.
func TestNoProgressSetsBackAClockThatWasSeenToEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStall(time.Minute)
		seen := s.last.Load()
		time.Sleep(time.Minute) // Until the end.
		require.ErrorIs(t, s.err(), reason.ErrStalled)
		require.False(t, s.last.CompareAndSwap(seen, int64(time.Minute)))
		require.ErrorIs(t, s.err(), reason.ErrStalled)
	})
}
