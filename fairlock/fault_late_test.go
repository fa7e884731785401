package fairlock_test

import (
	"context"
	"crypto/tls"
	"net"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
)

// In these tests requests of one client come to the server long after their sender gave them up. Its
// leases would last for hours, so that nothing but the end of a ghost's ticket frees what it took.
const (
	// given is how long a caller waits.
	given = 100 * time.Millisecond
	// ghostLimit is how long a ghost may be in the way after its request has run.
	ghostLimit = 10 * time.Second
)

// delays are how late requests come: within the time in which a connection must answer, after it but within
// that in which a request may still run, after that, and after all is over.
var delays = []time.Duration{300 * time.Millisecond, 2200 * time.Millisecond, 7 * time.Second, 2 * time.Minute}

// lateRig is a server in a bubble with a client whose requests come late, and one whose do not.
type lateRig struct {
	*faults.Dialer
	fresh  *atomic.Bool // whether the late client's new connections have no faults
	client *headwaiter.Client
	late   *fairlock.Mutex
	prompt *fairlock.Mutex
}

// newLateRig makes one, with a subscription of the late client, so that its asks take places.
func newLateRig(t *testing.T, s *redistest.Embedded) lateRig {
	t.Helper()
	r := lateRig{Dialer: faults.NewDialer(t, s.Dial), fresh: &atomic.Bool{}}
	direct := faults.NewDialer(t, s.Dial)
	r.client = kit.Dial(t, s, linger(time.Hour), func(o *headwaiter.Options) {
		o.Redis.DialCtxFn = func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
			if r.fresh.Load() {
				return direct.Dial()
			}
			return r.Dial()
		}
	})
	r.late = fairlock.New(r.client, kit.Name(t), headwaiter.WithLease(12*time.Hour))
	r.prompt = dialMutex(t, s)
	l := hold(t, r.prompt)
	c := begin(t.Context(), r.late)
	queued(t, r.prompt, 1)
	kit.PassOn(t, l, c)
	kit.Free(t, r.prompt)
	return r
}

// eachDelay runs a case for each delay.
func eachDelay(t *testing.T, run func(t *testing.T, r lateRig, delay time.Duration)) {
	t.Parallel()
	for _, delay := range delays {
		t.Run(delay.String(), func(t *testing.T) {
			kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) { run(t, newLateRig(t, s), delay) })
		})
	}
}

// giveUp calls Lock with a context that ends before the request runs.
func (r lateRig) giveUp(t *testing.T) {
	t.Helper()
	ctx := kit.Within(t, given)
	begun := time.Now()
	require.ErrorIs(t, begin(ctx, r.late).Err(t), context.DeadlineExceeded)
	require.Less(t, time.Since(begun), 2*given)
}

// emptied lets late requests come, and asserts that they leave nobody in the queue of l, and no holder after it.
func (r lateRig) emptied(t *testing.T, l *lease.Lease) {
	t.Helper()
	r.Heal()
	synctest.Wait()
	synctime.Pass(ghostLimit)
	require.Zero(t, inspect(t, r.prompt).Waiting)
	kit.Release(t, l)
	r.undisturbed(t)
}

// undisturbed asserts that the prompt client gets the lock, and that nothing takes it or a place in the
// queue for a long time after that.
func (r lateRig) undisturbed(t *testing.T) {
	t.Helper()
	begun := time.Now()
	l := begin(t.Context(), r.prompt).Value(t)
	require.Less(t, time.Since(begun), ghostLimit)
	kit.Eventually(t, "an empty queue", func() bool { return inspect(t, r.prompt).Waiting == 0 })
	synctime.Pass(time.Minute)
	holds(t, r.prompt, l)
	require.Zero(t, inspect(t, r.prompt).Waiting)
	kit.Release(t, l)
	kit.Free(t, r.prompt)
	kit.Release(t, hold(t, r.late)) // And the late client is none the worse for it.
	kit.Free(t, r.prompt)
}

