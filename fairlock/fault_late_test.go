package fairlock_test

import (
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/faults"
	"github.com/headwaiter/headwaiter/internal/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/waitqueue"
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
	client *waitqueue.Client
	late   *fairlock.Mutex
	prompt *fairlock.Mutex
}

// newLateRig makes one, with a subscription of the late client, so that its asks take places.
func newLateRig(t *testing.T, s *redistest.Embedded) lateRig {
	t.Helper()
	r := lateRig{Dialer: faults.NewDialer(t, s.Dial), fresh: &atomic.Bool{}}
	direct := faults.NewDialer(t, s.Dial)
	r.client = dial(t, s, linger(time.Hour), func(o *waitqueue.Options) {
		o.Redis.DialCtxFn = func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
			if r.fresh.Load() {
				return direct.Dial()
			}
			return r.Dial()
		}
	})
	r.late = fairlock.New(r.client, nameOf(t), fairlock.WithLease(12*time.Hour))
	r.prompt = dialMutex(t, s)
	l := hold(t, r.prompt)
	c := begin(t.Context(), r.late)
	queued(t, r.prompt, 1)
	release(t, l)
	release(t, c.granted(t))
	free(t, r.prompt)
	return r
}

// eachDelay runs a case for each delay.
func eachDelay(t *testing.T, run func(t *testing.T, r lateRig, delay time.Duration)) {
	t.Parallel()
	for _, delay := range delays {
		t.Run(delay.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, s *redistest.Embedded) { run(t, newLateRig(t, s), delay) })
		})
	}
}

// giveUp calls Lock with a context that ends before the request runs.
func (r lateRig) giveUp(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), given)
	defer cancel()
	begun := time.Now()
	require.ErrorIs(t, begin(ctx, r.late).failed(t), context.DeadlineExceeded)
	require.Less(t, time.Since(begun), 2*given)
}

// undisturbed asserts that the prompt client gets the lock, and that nothing takes it or a place in the
// queue for a long time after that.
func (r lateRig) undisturbed(t *testing.T) {
	t.Helper()
	begun := time.Now()
	l := begin(t.Context(), r.prompt).granted(t)
	require.Less(t, time.Since(begun), ghostLimit)
	eventually(t, "an empty queue", func() bool { return inspect(t, r.prompt).Waiting == 0 })
	time.Sleep(time.Minute)
	holds(t, r.prompt, l)
	require.Zero(t, inspect(t, r.prompt).Waiting)
	release(t, l)
	free(t, r.prompt)
	release(t, hold(t, r.late)) // And the late client is none the worse for it.
	free(t, r.prompt)
}

func TestAnAskThatComesLateLeavesNoHolder(t *testing.T) {
	eachDelay(t, func(t *testing.T, r lateRig, delay time.Duration) {
		r.Freeze(faults.ToServer)
		r.giveUp(t)
		time.Sleep(delay - given)
		r.Heal()
		r.undisturbed(t)
	})
}

func TestAnAskThatComesLateLeavesNobodyInTheQueue(t *testing.T) {
	eachDelay(t, func(t *testing.T, r lateRig, delay time.Duration) {
		l := hold(t, r.prompt)
		r.Freeze(faults.ToServer)
		r.giveUp(t)
		time.Sleep(delay - given)
		r.Heal()
		synctest.Wait()
		time.Sleep(ghostLimit)
		require.Zero(t, inspect(t, r.prompt).Waiting)
		release(t, l)
		r.undisturbed(t)
	})
}

// In the next two the end of a ticket overtakes what was sent before it, on another connection.

func TestAnAskThatIsOvertakenByItsEndLeavesNoHolder(t *testing.T) {
	eachDelay(t, func(t *testing.T, r lateRig, delay time.Duration) {
		r.Freeze(faults.ToServer)
		r.fresh.Store(true)
		r.giveUp(t)
		time.Sleep(delay - given)
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
		eventually(t, "a check", func() bool { return r.client.Stats().Checks > checks })
		cancel()
		require.ErrorIs(t, c.failed(t), context.Canceled)
		time.Sleep(delay)
		r.Heal()
		synctest.Wait()
		time.Sleep(ghostLimit)
		require.Zero(t, inspect(t, r.prompt).Waiting)
		release(t, l)
		r.undisturbed(t)
	})
}

