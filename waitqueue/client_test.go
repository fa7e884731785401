package waitqueue

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/names"
	"github.com/headwaiter/headwaiter/internal/testenv/leaks"
	"github.com/headwaiter/headwaiter/internal/testenv/must"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// dial returns a client of s that is closed with the test.
func dial(t *testing.T, s redistest.Backend) *Client {
	t.Helper()
	c := must.Got(Dial(Options{Redis: s.Option(), Name: "test", Linger: 100 * time.Millisecond}))(t)
	t.Cleanup(func() { _ = c.Shutdown(context.Background()) })
	return c
}

// queueOf is the queue of a lock as a client sees it.
func queueOf(c *Client, name string) Queue {
	return c.Queue(lua.Fairlock, name, Terms{Lease: lease.DefaultLease})
}

// acquire asks in the background. What comes of it is in the channel.
func acquire(ctx context.Context, q Queue) <-chan *lease.Lease {
	got := make(chan *lease.Lease, 1)
	go func() {
		l, _ := q.Acquire(ctx)
		got <- l
	}()
	return got
}

// remains is what a client still has to do.
type remains struct {
	entries, timers, channels, ends, renewals int
	listening                                 bool
}

func (c *Client) remains() remains {
	var r remains
	c.mu.Lock()
	r.entries = len(c.entries)
	c.mu.Unlock()
	r.timers = c.servers.Timers.Len()
	r.channels, r.listening = c.servers.Subscribed()
	r.ends, _ = c.ends.left()
	r.renewals = c.renewals.Due()
	return r
}

func TestAClientSaysWhoItIsForAsLongAsItUsesAName(t *testing.T) {
	t.Run("where it is looked for copies", func(t *testing.T) { saysWhoItIs(t, func(*redistest.Embedded) {}) })
	t.Run("where it is not", func(t *testing.T) {
		saysWhoItIs(t, func(s *redistest.Embedded) { s.Answer("CLIENT", "-ERR unknown command 'CLIENT'") })
	})
}

func saysWhoItIs(t *testing.T, prepare func(*redistest.Embedded)) {
	redistest.InBubble(t, func(t *testing.T, s *redistest.Embedded) {
		prepare(s)
		c := dial(t, s)
		known := func() bool { return s.Int("EXISTS", lua.ClientKey(c.opts.Prefix, c.ID())) == 1 }
		require.True(t, known())
		for range 2 {
			l := must.Got(queueOf(c, "name").Acquire(t.Context()))(t)
			synctime.Pass(time.Second)
			require.True(t, known())
			synctime.Pass(5 * time.Minute)
			require.True(t, known())
			require.NoError(t, l.Release(t.Context()))
			synctime.Pass(2 * time.Minute)
			require.False(t, known())
		}
	})
}

// In a bubble: a moment later is not a matter of luck.
func TestAClientThatHasNothingToDoHasNoTimersAndNoSubscriptions(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, s *redistest.Embedded) {
		a, b := dial(t, s), dial(t, s)
		for _, name := range []string{"one", "two", "three"} {
			l := must.Got(queueOf(a, name).Acquire(t.Context()))(t)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			given := acquire(ctx, queueOf(b, name))
			served := acquire(t.Context(), queueOf(b, name))
			require.Nil(t, <-given)
			cancel()
			synctest.Wait() // The call has come back; its ticket leaves the queue in the background.
			require.NotZero(t, b.remains())
			require.NoError(t, l.Release(t.Context()))
			l = <-served
			require.NotNil(t, l)
			require.NoError(t, l.Release(t.Context()))
			require.NoError(t, must.Err(queueOf(a, name).Try(t.Context())))
			require.ErrorIs(t, must.Err(queueOf(a, name).ForceReleaseHolder(t.Context(), lease.Holder{})), lease.ErrInvalid, "who holds was not seen")
			require.NoError(t, must.Err(queueOf(a, name).ForceRelease(t.Context(), 0)))
		}
		synctime.Pass(10 * time.Second)
		require.Zero(t, a.remains())
		require.Zero(t, b.remains())
		require.Empty(t, s.List("PUBSUB", "CHANNELS"))
		before := b.Stats()
		synctime.Pass(time.Hour)
		require.Equal(t, before, b.Stats())
	})
}

func TestNewTakesTheConnectionsOfItsCallerAndLeavesThemOpen(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		rc := must.Got(rueidis.NewClient(s.Option()))(t)
		defer rc.Close()
		c := must.Got(New(rc, Options{Name: "guest"}))(t)
		other := dial(t, s)
		for range 20 {
			l := must.Got(queueOf(other, "name").Acquire(t.Context()))(t)
			next := acquire(t.Context(), queueOf(c, "name"))
			for info := (lease.Info{}); info.Waiting == 0; {
				info = must.Got(queueOf(other, "name").Inspect(t.Context()))(t)
			}
			require.NoError(t, l.Release(t.Context()))
			l = <-next
			require.NotNil(t, l)
			info := must.Got(queueOf(other, "name").Inspect(t.Context()))(t)
			require.Equal(t, c.ID(), info.Holder.Client)
			require.NoError(t, l.Release(t.Context()))
		}
		require.NoError(t, c.Shutdown(t.Context()))
		require.NoError(t, rc.Do(t.Context(), rc.B().Ping().Build()).Error())
		require.ErrorContains(t, must.Err(New(rc, Options{Prefix: "{"})), "prefix")
	})
}

