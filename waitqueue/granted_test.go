package waitqueue

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/must"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// What a call for many names was granted is looked after from its grant on, whatever the others wait for.

// many are the queues of n names.
func many(c *Client, n int, terms Terms) []Queue {
	queues := make([]Queue, n)
	for i := range queues {
		queues[i] = c.Queue(lua.Fairlock, "name:"+strconv.Itoa(i), terms)
	}
	return queues
}

// leasesOf are the leases of outcomes that all went well.
func leasesOf(t *testing.T, outcomes []Outcome) []*lease.Lease {
	t.Helper()
	leases := make([]*lease.Lease, len(outcomes))
	for i, o := range outcomes {
		require.NoError(t, o.Err)
		leases[i] = o.Lease
	}
	return leases
}

func TestAServerThatHasRestartedIsWaitedForOnceByMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lasts = 3 * time.Second
		s := redistest.Bubble(t)
		s.Answer("INFO", "role:master\r\nmaster_replid:1\r\nrun_id:1\r\nuptime_in_seconds:0\r\n")
		call := func() (<-chan []Outcome, func()) {
			c, _ := dialThrough(t, s)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			outcomes := make(chan []Outcome, 1)
			go func() { outcomes <- AcquireEach(ctx, many(c, 20, Terms{Lease: lasts, SafeRestart: true})...) }()
			return outcomes, func() { cancel(); _ = c.Shutdown(context.Background()) }
		}
		begun := time.Now()
		first, closeFirst := call()
		defer closeFirst()
		synctime.Pass(lasts / 3)
		later, closeLater := call()
		defer closeLater()
		held := leasesOf(t, <-first)
		require.Less(t, time.Since(begun), lasts+lasts/2)
		require.Empty(t, later)
		for _, err := range ReleaseEach(t.Context(), held...) {
			require.NoError(t, err)
		}
		for i, l := range leasesOf(t, <-later) {
			require.Greater(t, l.Token(), held[i].Token())
		}
	})
}

func TestReplicasAreWaitedForTogetherByMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const roundTrip = 20 * time.Millisecond
		s := redistest.Bubble(t)
		s.Answer("WAIT", ":1")
		c, d := dialThrough(t, s)
		defer func() { _ = c.Shutdown(context.Background()) }()
		queues := many(c, 100, Terms{Lease: time.Second, Replicas: 1, ReplicasTimeout: 100 * time.Millisecond})
		require.NoError(t, AcquireEach(t.Context(), queues[0])[0].Lease.Release(t.Context())) // The connections are there.
		d.Delay(roundTrip / 2)
		s.ResetStats()
		begun := time.Now()
		held := leasesOf(t, AcquireEach(t.Context(), queues...))
		require.Less(t, time.Since(begun), 6*roundTrip)
		require.LessOrEqual(t, s.CommandStats()["wait"], int64(2))
		for _, l := range held {
			require.NoError(t, l.Context().Err())
		}
	})
}

func TestASilentServerHoldsUpItsOwnNamesAlone(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, s *redistest.Embedded) {
		silent, d := dialThrough(t, redistest.Bubble(t))
		c, _ := dialThrough(t, s)
		defer func() {
			d.Heal()
			_ = c.Shutdown(context.Background())
			_ = silent.Shutdown(context.Background())
		}()
		terms := Terms{Lease: time.Second}
		ctx := must.Within(t, 10*time.Second)
		d.Freeze(faults.ToServer, faults.ToClient)
		outcomes := make(chan []Outcome, 1)
		go func() { outcomes <- AcquireEach(ctx, append(many(silent, 2, terms), many(c, 5, terms)...)...) }()
		synctime.Pass(100 * time.Millisecond)
		later := acquire(t.Context(), many(dial(t, s), 5, terms)[4])
		all := <-outcomes
		for _, o := range all[:2] {
			require.ErrorIs(t, o.Err, context.DeadlineExceeded)
		}
		held := leasesOf(t, all[2:])
		require.Empty(t, later)
		require.NoError(t, held[4].Release(t.Context()))
		require.Greater(t, (<-later).Token(), held[4].Token())
	})
}

