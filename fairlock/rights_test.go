package fairlock_test

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/doctor"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/waitqueue"
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
		kit.Fails(t, err, s.Option().InitAddress[0], "refused")
	})
}

func TestAServerThatDoesNotAnswerIsNamed(t *testing.T) {
	s := kit.Start(t)
	s.Stop()
	t.Cleanup(s.Cont)
	err := dialError(t, s)
	require.EqualError(t, err, "headwaiter: connect to "+s.Addr()+": no answer in time")
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestAWrongPasswordIsNamed(t *testing.T) {
	s := kit.Start(t)
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
	s := kit.Start(t)
	for _, lack := range lacks {
		t.Run(lack.rules, func(t *testing.T) {
			rules := append([]string{"reset", "on", ">secret", "allkeys", "allchannels", "allcommands"}, strings.Fields(lack.rules)...)
			s.Do(append([]string{"ACL", "SETUSER", "lock"}, rules...)...)
			s.Do("SCRIPT", "FLUSH")
			err := dialError(t, s, as("lock"))
			require.ErrorIs(t, err, lease.ErrUnusable)
			// The list of all that is needed names everything; the missing right must also be named outside it.
			said := line.ReplaceAllString(err.Error(), "")
			require.NotEqual(t, err.Error(), said, "nor does it say what is needed")
			require.Contains(t, strings.ToLower(said), strings.ToLower(lack.named), err.Error())
			require.Zero(t, len(s.List("KEYS", "*{*")))
		})
	}
}

func TestARightThatOnlyAServerWithoutTheScriptsAsksForIsMissedAtTheStart(t *testing.T) {
	s := kit.Start(t)
	s.Do("ACL", "SETUSER", "lock", "reset", "on", ">secret", "allkeys", "allchannels", "allcommands", "-eval")
	kit.Release(t, hold(t, fairlock.New(kit.Dial(t, s), kit.Name(t)))) // The server knows the scripts.
	err := dialError(t, s, as("lock"))
	kit.Fails(t, err, lease.ErrUnusable, "NOPERM")
	require.Contains(t, strings.ToLower(line.ReplaceAllString(err.Error(), "")), "'eval'")
	o := headwaiter.Options{Redis: s.Option()}
	as("lock")(&o)
	r, err := doctor.Examine(t.Context(), o)
	require.ErrorContains(t, err, "NOPERM")
	require.Len(t, r.Missing, 1)
	require.Contains(t, r.Missing[0], "'eval'")
}

// That they are enough for all is in package family.
func TestTheErrorNamesTheRightsOfThePage(t *testing.T) {
	s := kit.Start(t)
	s.Do("ACL", "SETUSER", "lock", "reset", "on", ">secret")
	found := line.FindStringSubmatch(dialError(t, s, as("lock")).Error())
	require.NotNil(t, found)
	page := kit.Got(os.ReadFile("../docs/deploy.md"))(t)
	require.Contains(t, string(page), "ACL SETUSER headwaiter on >secret "+found[1]+"\n", "the page says another line")
}

// ward is a server on which a user may do everything until rights are taken from it.
type ward struct {
	*redistest.Server
	free *fairlock.Mutex // of a client that keeps all rights
}

func newWard(t *testing.T) ward {
	s := redistest.Start(t)
	w := ward{Server: s, free: dialMutex(t, s)}
	w.may("allkeys", "allchannels", "allcommands")
	return w
}

// may changes what the user may do.
func (w ward) may(rules ...string) {
	w.Do(append([]string{"ACL", "SETUSER", "lock", "on", ">secret"}, rules...)...)
}

// member is the lock of the test as a client of the user sees it.
func (w ward) member(t *testing.T, opts ...fairlock.Option) *fairlock.Mutex {
	return fairlock.New(kit.Dial(t, w, as("lock")), kit.Name(t), opts...)
}

func TestAReleaseThatMayNotPublishSaysSoAndTheNextGetsInByItself(t *testing.T) {
	t.Parallel()
	s := newWard(t)
	a, b := s.member(t), s.member(t)
	l, c := hold(t, a), joins(t, 1, b, a)
	s.may("-publish")
	kit.Fails(t, l.Release(t.Context()), lease.ErrUnwoken, "+publish")
	info := inspect(t, s.free)
	require.True(t, !info.Held && info.Waiting == 1 || info.Held && info.Waiting == 0, "half done: %+v", info)
	next := c.Value(t)
	require.Greater(t, next.Token(), l.Token())
	kit.Expiring(t, s)
	kit.Release(t, next)
	require.ErrorIs(t, l.Release(t.Context()), lease.ErrReleased)
}

// An end that has to come again with all keys has changed nothing: others may run scripts before it does.
func TestAnEndThatMayNotPublishLeavesTheHoldAsItWas(t *testing.T) {
	t.Parallel()
	s := newWard(t)
	lock, queue, _ := keysOf(kit.Name(t))
	l := hold(t, s.free)
	c := begin(t.Context(), s.member(t))
	queued(t, s.free, 1)
	user, end := wired(t, s)
	defer end()
	ticket := s.Text("HGET", lock, "owner")
	release := func(floor string) int64 {
		n, err := user.Do(t.Context(), user.B().Eval().Script(lua.Fairlock.End.Source).Numkeys(2).Key(lock, queue).Arg(ticket, floor).Build()).AsInt64()
		require.NoError(t, err)
		return n
	}
	s.may("-publish")
	s.Do("HSET", lock, "since", s.Text("HGET", lock, "token")+":1") // As of a token that was ahead of the clock.
	before := kit.Contents(t, s)
	for _, floor := range []string{"0", "5000000"} {
		require.Equal(t, int64(wire.MoreKeys), release(floor))
		require.Equal(t, before, kit.Contents(t, s))
	}
	s.may("+publish")
	kit.PassOn(t, l, c)
}

// wired is a connection of the user.
func wired(t *testing.T, s ward) (rueidis.Client, func()) {
	w := kit.Got(waitqueue.WiringOf((*waitqueue.Client)(kit.Dial(t, s, as("lock")))))(t)
	rc, end, err := w.Dial(t.Context(), s.Addr())
	require.NoError(t, err)
	return rc, end
}

// Where the message of a grant is refused, the ticket is put back: into a queue that was empty for a moment, and whose
// key has to expire as it did before.
func TestATicketThatIsPutBackDoesNotStayForEver(t *testing.T) {
	t.Parallel()
	s := newWard(t)
	wire := faults.NewProxy(t, s.Addr())
	a := s.member(t)
	b := fairlock.New(kit.Dial(t, s, as("lock"), kit.Through(wire)), kit.Name(t))
	l, c := hold(t, a), joins(t, 1, b, a)
	s.may("-publish")
	wire.Freeze(faults.ToServer) // So that it does not get in by itself.
	require.ErrorIs(t, l.Release(t.Context()), lease.ErrUnwoken)
	require.Equal(t, 1, inspect(t, s.free).Waiting)
	kit.Expiring(t, s)
	wire.Heal()
	kit.Release(t, c.Value(t))
}

func TestAWaiterWhoseChannelsAreTakenGetsInByItsOwnChecks(t *testing.T) {
	t.Parallel()
	for _, rules := range [][]string{{"resetchannels"}, {"-subscribe", "-unsubscribe"}, {"-pubsub"}} {
		kit.Parallel(t, rules[0], func(t *testing.T) {
			s := newWard(t)
			m := s.member(t)
			l := hold(t, s.free)
			c := begin(t.Context(), m)
			queued(t, s.free, 1)
			s.may(rules...)
			s.Do("CLIENT", "KILL", "TYPE", "pubsub")
			begun := time.Now()
			next := kit.Next(t, l, c)
			require.Less(t, time.Since(begun), 5*time.Second)
			require.Greater(t, next.Token(), l.Token())
			kit.Release(t, next)
			queued(t, s.free, 0)
		})
	}
}

func TestAUserThatMayDoNothingAnyMoreIsToldAndLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, rule := range []string{"-evalsha", "-@all", "resetkeys"} {
		kit.Parallel(t, rule, func(t *testing.T) {
			s := newWard(t)
			holder, waiter := s.member(t, headwaiter.WithLease(2*time.Second)), s.member(t)
			l := hold(t, holder)
			c := begin(t.Context(), waiter)
			queued(t, s.free, 1)
			s.may(rule)
			before := kit.Contents(t, s)
			denied(t, kit.Err(waiter.TryLock(t.Context())))
			denied(t, begin(t.Context(), holder).Err(t))
			denied(t, kit.Err(waiter.Inspect(t.Context())))
			denied(t, kit.Err(waiter.ForceRelease(t.Context(), 0)))
			require.Equal(t, before, kit.Contents(t, s))

			denied(t, c.Err(t))
			require.ErrorIs(t, kit.Lost(t, l), lease.ErrExpired)
			require.ErrorIs(t, l.Release(t.Context()), lease.ErrExpired)
			next := begin(t.Context(), s.free).Value(t) // The queue has a ticket of the one that may not leave.
			require.Greater(t, next.Token(), l.Token())

			s.may("allkeys", "allchannels", "allcommands")
			again := begin(t.Context(), waiter)
			kit.Eventually(t, "the user to wait again", func() bool { return inspect(t, s.free).Waiting > 0 })
			kit.PassOn(t, next, again)
			kit.Expiring(t, s)
		})
	}
}

// A release that is refused frees nothing, and says so.
func TestAReleaseThatIsRefusedIsNotConfirmed(t *testing.T) {
	t.Parallel()
	s := newWard(t)
	m := s.member(t)
	l := hold(t, m)
	s.may("-evalsha", "-eval")
	before := kit.Contents(t, s)
	err := l.Release(t.Context())
	require.ErrorIs(t, err, lease.ErrUnconfirmed)
	denied(t, err)
	require.Equal(t, before, kit.Contents(t, s))
	require.ErrorIs(t, l.Release(t.Context()), lease.ErrReleased, "a second release is not another try")
}

// denied asserts that an error says that a right is missing, and where to look it up.
func denied(t *testing.T, err error) {
	t.Helper()
	kit.Fails(t, err, "NOPERM", "the user lacks a right: see docs/deploy.md")
}
