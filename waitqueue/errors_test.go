package waitqueue

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/redistest"
)

func TestTheTextOfAWaitError(t *testing.T) {
	for want, e := range map[string]*WaitError{
		`waited 5s behind 2: context deadline exceeded`: {Place: 2, Waited: 5*time.Second + 1234*time.Microsecond, Err: context.DeadlineExceeded},
		`waited 5s: context canceled`:                   {Place: -1, Waited: 5 * time.Second, Err: context.Canceled},
		`waited 12.3ms: client closed`:                  {Place: 0, Waited: 12_345 * time.Microsecond, Err: ErrClosed},
		`waited 1h0m0s behind 1 (last error: EOF): context canceled`: {
			Place: 1, Waited: time.Hour + 23*time.Millisecond, Last: io.EOF, Err: context.Canceled},
	} {
		require.EqualError(t, e, want)
		wrapped := fmt.Errorf("fairlock: lock %q: %w", "orders:42", e)
		require.EqualError(t, wrapped, `fairlock: lock "orders:42": `+want)
		require.ErrorIs(t, wrapped, e.Err)
		var found *WaitError
		require.ErrorAs(t, wrapped, &found)
		require.Same(t, e, found)
		require.NotErrorIs(t, wrapped, io.EOF, "the last error is told, but not why the wait ended")
	}
}

func TestDurationsAreToldWithThreeDigits(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 1: "1ns", 999: "999ns", 1234: "1.23µs", 123_456: "123µs", 1_234_567: "1.23ms",
		999_999_999: "1s", 5_000_300_000: "5s", 5_123_456_789: "5.12s", 65_432_100_000: "1m5.4s",
		3 * time.Hour / 2: "1h30m0s", 100*time.Hour + 1234*time.Millisecond: "100h0m0s", -time.Second: "-1s",
	} {
		require.Equal(t, want, readable(d).String(), "%d", d)
	}
}

func TestWhyAContextEnded(t *testing.T) {
	require.NoError(t, whyEnded(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, context.Canceled, whyEnded(ctx))

	cause := errors.New("cause")
	ctx, withdraw := context.WithCancelCause(t.Context())
	withdraw(cause)
	require.ErrorIs(t, whyEnded(ctx), cause)
	require.ErrorIs(t, whyEnded(ctx), context.Canceled)
	require.EqualError(t, whyEnded(ctx), "context canceled: cause")

	ctx, stop := context.WithTimeoutCause(t.Context(), -1, fmt.Errorf("late: %w", context.DeadlineExceeded))
	defer stop()
	require.Equal(t, context.DeadlineExceeded, whyEnded(ctx), "a cause that says the same is not told twice")
}

// redisError is an error as rueidis brings it from a server, without the code that says nothing.
func redisError(t *testing.T, c rueidis.Client, text string) error {
	t.Helper()
	err := c.Do(t.Context(), c.B().Arbitrary("EVAL", "return redis.error_reply(ARGV[1])", "0", text).Build()).Error()
	require.EqualError(t, err, strings.TrimPrefix(text, "ERR "))
	return err
}

func TestErrorsOfRedisAreWaitedOutOrSayWhatToChange(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c, err := rueidis.NewClient(commandOption(s.Option(), &sockets{}))
	require.NoError(t, err)
	defer c.Close()
	for _, text := range []string{
		"LOADING Redis is loading the dataset in memory",
		"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
		"TRYAGAIN Multiple keys request during rehashing of slot",
		"CLUSTERDOWN The cluster is down",
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
		"ERR max number of clients reached",
	} {
		err := redisError(t, c, text)
		require.True(t, transient(err), text)
		require.True(t, answered(err))
		require.Equal(t, err, advise(err))
	}
	for text, hint := range map[string]string{
		"NOPERM this user has no permissions to run the 'evalsha' command":                                "docs/deploy.md",
		"ERR The user executing the script can't run this command or subcommand":                          "docs/deploy.md",
		"WRONGTYPE Operation against a key holding the wrong kind of value":                               "another name or prefix",
		"OOM command not allowed when used memory > 'maxmemory'.":                                         "maxmemory",
		"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist on disk": "cannot save",
		"NOREPLICAS Not enough good replicas to write.":                                                   "min-replicas-to-write",
		"ERR unknown command 'ZMSCORE'":                                                                   "6.2",
	} {
		err := redisError(t, c, text)
		require.False(t, transient(err), text)
		require.ErrorIs(t, advise(err), err)
		require.ErrorContains(t, advise(err), hint)
		require.ErrorContains(t, advise(err), err.Error())
	}
	demoted := redisError(t, c, readOnly)
	require.True(t, transient(demoted))
	require.ErrorContains(t, advise(demoted), "connect to the master")
	odd := redisError(t, c, "ERR nobody has heard of this")
	require.False(t, transient(odd))
	require.Equal(t, odd, advise(odd))
	// The code decides, not a word in the text.
	require.False(t, transient(redisError(t, c, "ERR the dataset is LOADING")))
}

func TestErrorsOfTheConnectionAreWaitedOut(t *testing.T) {
	for _, err := range []error{io.EOF, io.ErrUnexpectedEOF, context.DeadlineExceeded, errors.New("connection refused")} {
		require.True(t, transient(err))
		require.False(t, answered(err))
		require.Equal(t, err, advise(err))
	}
	require.False(t, transient(rueidis.ErrClosing))
	require.Equal(t, ErrClosed, advise(rueidis.ErrClosing))
}

func TestPausesGrowToALimitAndAreLeftToChance(t *testing.T) {
	for n := range 40 {
		longest := min(firstPause<<min(n, 20), longPause)
		seen := map[time.Duration]bool{}
		for range 100 {
			d := pause(n)
			require.GreaterOrEqual(t, d, longest/2)
			require.LessOrEqual(t, d, longest)
			seen[d] = true
		}
		require.Greater(t, len(seen), 50)
	}
	require.Equal(t, time.Second, jitter(time.Second, time.Second))
	require.Equal(t, time.Second, jitter(time.Second, 0))
}

func TestSentinelsAreToldApart(t *testing.T) {
	all := []error{ErrBusy, ErrClosed, ErrDeadlock, ErrTooLarge, ErrName, ErrTime, ErrUnwoken, ErrUnusable, ErrNotHeld}
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