// Nothing tells a client of the connections of a caller's rueidis client, so each hold needs an answer that comes after its
// grant. One is enough for all that were granted before.
func TestAServerIsAskedForItsAgeOnceForMany(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, s *redistest.Embedded) {
		s.Answer("INFO", "role:master\r\nmaster_replid:1\r\nrun_id:1\r\nuptime_in_seconds:1000\r\n")
		d := faults.NewDialer(t, s.Dial)
		o := s.Option()
		o.DialCtxFn = d.DialCtx
		rc := must.Got(rueidis.NewClient(o))(t)
		defer rc.Close()
		c := must.Got(New(rc, Options{Name: "test"}))(t)
		defer func() { _ = c.Shutdown(context.Background()) }()
		queues := many(c, 100, Terms{Lease: 3 * time.Second, SafeRestart: true})
		d.Delay(10 * time.Millisecond) // All others come while the first is on its way.
		for range 3 {
			s.ResetStats()
			held := leasesOf(t, AcquireEach(t.Context(), queues...))
			require.Positive(t, s.CommandStats()["info"])
			require.LessOrEqual(t, s.CommandStats()["info"], int64(2))
			for _, err := range ReleaseEach(t.Context(), held...) {
				require.NoError(t, err)
			}
		}
	})
}

// A hold that was entered again ends with its last lease, however the first is given back.
func TestAReleaseOfSeveralEndsNoHoldOfWhichAnotherLeaseIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lasts = 3 * time.Second
		s := redistest.Bubble(t)
		q := dial(t, s).Queue(lua.Reentrant, "name", Terms{Lease: lasts}).Nested(Reenters)
		outer := must.Got(q.Acquire(t.Context()))(t)
		inner := must.Got(q.Acquire(outer.Context()))(t)
		sh, _ := shareBehind(outer)
		require.False(t, sh.let(), "another lease is left")
		require.NoError(t, outer.Context().Err())
		require.Equal(t, []error{nil}, ReleaseEach(t.Context(), outer))
		synctime.Pass(2 * lasts)
		require.NoError(t, inner.Context().Err())
		require.Equal(t, int64(1), s.Int("HEXISTS", q.keys.Lock, "owner"))
		require.Equal(t, []error{nil}, ReleaseEach(t.Context(), inner))
		require.Zero(t, s.Int("HEXISTS", q.keys.Lock, "owner"))
	})
}

func TestSeveralHoldsOfAnOwnerAreEnteredByItsOtherCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := dial(t, redistest.Bubble(t)).Queue(lua.Reentrant, "name", Terms{Lease: 3 * time.Second}).Nested(Reenters)
		outcomes := AcquireEach(WithOwner(t.Context(), "job"), q)
		require.NoError(t, outcomes[0].Err)
		inner := must.Got(q.Try(WithOwner(context.Background(), "job")))(t)
		require.Equal(t, outcomes[0].Lease.Token(), inner.Token())
		for _, another := range TryEach(WithOwner(t.Context(), "another"), q) {
			require.ErrorIs(t, another.Err, lease.ErrBusy)
		}
		require.Equal(t, []error{nil, nil}, ReleaseEach(t.Context(), outcomes[0].Lease, inner))
	})
}

func TestANameThatIsThereTwiceIsNotWaitedForTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := dial(t, redistest.Bubble(t))
		begun := time.Now()
		q := c.Queue(lua.Reentrant, "name", Terms{Lease: 3 * time.Second}).Nested(Reenters)
		outcomes := AcquireEach(t.Context(), q, q)
		require.NoError(t, outcomes[0].Err)
		require.ErrorIs(t, outcomes[1].Err, lease.ErrDeadlock)
		require.NoError(t, outcomes[0].Lease.Release(t.Context()))
		require.Equal(t, begun, time.Now())
	})
}

func TestAHoldThatIsLostWhileOthersAreWaitedForIsNoLease(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, s *redistest.Embedded) {
		c, other := dial(t, s), dial(t, s)
		queue := func(c *Client, name string, terms Terms) Queue {
			terms.Lease = 3 * time.Second
			return c.Queue(lua.Fairlock, name, terms)
		}
		held := must.Got(queue(other, "held", Terms{}).Acquire(t.Context()))(t)
		time.AfterFunc(time.Second, func() { _ = held.Release(context.Background()) })
		outcomes := AcquireEach(t.Context(), queue(c, "free", Terms{MaxHold: 300 * time.Millisecond}), queue(c, "held", Terms{}))
		require.ErrorIs(t, outcomes[0].Err, lease.ErrMaxHold)
		require.Nil(t, outcomes[0].Lease)
		require.NoError(t, outcomes[1].Err)
		require.Equal(t, []error{nil, nil}, ReleaseEach(t.Context(), outcomes[0].Lease, outcomes[1].Lease))
	})
}

// Each lease that is given back ends the contexts that come from it, also by way of another hold.
func TestAReleaseOfSeveralWithAContextFromOneOfThemIsConfirmedForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := dial(t, redistest.Bubble(t))
		outcomes := AcquireEach(t.Context(), queueOf(c, "a"), queueOf(c, "b"), queueOf(c, "c"))
		leases := []*lease.Lease{outcomes[0].Lease, nil, outcomes[1].Lease, outcomes[2].Lease}
		nested := must.Got(queueOf(c, "nested").Acquire(leases[0].Context()))(t)
		require.Equal(t, make([]error, 4), ReleaseEach(nested.Bind(leases[0].Context()), leases...))
		require.NoError(t, nested.Release(t.Context()))
	})
}

