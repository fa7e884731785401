package chaos

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/evidence"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/verify/check"
	"github.com/headwaiter/headwaiter/lease"
)

func TestS11TheMemoryIsFull(t *testing.T) {
	t.Parallel()
	r := begin(t, "S11", func(o *options) { o.refusals = []string{"OOM"} })
	name := "full"
	holder, first, second := fairlock.New(r.dial(), name, headwaiter.WithLease(2*time.Second)), fairlock.New(r.dial(), name), fairlock.New(r.dial(), name)
	other := r.dial()
	for range either(2, 20) {
		l := granted(t, holder)
		c1 := queued(t, first, 1)
		ctx, cancel := context.WithCancel(t.Context())
		c2 := kit.Lock(ctx, second.Lock)
		kit.Waiting(t, 2, holder.Inspect)
		c3 := queued(t, second, 3)
		r.server.Do("CONFIG", "SET", "maxmemory", "1")
		for _, taken := range []string{name, "full:free"} {
			m := fairlock.New(other, taken)
			_, err := m.Lock(t.Context())
			require.ErrorContains(t, err, "OOM")
			require.NotErrorIs(t, err, lease.ErrBusy)
			info, err := m.Inspect(t.Context())
			require.NoError(t, err)
			require.False(t, info.Held && info.Holder.Client == other.ID())
			for _, w := range info.Queue {
				require.NotEqual(t, other.ID(), w.Client, "a ticket is queued that was refused")
			}
		}
		until := r.until(name)
		kit.Eventually(t, "a renewal in full memory", func() bool { return r.until(name) > until })
		cancel()
		require.ErrorIs(t, c2.Err(t), context.Canceled)
		kit.Waiting(t, 2, holder.Inspect)
		since := time.Now()
		kit.Release(t, l)
		kit.Release(t, c1.Value(t))
		kit.Release(t, c3.Value(t))
		require.Less(t, time.Since(since), time.Second, "hand-offs in full memory waited for looks")
		r.server.Do("CONFIG", "SET", "maxmemory", "0")
		r.everybody()
	}
	kit.Free(t, holder)
	r.finish()
}

func TestS12LocksAreEvicted(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"allkeys-lru", "allkeys-random", "volatile-ttl"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			r := begin(t, "S12", func(o *options) {
				o.twice, o.outcomes = true, []string{"forgotten"}
				o.refusals = []string{"OOM"} // While there is nothing left to evict.
			})
			const locks, lasts = 100, 3 * time.Second
			client, next := r.dial(), r.dial()
			held := make([]*watch, locks)
			for i := range held {
				held[i] = watched(granted(t, fairlock.New(client, fmt.Sprintf("evicted:%d", i), headwaiter.WithLease(lasts))))
			}
			r.server.Do("CONFIG", "SET", "maxmemory-policy", policy)
			used := infoField(t, r.server.Text("INFO", "memory"), "used_memory")
			began := evidence.Now()
			r.server.Do("CONFIG", "SET", "maxmemory", fmt.Sprint(used+4<<20))
			for i := range 60 { // What is evicted is evicted before a script, to make room for it.
				_, err := r.server.Try("EVAL", "for i = 1, 200 do redis.call('SET', KEYS[1] .. i, string.rep('x', 1000), 'PX', 3600000) end", "1", fmt.Sprintf("junk:%d:", i))
				if err != nil {
					require.ErrorContains(t, err, "OOM")
				}
			}
			since := time.Now()
			gone := 0
			for i, w := range held {
				m := fairlock.New(next, fmt.Sprintf("evicted:%d", i))
				l, err := m.TryLock(t.Context())
				if errors.Is(err, lease.ErrBusy) || err != nil && strings.Contains(err.Error(), "OOM") {
					continue
				}
				require.NoError(t, err)
				gone++
				require.Greater(t, l.Token(), w.lease.Token(), "the second holder cannot be told from the first")
				w.told(t, promised(w.lease, lasts))
				_ = l.Release(context.Background()) // It may have been evicted in its turn.
			}
			t.Logf("%d of %d locks were evicted; all told within %v", gone, locks, time.Since(since))
			require.NotZero(t, gone, "nothing was evicted: the case shows nothing")
			r.server.Do("CONFIG", "SET", "maxmemory", "0")
			r.forgot = append(r.forgot, check.Span{From: time.Duration(began), To: time.Duration(evidence.Now())})
			require.NoError(t, client.Close(t.Context()))
			r.everybody()
			r.finish()
		})
	}
}

// promised is the end of a lease as its holder knows it, without the margin that it keeps for itself: no later
// than the server's. In µs.
func promised(l *lease.Lease, lasts time.Duration) int64 {
	return l.Deadline().Add(lasts / 100).UnixMicro()
}

