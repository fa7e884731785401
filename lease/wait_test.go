package lease

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/must"
)

func TestDurationsAreToldWithThreeDigits(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 1: "1ns", 999: "999ns", 1234: "1.23µs", 123_456: "123µs", 1_234_567: "1.23ms",
		999_999_999: "1s", 5_000_300_000: "5s", 5_123_456_789: "5.12s", 65_432_100_000: "1m5.4s",
		3 * time.Hour / 2: "1h30m0s", 100*time.Hour + 1234*time.Millisecond: "100h0m0s", -time.Second: "-1s",
	} {
		require.Equal(t, want, readable(d).String(), "%d", d)
	}
}

func TestTheTextOfAWaitError(t *testing.T) {
	for want, e := range map[string]*WaitError{
		`waited 5s behind 2: context deadline exceeded`: {Place: 2, Waited: 5*time.Second + 1234*time.Microsecond, Err: context.DeadlineExceeded},
		`waited 5s: context canceled`:                   {Place: -1, Waited: 5 * time.Second, Err: context.Canceled},
		`waited 1s: EOF`:                                {Place: -1, Waited: time.Second, Last: io.EOF, Err: fmt.Errorf("%w", io.EOF)},
		`waited 12.3ms: client closed`:                  {Place: 0, Waited: 12_345 * time.Microsecond, Err: ErrClosed},
		`waited 1h0m0s behind 1 (last error: EOF): context canceled`: {
			Place: 1, Waited: time.Hour + 23*time.Millisecond, Last: io.EOF, Err: context.Canceled},
		`waited 2s behind 1, the server does not answer (last error: EOF): the maximum wait is over`: {
			Place: 1, Waited: 2 * time.Second, Last: io.EOF, Err: ErrWaitTimeout, Unanswered: true},
	} {
		require.EqualError(t, e, want)
		wrapped := fmt.Errorf("fairlock: lock %q: %w", "orders:42", e)
		require.EqualError(t, wrapped, `fairlock: lock "orders:42": `+want)
		require.ErrorIs(t, wrapped, e.Err)
		require.Equal(t, e.Unanswered, errors.Is(wrapped, ErrUnavailable))
		require.Same(t, e, must.As[*WaitError](t, wrapped))
		require.Equal(t, e.Err.Error() == "EOF", errors.Is(wrapped, io.EOF), "the last error is told, but not why the wait ended")
	}
}

// A progress that has looked at the clock before its end, and would set it back after a lease has seen the end, comes too
// late: else one lease of a hold would have ended and another go on.
func TestNoProgressSetsBackAClockThatWasSeenToEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStall(time.Minute)
		seen := s.last.Load()
		time.Sleep(time.Minute) // Until the end.
		require.ErrorIs(t, s.err(), ErrStalled)
		require.False(t, s.last.CompareAndSwap(seen, int64(time.Minute)))
		require.ErrorIs(t, s.err(), ErrStalled)
	})
}