func TestAnAskWhoseReplyComesLateLeavesNoHolder(t *testing.T) {
	eachDelay(t, func(t *testing.T, r lateRig, delay time.Duration) {
		r.Freeze(faults.ToClient)
		r.giveUp(t)
		time.Sleep(delay - given)
		r.Heal()
		r.undisturbed(t)
	})
}

func TestTheEndOfAWaitThatComesLateEmptiesTheQueue(t *testing.T) {
	eachDelay(t, func(t *testing.T, r lateRig, delay time.Duration) {
		l := hold(t, r.prompt)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := begin(ctx, r.late)
		queued(t, r.prompt, 1)
		r.Freeze(faults.ToServer)
		cancel()
		begun := time.Now()
		require.ErrorIs(t, c.failed(t), context.Canceled)
		require.Less(t, time.Since(begun), given)
		time.Sleep(delay)
		r.Heal()
		synctest.Wait()
		time.Sleep(ghostLimit)
		require.Zero(t, inspect(t, r.prompt).Waiting)
		release(t, l)
		r.undisturbed(t)
	})
}

func TestAReleaseThatComesLateFreesTheLock(t *testing.T) {
	eachDelay(t, func(t *testing.T, r lateRig, delay time.Duration) {
		l := hold(t, r.late)
		r.Freeze(faults.ToServer)
		ctx, cancel := context.WithTimeout(t.Context(), given)
		defer cancel()
		begun := time.Now()
		err := l.Release(ctx)
		require.ErrorIs(t, err, lease.ErrUnconfirmed)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Less(t, time.Since(begun), 2*given)
		require.Error(t, l.Context().Err())
		time.Sleep(delay - given)
		r.Heal()
		r.undisturbed(t)
	})
}

func TestAReleaseThatIsNeverAnsweredIsNotConfirmed(t *testing.T) {
	t.Parallel()
	for _, lasts := range []time.Duration{10 * time.Second, 12 * time.Hour} {
		t.Run(lasts.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, s *redistest.Embedded) {
				d := faults.NewDialer(t, s.Dial)
				m := fairlock.New(dial(t, s, over(d)), nameOf(t), fairlock.WithLease(lasts))
				l := hold(t, m)
				d.Drop()
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				require.ErrorIs(t, l.Release(ctx), lease.ErrUnconfirmed)
				d.Heal()
			})
		})
	}
}

func TestRequestsOfAFormerHolderThatComeLateDisturbNobody(t *testing.T) {
	eachDelay(t, func(t *testing.T, r lateRig, delay time.Duration) {
		short := fairlock.New(r.client, nameOf(t), fairlock.WithLease(time.Second))
		l := hold(t, short)
		waiter := begin(t.Context(), r.prompt)
		queued(t, r.prompt, 1)
		r.Freeze(faults.ToServer)
		// Its renewals do not come to the server: it is over for both.
		require.ErrorIs(t, lost(t, l), lease.ErrExpired)
		require.False(t, waiter.returned(), "the next holds before the former was told")
		next := waiter.granted(t)
		time.Sleep(delay)
		r.Heal()
		other := fairlock.New(r.client, nameOf(t))
		for range 100 { // A lease that was cut or freed would be taken.
			_, err := other.TryLock(t.Context())
			require.ErrorIs(t, err, waitqueue.ErrBusy)
			time.Sleep(100 * time.Millisecond)
		}
		holds(t, r.prompt, next)
		require.ErrorIs(t, l.Release(context.Background()), lease.ErrLost)
		holds(t, r.prompt, next)
		release(t, next)
		r.undisturbed(t)
	})
}

func TestRequestsThatAllComeTooLateForTheirCallersLeaveNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *redistest.Embedded) {
		r := newLateRig(t, s)
		r.Delay(4*given, faults.ToServer)
		for range 20 {
			r.giveUp(t)
		}
		time.Sleep(4 * given)
		r.Heal()
		r.undisturbed(t)
	})
}
