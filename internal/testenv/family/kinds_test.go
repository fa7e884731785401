package family

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/election"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/option"
	"github.com/headwaiter/headwaiter/internal/testenv/crowd"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/multilock"
	"github.com/headwaiter/headwaiter/redlock"
	"github.com/headwaiter/headwaiter/reentrant"
	"github.com/headwaiter/headwaiter/rwlock"
	"github.com/headwaiter/headwaiter/semaphore"
	"github.com/headwaiter/headwaiter/striped"
)

// A process that crowd.Start has started is this test binary, and ends here.
func init() { crowd.Main() }

// locking is a call that takes a hold.
type locking = func(context.Context) (*lease.Lease, error)

// as makes of options those of one package. It panics where that cannot honour one.
func as[T any](opts []option.Any) []T {
	all := make([]T, len(opts))
	for i, o := range opts {
		all[i] = any(o).(T)
	}
	return all
}

// An object is a name of one kind, as a client sees it. Its holds exclude each other.
type object struct {
	lock, try locking // try: nil if there is none
	inspect   func(context.Context) (lease.Info, error)
	force     func(context.Context, uint64) (lease.Holder, error)
}

// A kind is a way to take a hold. One that binds scripts of its own has a protocol; the others are made of those.
type kind struct {
	proto  *lua.Protocol
	crowd  string // the kind of call in another process
	enters bool   // the context of a hold enters it again
	queue  bool   // its queue can have a limit
	of     func(c *headwaiter.Client, name string, opts []option.Any) object
}

var kinds = map[string]kind{
	"fairlock": {lua.Fairlock, crowd.Lock, false, true, func(c *headwaiter.Client, name string, opts []option.Any) object {
		m := fairlock.New(c, name, as[fairlock.Option](opts)...)
		return object{m.Lock, m.TryLock, m.Inspect, m.ForceRelease}
	}},
	"reentrant": {lua.Reentrant, crowd.Reentrant, true, true, func(c *headwaiter.Client, name string, opts []option.Any) object {
		m := reentrant.New(c, name, as[reentrant.Option](opts)...)
		return object{m.Lock, m.TryLock, m.Inspect, m.ForceRelease}
	}},
	"rwlock": {lua.RWLock, crowd.Write, true, true, func(c *headwaiter.Client, name string, opts []option.Any) object {
		m := rwlock.New(c, name, as[rwlock.Option](opts)...)
		return object{m.Lock, m.TryLock, m.Inspect, m.ForceRelease}
	}},
	"semaphore": {lua.Semaphore, crowd.Semaphore, false, true, func(c *headwaiter.Client, name string, opts []option.Any) object {
		s := semaphore.New(c, name, 1, as[semaphore.Option](opts)...)
		one := func(get func(context.Context, int64) (*lease.Lease, error)) locking {
			return func(ctx context.Context) (*lease.Lease, error) { return get(ctx, 1) }
		}
		return object{one(s.Acquire), one(s.TryAcquire), s.Inspect, s.ForceRelease}
	}},
	"election": {lua.Election, crowd.Election, false, false, func(c *headwaiter.Client, name string, opts []option.Any) object {
		e := election.New(c, name, as[election.Option](opts)...)
		return object{func(ctx context.Context) (*lease.Lease, error) { return e.Campaign(ctx, "value") }, nil, e.Inspect, e.ForceRelease}
	}},
	"cohort": {of: func(c *headwaiter.Client, name string, opts []option.Any) object {
		return object{lock: fairlock.New(c, name, append(as[fairlock.Option](opts), fairlock.WithCohort(8))...).Lock}
	}},
	"each": {queue: true, of: func(c *headwaiter.Client, name string, opts []option.Any) object {
		m := fairlock.New(c, name, as[fairlock.Option](opts)...)
		return object{lock: func(ctx context.Context) (*lease.Lease, error) {
			o := fairlock.LockEach(ctx, m)
			return o[0].Lease, o[0].Err
		}, inspect: m.Inspect}
	}},
	"multilock": {of: func(c *headwaiter.Client, name string, opts []option.Any) object {
		return object{lock: multilock.New(c, []string{name, name + ":more"}, as[multilock.Option](opts)...).Lock}
	}},
	"striped": {of: func(c *headwaiter.Client, name string, opts []option.Any) object {
		m := striped.New(c, name, 1, as[striped.Option](opts)...)
		return object{lock: func(ctx context.Context) (*lease.Lease, error) { return m.Lock(ctx, "key") }}
	}},
	"redlock": {of: func(c *headwaiter.Client, name string, opts []option.Any) object {
		all := append(as[redlock.Option](opts), redlock.WithoutSafeRestart())
		return object{lock: redlock.New([]*headwaiter.Client{c}, name, all...).Lock}
	}},
}

// object is the name of the test, as a client sees it.
func (k kind) object(t testing.TB, c *headwaiter.Client, opts ...option.Any) object {
	return k.of(c, kit.Name(t), opts)
}

// dial returns the object of a new client.
func (k kind) dial(t testing.TB, s redistest.Backend, opts ...option.Any) object {
	t.Helper()
	return k.object(t, kit.Dial(t, s), opts...)
}

// eachBound runs a case for each kind that binds scripts of its own.
func eachBound(t *testing.T, run func(t *testing.T, k kind)) {
	for name, k := range kinds {
		if k.proto != nil {
			t.Run(name, func(t *testing.T) { run(t, k) })
		}
	}
}