func TestClientsOfDifferentPrefixesDoNotMeet(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		c := dial(t, s)
		other := must.Got(Dial(Options{Redis: s.Option(), Prefix: "other:app"}))(t)
		defer other.Shutdown(context.Background())
		l, m := must.Got(queueOf(c, "name").Try(t.Context()))(t), must.Got(queueOf(other, "name").Try(t.Context()))(t)
		require.ElementsMatch(t, []string{"headwaiter:lock:{name}", "other:app:lock:{name}"}, s.List("KEYS", "*{*"))
		require.NoError(t, l.Release(t.Context()))
		require.NoError(t, m.Release(t.Context()))
	})
}

func TestAURLReachesItsServer(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	s.Do("ACL", "SETUSER", "lock", "on", ">secret", "allkeys", "allchannels", "allcommands")
	o := must.Got(rueidis.ParseURL("redis://lock:secret@" + s.Addr() + "/3"))(t)
	c := must.Got(Dial(Options{Redis: o}))(t)
	defer c.Shutdown(context.Background())
	require.NoError(t, must.Err(queueOf(c, "name").Acquire(t.Context())))
	require.Contains(t, s.Text("INFO", "keyspace"), "db3:keys=2")
}

// An ask is what it always was, word for word, without an option; and goes without all keys.
func TestAnAskWithoutABoundIsWhatItAlwaysWas(t *testing.T) {
	server := redistest.Mini(t).Option()
	c := must.Got(Dial(Options{Redis: server}))(t)
	kind := byte(wire.Permit)
	ask := func(p *lua.Protocol, terms Terms, extras ...string) (*ask, string) {
		q := c.Queue(p, "name", terms).For(kind, 1).Says(nil, extras...)
		w := must.Got(q.begin(t.Context(), wire.Wait))(t)
		a := w.prepare()
		text := w.Text
		w.unsent()
		w.Clean = true
		w.finish()
		return a, text
	}
	limited := DefaultTerms()
	limited.QueueLimit = 3

	a, text := ask(lua.Fairlock, DefaultTerms())
	plain := []string{text, wire.Look, a.attempt.NotAfter, "", "0", "0", "1", wire.PhaseHeld}
	require.Equal(t, plain, a.args)
	require.Equal(t, 3, a.fast)
	a, text = ask(lua.Fairlock, limited)
	plain[0], plain[1], plain[2] = text, "look 3", a.attempt.NotAfter
	require.Equal(t, plain, a.args)
	require.Equal(t, 3, a.fast)

	a, text = ask(lua.Semaphore, DefaultTerms(), "5")
	plain = []string{text, wire.Look, a.attempt.NotAfter, c.who, "5", c.made, "", "0", "0", "1", wire.PhaseHeld}
	require.Equal(t, plain, a.args)
	require.Equal(t, 6, a.fast)
	a, text = ask(lua.Semaphore, limited, "5")
	plain[0], plain[1], plain[2] = text, "look 3", a.attempt.NotAfter
	require.Equal(t, plain, a.args)
	require.Equal(t, 6, a.fast)

	kind = wire.Read // Readers who hold together share a token, so it is told which ones they have seen.
	a, _ = ask(lua.RWLock, DefaultTerms(), "9")
	require.Equal(t, []string{c.who, "9", "", c.highest()}, a.args[3:a.fast])
	require.NoError(t, c.Shutdown(t.Context()))
	c = must.Got(Dial(Options{Redis: server, WithoutSkip: true}))(t)
	a, _ = ask(lua.RWLock, DefaultTerms(), "9")
	require.Zero(t, a.fast, "it says that subscribers cannot be counted")
	require.NoError(t, c.Shutdown(t.Context()))
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

// rueidis takes an embedded server for a cluster where it is not told otherwise. It has one node, so its subscribers are
// all there are, and dead waiters are skipped.
func TestTheSubscribersOfAClusterOfOneNodeAreCounted(t *testing.T) {
	o := redistest.Mini(t).Option()
	o.ForceSingleClient = false
	c := must.Got(Dial(Options{Redis: o}))(t)
	require.True(t, c.servers.Clustered(), "it is not taken for a cluster: shows nothing")
	require.Equal(t, "1", c.servers.Counted())
	require.NoError(t, c.Shutdown(t.Context()))
}

func TestNames(t *testing.T) {
	for _, name := range []string{"x", "{x}", "a}b", "{}", "ü", "a b", strings.Repeat("x", lease.MaxName), "\u00a0", "🔒",
		"الطلبات", "किताब", "ใบสั่งซื้อ", "заказы", "注文", "주문", "הזמנות", "e\u0301",
		"\u0645\u06cc\u200c\u0631\u0648\u0645", "\u0915\u094d\u200d\u0937", "\u0dc1\u0dca\u200d\u0dbb\u0dd3",
	} {
		require.NoError(t, names.CheckTag(name), "%q", name)
	}
	for name, want := range map[string]error{
		"": lease.ErrInvalid, "}": lease.ErrInvalid, "}{": lease.ErrInvalid, "a\nb": lease.ErrInvalid, "a\tb": lease.ErrInvalid, "\x00": lease.ErrInvalid, "\x7f": lease.ErrInvalid,
		"a\u202eb": lease.ErrInvalid, "a\u2066b": lease.ErrInvalid, "or\u200bders": lease.ErrInvalid, "\ufefforders": lease.ErrInvalid, "or\u00adders": lease.ErrInvalid,
		"a\u2028b": lease.ErrInvalid, "a\u2029b": lease.ErrInvalid, "\ue000": lease.ErrInvalid, "\U000e0041": lease.ErrInvalid, "\u2060": lease.ErrInvalid,
		"or\u200dders": lease.ErrInvalid, "\u0645\u06cc\u200c": lease.ErrInvalid, "\u0645\u200c\u200c\u0645": lease.ErrInvalid, "\u200c\u0645": lease.ErrInvalid,
		"\U0001f469\u200d\U0001f4bb": lease.ErrInvalid,
		"\xff":                       lease.ErrInvalid, "\xed\xa0\x80": lease.ErrInvalid, "\u0085": lease.ErrInvalid,
		strings.Repeat("x", lease.MaxName+1): lease.ErrTooLarge, strings.Repeat("}", lease.MaxName+1): lease.ErrTooLarge,
	} {
		require.ErrorIs(t, names.CheckTag(name), want, "%q", name)
		require.Less(t, len(names.CheckTag(name).Error()), 200)
		require.Equal(t, want == lease.ErrInvalid && !strings.HasPrefix(name, "}") && name != "", !names.Printable(name), "%q", name)
	}
}

func FuzzNames(f *testing.F) {
	for _, seed := range []string{"x", "}x", "{}", "a{b}c", "a\nb", "\xff", ":", "ü"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if names.CheckTag(name) != nil {
			return
		}
		// A name that is allowed has keys that share a slot, and is the one whose keys these are.
		k := lua.Fairlock.Keys("headwaiter", name)
		for _, key := range append(k.All(), k.Channel("client")) {
			_, rest, _ := strings.Cut(key, "{")
			tag, _, closed := strings.Cut(rest, "}")
			require.True(t, closed && tag != "")
			require.True(t, strings.HasPrefix(name, tag))
			require.True(t, strings.HasPrefix(key, "headwaiter:lock:{"+name+"}"))
		}
		label := Queue{&binding{name: name}}.Label()
		require.LessOrEqual(t, len(label), 64+len("…"))
		require.True(t, strings.HasPrefix(name, strings.TrimSuffix(label, "…")))
	})
}

