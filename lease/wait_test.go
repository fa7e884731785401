package lease

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/must"
)

func TestTheTextOfAWaitError(t *testing.T) {
	for want, e := range map[string]*WaitError{
		`waited 5s, 2 ahead: context deadline exceeded`: {Place: 2, Waited: 5*time.Second + 1234*time.Microsecond, Err: context.DeadlineExceeded},
		`waited 5s: context canceled`:                   {Place: -1, Waited: 5 * time.Second, Err: context.Canceled},
		`waited 1s: EOF`:                                {Place: -1, Waited: time.Second, Last: io.EOF, Err: fmt.Errorf("%w", io.EOF)},
		`waited 12.3ms: client closed`:                  {Place: 0, Waited: 12_345 * time.Microsecond, Err: ErrClosed},
		`waited 1h0m0s, 1 ahead (last error: EOF): context canceled`: {
			Place: 1, Waited: time.Hour + 23*time.Millisecond, Last: io.EOF, Err: context.Canceled},
		`timed out after 2s (WithMaxWait), 1 ahead, the server does not answer (last error: EOF)`: {
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