func TestTheErrorsOfAReleaseOfSeveralNameTheirHolds(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, s *redistest.Embedded) {
		c := dial(t, s)
		outcomes := AcquireEach(t.Context(), queueOf(c, "first"), queueOf(c, "second"))
		refuse(s, "-OOM command not allowed when used memory > 'maxmemory'.")
		defer refuse(s, "")
		errs := ReleaseEach(t.Context(), outcomes[0].Lease, outcomes[1].Lease)
		require.ErrorContains(t, errs[0], `lease: release "first": `)
		must.Fails(t, errs[1], `lease: release "second": `, lease.ErrUnconfirmed)
	})
}

func TestAReleaseByForceOfAClosedClientSaysThatNothingWasFreed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := dial(t, redistest.Bubble(t))
		require.NoError(t, c.Shutdown(t.Context()))
		_, err := queueOf(c, "name").ForceRelease(t.Context(), 0)
		must.Fails(t, err, lease.ErrClosed, "not freed")
		require.NotContains(t, err.Error(), "may have been")
	})
}

// Behind a gateway that accepts connections and closes them a client tries two connections a second, however many names it
// waits for, and looks at each name no more often than that. Once the server answers, all have what they wait for within the
// second that docs/away.md promises.
func TestManyWaitersDoNotStormAGatewayThatClosesConnections(t *testing.T) {
	const names, lasts, perSecond = 100, 20, 2
	redistest.InBubble(t, func(t *testing.T, s *redistest.Embedded) {
		d := faults.NewDialer(t, s.Dial)
		o := s.Option()
		var closes atomic.Bool
		var tries atomic.Int32
		o.DialCtxFn = func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
			tries.Add(1)
			if closes.Load() {
				near, far := net.Pipe()
				return near, far.Close()
			}
			return d.Dial()
		}
		c, err := Dial(Options{Redis: o, Name: "test"})
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Shutdown(context.Background())) }()
		other := dial(t, s)
		var holds [names]*lease.Lease
		var waits [names]<-chan *lease.Lease
		for i := range names {
			holds[i], err = queueOf(other, fmt.Sprint(i)).Acquire(t.Context())
			require.NoError(t, err)
			waits[i] = acquire(t.Context(), queueOf(c, fmt.Sprint(i)))
		}
		synctime.Pass(time.Second)
		require.EqualValues(t, 3, tries.Load())

		closes.Store(true)
		d.Cut()
		tries.Store(0)
		looks := c.Stats().Checks
		synctime.Pass(lasts * time.Second)
		require.LessOrEqual(t, tries.Load(), int32(1+perSecond*lasts))
		require.LessOrEqual(t, c.Stats().Checks-looks, uint64(names*perSecond*lasts))
		for i, l := range holds {
			require.NoError(t, l.Release(t.Context()))
			require.Empty(t, waits[i])
		}

		closes.Store(false)
		synctime.Pass(time.Second)
		for i, w := range waits {
			require.Len(t, w, 1, "name %d", i)
			require.NoError(t, (<-w).Release(t.Context()))
		}
	})
}

// endsAtALook is a context that ends while it is asked whether it has: from a moment on, and not before.
type endsAtALook struct {
	context.Context
	end func()
	now func() bool
}

func (c endsAtALook) Err() error {
	err := c.Context.Err()
	if err == nil && c.now() {
		c.end()
	}
	return err
}

// The answer to a request comes in the background where the server is slow. The call may have ended since, so only the call
// itself makes a lease of it.
func TestNoLeaseIsMadeForACallThatHasGone(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, server *redistest.Embedded) {
		rc := must.Got(rueidis.NewClient(server.Option()))(t)
		defer rc.Close()
		c := must.Got(New(rc, Options{}))(t) // Each request on the connections of a caller goes in the background.
		defer func() { require.NoError(t, c.Shutdown(context.Background())) }()
		q := queueOf(c, "name")
		inner, end := context.WithCancel(t.Context())
		defer end()
		l, err := q.Acquire(endsAtALook{inner, end, func() bool { return server.Do("EXISTS", q.keys.Lock) == int64(1) }})
		synctest.Wait()
		if err == nil {
			require.NoError(t, l.Release(t.Context()))
		} else {
			require.Zero(t, c.Stats().Granted, "nobody has the lease")
		}
		require.NoError(t, must.Got(q.Try(t.Context()))(t).Release(t.Context()), "it was given back")
	})
}