func TestOptions(t *testing.T) {
	o := must.Got(defaults(Options{}))(t)
	require.Equal(t, "headwaiter", o.Prefix)
	require.Equal(t, 2*time.Second, o.GrantLease)
	require.Equal(t, 5*time.Second, o.Linger)
	for want, o := range map[string]Options{
		`prefix "a{b"`:                 {Prefix: "a{b"},
		`prefix "a}b"`:                 {Prefix: "a}b"},
		`prefix "a\nb"`:                {Prefix: "a\nb"},
		`prefix "\xff"`:                {Prefix: "\xff"},
		"at most 128 bytes":            {Prefix: strings.Repeat("x", 129)},
		"grant lease -1ns":             {GrantLease: -1},
		"grant lease 999.999µs":        {GrantLease: lease.MinLease - 1},
		"linger must not be negative":  {Linger: -1},
		"grant lease 2562047h47m16.85": {GrantLease: math.MaxInt64},
	} {
		_, err := defaults(o)
		must.Fails(t, err, want, "headwaiter: ")
		require.Less(t, len(err.Error()), 200)
		require.ErrorContains(t, must.Err(Dial(o)), want)
	}
}

// A service that starts while the server is away can tell that from what it has to mend.
func TestADialThatFailsSaysWhetherTheServerIsAway(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	dial := func(change func(*rueidis.ClientOption)) error {
		o := s.Option()
		change(&o)
		return must.Err(Dial(Options{Redis: o}))
	}
	gone := dial(func(o *rueidis.ClientOption) { o.InitAddress = []string{"127.0.0.1:1"} })
	require.ErrorIs(t, gone, lease.ErrUnavailable)
	require.ErrorContains(t, gone, "connection refused")
	mend := dial(func(o *rueidis.ClientOption) { o.Username, o.Password = "nobody", "guess" })
	require.Error(t, mend)
	require.NotErrorIs(t, mend, lease.ErrUnavailable)
}