// The last request of a call is often ended by the call's own deadline. That says nothing of the server. Chance decides
// which of the two is seen first, and only on a connection that has answered so far, hence many rounds.
func TestTheLastErrorIsThatOfTheServer(t *testing.T) {
	for round := range 20 {
		kit.BubbleOf(t, strconv.Itoa(round), func(t *testing.T, s *redistest.Embedded) {
			r := newLateRig(t, s)
			synctime.Pass(2 * given) // The check after the subscription comes in that time: the error of a check that fails would be the last.
			s.Fail("LOADING Redis is loading the dataset in memory")
			c := begin(kit.Within(t, given), r.late)
			synctime.Pass(given / 2)
			r.Freeze(faults.ToClient)
			kit.Fails(t, c.Err(t), context.DeadlineExceeded, "LOADING")
			r.Heal()
			s.Fail("")
			kit.Release(t, hold(t, r.late))
		})
	}
}

// In the next two the end of a ticket overtakes what was sent before it, on another connection.

func TestAnAskThatIsOvertakenByItsEndLeavesNoHolder(t *testing.T) {
	eachDelay(t, func(t *testing.T, r lateRig, delay time.Duration) {
		r.Freeze(faults.ToServer)
		r.fresh.Store(true)
		r.giveUp(t)
		synctime.Pass(delay - given)
		r.Heal()
		r.undisturbed(t)
	})
}

func TestACheckThatIsOvertakenByItsEndLeavesNobodyInTheQueue(t *testing.T) {
	eachDelay(t, func(t *testing.T, r lateRig, delay time.Duration) {
		l := hold(t, r.prompt)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := begin(ctx, r.late)
		queued(t, r.prompt, 1)
		r.Freeze(faults.ToServer)
		r.fresh.Store(true)
		checks := r.client.Stats().Checks
		kit.Eventually(t, "a check", func() bool { return r.client.Stats().Checks > checks })
		kit.Cancel(t, cancel, c)
		synctime.Pass(delay)
		r.emptied(t, l)
	})
}

func TestAReleaseThatComesLateFreesTheLock(t *testing.T) {
	eachDelay(t, func(t *testing.T, r lateRig, delay time.Duration) {
		l := hold(t, r.late)
		r.Freeze(faults.ToServer)
		ctx := kit.Within(t, given)
		begun := time.Now()
		kit.Fails(t, l.Release(ctx), lease.ErrUnconfirmed, context.DeadlineExceeded)
		require.Less(t, time.Since(begun), 2*given)
		require.Error(t, l.Context().Err())
		synctime.Pass(delay - given)
		r.Heal()
		r.undisturbed(t)
	})
}

func TestRequestsOfAFormerHolderThatComeLateDisturbNobody(t *testing.T) {
	eachDelay(t, func(t *testing.T, r lateRig, delay time.Duration) {
		short := fairlock.New(r.client, kit.Name(t), headwaiter.WithLease(time.Second))
		l := hold(t, short)
		waiter := begin(t.Context(), r.prompt)
		queued(t, r.prompt, 1)
		r.Freeze(faults.ToServer)
		// Its renewals do not come to the server: it is over for both.
		require.ErrorIs(t, kit.Lost(t, l), lease.ErrExpired)
		require.False(t, waiter.Returned(), "the next holds before the former was told")
		next := waiter.Value(t)
		synctime.Pass(delay)
		r.Heal()
		other := fairlock.New(r.client, kit.Name(t))
		for range 100 { // A lease that was cut or freed would be taken.
			require.ErrorIs(t, kit.Err(other.TryLock(t.Context())), lease.ErrBusy)
			synctime.Pass(100 * time.Millisecond)
		}
		holds(t, r.prompt, next)
		require.ErrorIs(t, l.Release(context.Background()), lease.ErrLost)
		holds(t, r.prompt, next)
		kit.Release(t, next)
		r.undisturbed(t)
	})
}
