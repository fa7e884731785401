package fairlock_test

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/doctor"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
)

// as logs on as a user whose password is secret.
func as(user string) func(*headwaiter.Options) {
	return func(o *headwaiter.Options) { o.Redis.Username, o.Redis.Password = user, "secret" }
}

// dialError returns why a client cannot be had.
func dialError(t *testing.T, s redistest.Backend, changes ...func(*headwaiter.Options)) error {
	t.Helper()
	o := headwaiter.Options{Redis: s.Option()}
	for _, change := range changes {
		change(&o)
	}
	c, err := headwaiter.Dial(o)
	require.Error(t, err)
	require.Nil(t, c)
	require.NotContains(t, err.Error(), "secret")
	require.Regexp(t, `^headwaiter: `, err.Error())
	return err
}

func TestAServerThatIsNotThereIsNamed(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		s.Kill()
		begun := time.Now()
		err := dialError(t, s)
		require.Less(t, time.Since(begun), 10*time.Second)
		require.ErrorContains(t, err, s.Option().InitAddress[0])
		require.ErrorContains(t, err, "refused")
	})
}

func TestAServerThatDoesNotAnswerIsNamed(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	s.Stop()
	t.Cleanup(s.Cont)
	err := dialError(t, s)
	require.EqualError(t, err, "headwaiter: connect to "+s.Addr()+": no answer in time")
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestAWrongPasswordIsNamed(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	s.Do("ACL", "SETUSER", "lock", "on", ">right", "allkeys", "allchannels", "allcommands")
	require.ErrorContains(t, dialError(t, s, as("lock")), "check user name and password")
	require.ErrorContains(t, dialError(t, s, as("nobody")), "check user name and password")
	s.Do("ACL", "SETUSER", "default", "off")
	require.ErrorContains(t, dialError(t, s), "set a password")
}

func TestAURLThatCannotBeReadDoesNotTellItsPassword(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"redis://user:secret@%zz:1", "redis://user:secret@host:port", "nonsense://user:secret@host", ":secret"} {
		_, err := headwaiter.DialURL(url)
		require.Error(t, err)
		require.NotContains(t, err.Error(), "secret")
	}
}

// lacks are users that lack something, and what the error must name.
var lacks = []struct{ rules, named string }{
	{"-evalsha", "evalsha"},
	{"-eval", "eval"},
	{"-publish", "PUBLISH"},
	{"-subscribe", "SUBSCRIBE"},
	{"-pubsub", "PUBSUB NUMSUB"},
	{"resetchannels", "wake channels"},
	{"resetchannels &other:*", "wake channels"},
	{"resetkeys", "keys"},
	{"resetkeys ~other:*", "keys"},
	{"resetkeys %R~*", "keys"},
	{"-hset", "HSET"},
	{"-hget", "HGET"},
	{"-hmget", "HMGET"},
	{"-hdel", "HDEL"},
	{"-pexpire", "PEXPIRE"},
	{"-del", "DEL"},
	{"-rename", "RENAME"},
	{"-zadd", "ZADD"},
	{"-zrem", "ZREM"},
	{"-zrange", "ZRANGE"},
	{"-zmscore", "ZMSCORE"},
	{"-time", "time"},
	{"-@all", "evalsha"},
}

// line finds the rights that an error asks for.
var line = regexp.MustCompile(`it needs (~\S+ resetchannels &\S+( \+[a-z|]+)+)`)

func TestAUserThatLacksARightIsToldWhichAtTheStart(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for _, lack := range lacks {
		t.Run(lack.rules, func(t *testing.T) {
			rules := append([]string{"reset", "on", ">secret", "allkeys", "allchannels", "allcommands"}, strings.Fields(lack.rules)...)
			s.Do(append([]string{"ACL", "SETUSER", "lock"}, rules...)...)
			s.Do("SCRIPT", "FLUSH")
			err := dialError(t, s, as("lock"))
			require.ErrorIs(t, err, lease.ErrUnusable)
			// The list of all that is needed names everything; what is missing must be named beside it.
			said := line.ReplaceAllString(err.Error(), "")
			require.NotEqual(t, err.Error(), said, "nor does it say what is needed")
			require.Contains(t, strings.ToLower(said), strings.ToLower(lack.named), err.Error())
			require.Zero(t, len(s.List("KEYS", "*{*")))
		})
	}
}

func TestARightThatOnlyAServerWithoutTheScriptsAsksForIsMissedAtTheStart(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	s.Do("ACL", "SETUSER", "lock", "reset", "on", ">secret", "allkeys", "allchannels", "allcommands", "-eval")
	kit.Release(t, hold(t, fairlock.New(kit.Dial(t, s), kit.Name(t)))) // The server knows the scripts.
	err := dialError(t, s, as("lock"))
	require.ErrorIs(t, err, lease.ErrUnusable)
	require.ErrorContains(t, err, "NOPERM")
	require.Contains(t, strings.ToLower(line.ReplaceAllString(err.Error(), "")), "'eval'")
	o := headwaiter.Options{Redis: s.Option()}
	as("lock")(&o)
	r, err := doctor.Examine(t.Context(), o)
	require.ErrorContains(t, err, "NOPERM")
	require.Len(t, r.Missing, 1)
	require.Contains(t, r.Missing[0], "'eval'")
}

func TestTheRightsThatTheErrorNamesAreEnoughForEverything(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	s.Do("ACL", "SETUSER", "lock", "reset", "on", ">secret")
	found := line.FindStringSubmatch(dialError(t, s, as("lock")).Error())
	require.NotNil(t, found)
	page, err := os.ReadFile("../docs/deploy.md")
	require.NoError(t, err)
	require.Contains(t, string(page), "ACL SETUSER headwaiter on >secret "+found[1]+"\n", "the page says another line")
	s.Do(append([]string{"ACL", "SETUSER", "lock", "reset", "on", ">secret"}, strings.Fields(found[1])...)...)
	s.Do("ACL", "LOG", "RESET")
	c, other := kit.Dial(t, s, as("lock"), linger(time.Millisecond)), kit.Dial(t, s, as("lock"))
	m := fairlock.New(c, kit.Name(t), headwaiter.WithLease(2*time.Second))
	next := fairlock.New(other, kit.Name(t))

	l := hold(t, m)
	w := begin(t.Context(), next)
	queued(t, m, 1)
	ctx, cancel := context.WithCancel(t.Context())
	g := begin(ctx, next)
	queued(t, m, 2)
	cancel()
	require.ErrorIs(t, g.Err(t), context.Canceled)
	kit.Eventually(t, "a renewal", func() bool { return c.Stats().Renewals > 0 })
	lock, _, _ := keysOf(kit.Name(t))
	s.Do("HSET", lock, "until", "1") // An expiry, with all that follows it.
	held := w.Value(t)
	require.ErrorIs(t, kit.Lost(t, l), lease.ErrLost)
	require.ErrorIs(t, begin(held.Context(), next).Err(t), lease.ErrDeadlock)
	again := begin(t.Context(), m)
	queued(t, m, 1)
	force(t, next)
	kit.Release(t, again.Value(t))
	require.ErrorIs(t, kit.Lost(t, held), lease.ErrForced)

	for _, entry := range s.Do("ACL", "LOG").([]any) {
		// The connection introduces itself, and nobody minds if it may not.
		require.Contains(t, entry, "client|setinfo")
	}
}