func TestS24AServerThatAllowsLittle(t *testing.T) {
	t.Parallel()
	var args []string
	for _, command := range []string{
		"CONFIG", "CLIENT", "DEBUG", "MONITOR", "SAVE", "BGSAVE", "REPLICAOF", "SHUTDOWN", "SLOWLOG", "ACL", "MODULE", "MIGRATE", "SCRIPT",
	} {
		args = append(args, "--rename-command", command, "")
	}
	r := begin(t, "S24", func(o *options) { o.server = []redistest.Option{redistest.WithArgs(args...)} })
	_, err := r.server.Try("CONFIG", "GET", "maxmemory")
	require.ErrorContains(t, err, "unknown command")
	m, other := fairlock.New(r.dial(), "managed", headwaiter.WithLease(time.Second)), fairlock.New(r.dial(), "managed")
	l := granted(t, m)
	c := queued(t, other, 1)
	until := r.until("managed")
	kit.Eventually(t, "a renewal", func() bool { return r.until("managed") > until })
	kit.Release(t, l)
	kit.Release(t, c.Value(t))
	r.everybody()
	r.finish()
}

func TestS23AKeyHasAnotherType(t *testing.T) {
	t.Parallel()
	r := begin(t, "S23")
	client := r.dial()
	for _, ending := range []string{"", ":queue"} {
		m := fairlock.New(client, "type"+strings.TrimPrefix(ending, ":"))
		key := keyOf(m.Name()) + ending
		r.server.Do("SET", key, "not ours")
		_, err := m.Lock(t.Context())
		require.ErrorContains(t, err, "WRONGTYPE")
		_, err = m.TryLock(t.Context())
		require.ErrorContains(t, err, "WRONGTYPE")
		require.Equal(t, []string{key}, r.server.List("KEYS", keyOf(m.Name())+"*"), "something was changed")
		require.Equal(t, "not ours", r.server.Text("GET", key))
		r.server.Do("DEL", key)
		kit.Free(t, m)
	}
	// While somebody holds, and somebody waits.
	m, other := fairlock.New(client, "type", headwaiter.WithLease(2*time.Second)), fairlock.New(r.dial(), "type")
	w := watched(granted(t, m))
	c := queued(t, other, 1)
	r.server.Do("SET", keyOf("type"), "not ours")
	require.ErrorContains(t, c.Err(t), "WRONGTYPE")
	w.told(t, promised(w.lease, 2*time.Second))
	require.Equal(t, "not ours", r.server.Text("GET", keyOf("type")))
	r.server.Do("DEL", keyOf("type"), keyOf("type")+":queue")
	kit.Free(t, m)
	r.everybody()
	r.finish()
}

func TestS22RightsAreTakenAway(t *testing.T) {
	t.Parallel()
	r := begin(t, "S22")
	acl := func(rules ...string) { r.server.Do(append([]string{"ACL", "SETUSER", "app"}, rules...)...) }
	acl("on", ">secret", "~headwaiter:*", "resetchannels", "&headwaiter:*", "+@all")
	app := func(o *headwaiter.Options) { o.Redis.Username, o.Redis.Password = "app", "secret" }
	m, other := fairlock.New(r.dial(app), "rights"), fairlock.New(r.dial(app), "rights")
	for range either(1, 10) {
		l := granted(t, m)
		c := queued(t, other, 1)
		acl("resetchannels")                           // Which closes the connection that subscribes.
		if err := l.Release(t.Context()); err != nil { // Nobody is left to be woken, if the server was fast.
			require.ErrorIs(t, err, lease.ErrUnwoken)
		}
		since := time.Now()
		l = c.Value(t)
		require.Less(t, time.Since(since), 5*time.Second, "it had to look by itself")
		tells := !redistest.Before7() // Older servers do not say which rights there are.
		if tells {
			_, err := headwaiter.Dial(as(r, app))
			require.ErrorIs(t, err, lease.ErrUnusable)
		}
		acl("&headwaiter:*")
		c = queued(t, m, 1)
		kit.Release(t, l)
		kit.Release(t, c.Value(t))

		acl("-@all")
		_, err := m.Lock(t.Context())
		require.ErrorContains(t, err, "NOPERM")
		_, err = headwaiter.Dial(as(r, app))
		require.Error(t, err)
		acl("+@all")
		for _, missing := range []string{"-time", "-evalsha", "-publish", "-subscribe", "-zadd"} {
			acl(missing)
			if tells {
				_, err := headwaiter.Dial(as(r, app))
				require.Error(t, err, "a client was made that lacks %s", missing)
			}
			acl("+@all")
		}
		kit.Free(t, m)
	}
	r.everybody()
	r.finish()
}

// as are the options of a client that logs on in some way.
func as(r *run, change func(*headwaiter.Options)) headwaiter.Options {
	o := headwaiter.Options{Redis: r.server.Option()}
	change(&o)
	return o
}
