package waitqueue

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/retry"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
)

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
	require.Equal(t, lease.ErrClosed, advise(rueidis.ErrClosing))
}

func TestPausesGrowToALimitAndAreLeftToChance(t *testing.T) {
	for n := range 40 {
		longest := min(retry.FirstPause<<min(n, 20), retry.LongPause)
		seen := map[time.Duration]bool{}
		for range 100 {
			d := retry.Pause(n)
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
