package conn

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

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
	c, err := rueidis.NewClient(commandOption(s.Option(), newSockets()))
	require.NoError(t, err)
	defer c.Close()
	for _, text := range []string{
		"LOADING Redis is loading the dataset in memory",
		"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
		"UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
		"ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0 writes are not propagated",
		"TRYAGAIN Multiple keys request during rehashing of slot",
		"CLUSTERDOWN The cluster is down",
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
		"ERR max number of clients reached",
	} {
		err := redisError(t, c, text)
		require.True(t, Transient(err), text)
		require.True(t, Answered(err))
		require.Equal(t, err, Advise(err))
	}
	for text, hint := range map[string]string{
		"NOPERM this user has no permissions to run the 'evalsha' command":                                "docs/deploy.md",
		"ERR The user executing the script can't run this command or subcommand":                          "docs/deploy.md",
		"ERR ACL failure in script: User u has no permissions to run the 'info' command":                  "docs/deploy.md",
		"NOAUTH Authentication required.":                                                                 "AlwaysRESP2",
		"WRONGTYPE Operation against a key holding the wrong kind of value":                               "another name or prefix",
		"OOM command not allowed when used memory > 'maxmemory'.":                                         "maxmemory",
		"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist on disk": "cannot save",
		"NOREPLICAS Not enough good replicas to write.":                                                   "min-replicas-to-write",
		"ERR unknown command 'WAITAOF', with args beginning with: '1' '0' '500'":                          "7.2",
		"ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.":                     "appendonly yes",
		"ERR unknown command 'ZMSCORE'":                                                                   "6.2",
	} {
		err := redisError(t, c, text)
		require.False(t, Transient(err), text)
		require.ErrorIs(t, Advise(err), err)
		require.ErrorContains(t, Advise(err), hint)
		require.ErrorContains(t, Advise(err), err.Error())
	}
	for _, text := range []string{
		"READONLY You can't write against a read only replica.",
		"ERR Error running script (call to f_c25f1a): @user_script:129: @user_script: 129: -READONLY You can't write against a read only replica.",
	} {
		demoted := redisError(t, c, text)
		require.True(t, Transient(demoted), text)
		require.True(t, isReadOnly(demoted), text)
		require.ErrorContains(t, Advise(demoted), "connect to the master")
	}
	for _, text := range []string{
		"ERR user_script:45: headwaiter: the name is in use script: 9c8e01, on @user_script:45.",
		"ERR Error running script (call to f_c25f1a): @user_script:129: user_script:129: headwaiter: the name is in use ",
	} {
		own := redisError(t, c, text)
		require.False(t, Transient(own), text)
		require.ErrorIs(t, Advise(own), own)
		require.Equal(t, "headwaiter: the name is in use", strings.TrimSpace(Advise(own).Error()))
	}
	odd := redisError(t, c, "ERR nobody has heard of this")
	require.False(t, Transient(odd))
	require.Equal(t, odd, Advise(odd))
	// The code decides, not a word in the text.
	require.False(t, Transient(redisError(t, c, "ERR the dataset is LOADING")))
}

func TestErrorsOfTheConnectionAreWaitedOut(t *testing.T) {
	for _, err := range []error{io.EOF, io.ErrUnexpectedEOF, context.DeadlineExceeded, errors.New("connection refused")} {
		require.True(t, Transient(err))
		require.False(t, Answered(err))
		require.Equal(t, err, Advise(err))
	}
	require.False(t, Transient(rueidis.ErrClosing))
	require.Equal(t, lease.ErrClosed, Advise(rueidis.ErrClosing))
}