// eachServer is that on miniredis and on redis-server.
func eachServer(t *testing.T, run func(t *testing.T, s redistest.Backend, k kind)) {
	eachBound(t, func(t *testing.T, k kind) {
		kit.Each(t, func(t *testing.T, s redistest.Backend) { run(t, s, k) })
	})
}

// eachBubble is that in a bubble.
func eachBubble(t *testing.T, run func(t *testing.T, s *redistest.Embedded, k kind)) {
	eachBound(t, func(t *testing.T, k kind) {
		kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) { run(t, s, k) })
	})
}

// more enters the hold of a lease again, if that is how its kind is.
func (k kind) more(t testing.TB, o object, l *lease.Lease, n int) []*lease.Lease {
	t.Helper()
	all := []*lease.Lease{l}
	for range n {
		if k.enters {
			all = append(all, kit.Lock(all[len(all)-1].Context(), o.lock).Value(t))
		}
	}
	return all
}

// keys are those of the name of the test.
func (k kind) keys(t testing.TB) lua.Keys { return k.proto.Keys("headwaiter", kit.Name(t)) }

// hold takes what must come soon.
func (o object) hold(t testing.TB) *lease.Lease {
	t.Helper()
	return kit.Lock(t.Context(), o.lock).Value(t)
}

// waits begins a call that waits, the nth.
func (o object) waits(t testing.TB, ctx context.Context, n int) *kit.Call[*lease.Lease] {
	t.Helper()
	c := kit.Lock(ctx, o.lock)
	kit.Waiting(t, n, o.inspect)
	return c
}

// stands asserts that the server has one hold, by its token.
func (o object) stands(t testing.TB, l *lease.Lease) {
	t.Helper()
	info, err := o.inspect(t.Context())
	require.True(t, err == nil && info.Held, "held: %+v, %v", info, err)
	require.True(t, len(info.Holders) <= 1 && info.Holder.Token == l.Token(), "token %d: %+v", l.Token(), info)
}

// free asserts that nobody holds or waits, soon.
func (o object) free(t testing.TB) {
	t.Helper()
	kit.Eventually(t, "nobody to hold or wait", func() bool {
		info, err := o.inspect(t.Context())
		return err == nil && !info.Held && info.Used == 0 && info.Waiting == 0
	})
}

// frees takes the hold away by force.
func (o object) frees(t testing.TB) {
	t.Helper()
	info := kit.Got(o.inspect(t.Context()))(t)
	require.Equal(t, info.Holder.Ticket, kit.Got(o.force(t.Context(), info.Holder.Token))(t).Ticket)
}

// keeps runs a process that holds the name of the test, by a lease of a second, and returns its token.
func (k kind) keeps(t *testing.T, s *redistest.Server) (*crowd.Crowd, uint64) {
	t.Helper()
	c := crowd.Start(t, crowd.Plan{
		Addr: s.Addr(), Kind: k.crowd, Names: []string{kit.Name(t)}, Clients: 1, Waiters: 1, Lease: time.Second,
		Keep: true, Permits: 1, N: 1, Entries: 2,
	})
	return c, c.Await(crowd.Held, 1, kit.Patience)[0].Token
}

// ends is when the lease of whoever holds is over, by the server's clock in µs.
func (o object) ends(t *testing.T, s *redistest.Server) int64 {
	t.Helper()
	now := kit.ServerTime(s) // Before the look: rather too early.
	info := kit.Got(o.inspect(t.Context()))(t)
	require.True(t, info.Held)
	return now + info.Holder.Left.Microseconds()
}

// It may have been entered several times. The next holds when its lease is over by the server's clock, and not before.
func TestTheNextHoldsWhenTheLeaseOfAKilledProcessEnds(t *testing.T) {
	eachBound(t, func(t *testing.T, k kind) {
		s := kit.Start(t)
		o := k.dial(t, s)
		victim, token := k.keeps(t, s)
		c := o.waits(t, t.Context(), 1)
		victim.Kill()
		ends := o.ends(t, s)
		require.False(t, c.Returned())
		l := c.Value(t)
		require.GreaterOrEqual(t, kit.ServerTime(s), ends, "granted before the lease was over")
		require.Greater(t, l.Token(), token)
		o.stands(t, l)
		kit.Release(t, l)
		o.free(t)
	})
}

func TestAProcessThatWasStoppedPastItsLeaseSeesTheLossAtItsFirstLook(t *testing.T) {
	eachBound(t, func(t *testing.T, k kind) {
		s := kit.Start(t)
		o := k.dial(t, s)
		stopped, token := k.keeps(t, s)
		c := o.waits(t, t.Context(), 1)
		stopped.Watch()
		stopped.Stop()
		l := c.Value(t)
		require.Greater(t, l.Token(), token)
		stopped.Cont()
		looked := stopped.Await(crowd.Looked, 1, kit.Patience)[0]
		require.True(t, looked.Lost, "%+v", looked)
		stopped.Release()
		released := stopped.Await(crowd.Released, 1, kit.Patience)[0]
		require.True(t, released.Lost, "%+v", released)
		require.NoError(t, l.Context().Err())
		o.stands(t, l)
		kit.Release(t, l)
		o.free(t)
	})
}
