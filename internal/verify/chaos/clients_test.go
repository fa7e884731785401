package chaos

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/crowd"
	"github.com/headwaiter/headwaiter/internal/testenv/evidence"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
)

// keeper starts a process that holds a lock until it is told otherwise, or killed.
func (r *run) keeper(name string, lasts time.Duration) (*crowd.Crowd, crowd.Event) {
	r.Helper()
	c := r.crowd(crowd.Plan{Names: []string{name}, Clients: 1, Waiters: 1, Lease: lasts, Keep: true})
	return c, c.Await(crowd.Held, 1, kit.Patience)[0]
}

// crowd starts a process beside the load.
func (r *run) crowd(p crowd.Plan) *crowd.Crowd {
	r.Helper()
	p.Addr = r.server.Addr()
	return crowd.Start(r, p)
}

func TestC1AHolderIsKilled(t *testing.T) {
	r := begin(t, "C1")
	waiter := fairlock.New(r.dial(), "victim")
	spans := make([]span, either(3, 15))
	for i := range spans {
		victim, held := r.keeper("victim", time.Second)
		next := queued(t, waiter, 1)
		victim.Kill()
		until := r.until("victim")
		l := next.Value(t)
		spans[i] = span{time.UnixMicro(until), time.Now()}
		require.Greater(t, l.Token(), held.Token)
		require.Positive(t, spans[i].took(), "before the lease of the dead holder was over")
		kit.Release(t, l)
	}
	r.measured(deadHolder, spans)
	r.load[0].kill()
	r.everybody()
	r.finish()
}

// The resource has two counters. One refuses tokens below the highest it has seen; the other shows that this is
// needed.
func TestC2AHolderIsPausedPastItsLease(t *testing.T) {
	t.Parallel()
	r := begin(t, "C2", func(o *options) { o.outcomes = []string{"expired"} })
	const lasts = time.Second
	m := fairlock.New(r.dial(), "fenced")
	res := newResource(r)
	for i := range either(2, 10) {
		p := r.load[1].plan
		p.Role, p.Lease, p.Names = careless, lasts, []string{"fenced"}
		a := newProcess(t, p)
		began := a.await(t, "K")
		next := queued(t, m, 1)
		a.signal(t, syscall.SIGSTOP)
		r.load[0].signal(t, syscall.SIGSTOP) // Whatever its workers hold or wait for.
		l := next.Value(t)
		res.add(t, l.Token())
		r.everyoneBut(0)
		<-time.After(time.Until(began.Add(2 * lasts)))
		a.signal(t, syscall.SIGCONT)
		r.load[0].signal(t, syscall.SIGCONT)
		f := a.words(t, "W")
		require.Equal(t, []string{"lost", "0", "1", "expired"}, f,
			"at its first look it saw the loss, the guard refused its write, without a guard it was lost, and its release said so")
		require.NoError(t, l.Context().Err(), "the release of a hold that was over has freed another")
		info, err := m.Inspect(t.Context())
		require.NoError(t, err)
		require.Equal(t, l.Token(), info.Token)
		kit.Release(t, l)
		guarded, open := res.read(t)
		require.Equal(t, i+1, guarded, "an update is lost though the token was checked")
		require.Equal(t, 1, open, "without the check nothing was lost: the case has no teeth")
		res.reset(t, guarded)
		a.kill()
		r.everybody()
	}
	r.finish()
}

// everyoneBut waits until all workers but those of one process, which is stopped, have held once more.
func (r *run) everyoneBut(which int) {
	r.Helper()
	var others load
	for i, c := range r.load {
		if i != which {
			others = append(others, c)
		}
	}
	others.allIn(r, evidence.Now(), back)
}

// The lease is the default: with one processor and goroutines that do not give way, Go's scheduler needs up to a
// second for a round trip, and nothing can be promised for a lease of two. That a holder is told can.
func TestC3TheRenewalsOf200HoldsAreStarved(t *testing.T) {
	t.Parallel()
	r := begin(t, "C3")
	const holds, lasts = 200, lease.DefaultLease
	p := kit.Proxy(t, r.server)
	a := newProcess(t, plan{
		Role: starved, Addrs: []string{p.Addr()}, Names: []string{"starved"}, Clients: holds, Lease: lasts,
	})
	a.await(t, "K")
	nameOf := func(i int) string { return fmt.Sprintf("starved:%d", i) }
	first := make([]int64, holds)
	for i := range first {
		first[i] = r.until(nameOf(i))
	}
	for i := range first { // Long after the lease that it began with each is still held.
		kit.Eventually(t, "renewals of all", func() bool {
			told, _ := a.told()
			require.Empty(t, told, "lost for want of a renewal")
			return r.until(nameOf(i)) > first[i]+lasts.Microseconds()
		})
	}
	told, _ := a.told()
	require.Empty(t, told, "lost for want of a renewal")

	p.Drop()
	kit.Eventually(t, "all holders to be told", func() bool {
		told, _ = a.told()
		return len(told) == holds
	})
	for _, h := range told {
		var i int
		_, err := fmt.Sscanf(h.name, "starved:%d", &i)
		require.NoError(t, err)
		end := mono(r.until(h.name))
		require.LessOrEqual(t, h.to, end, "%s was certain after the end of its lease", h.name)
	}
	a.kill()
	r.everybody()
	r.finish()
}

func TestC4WorkThatEndsWithoutARelease(t *testing.T) {
	t.Parallel()
	r := begin(t, "C4")
	client, next := r.dial(), fairlock.New(r.dial(), "left")
	m := fairlock.New(client, "left")
	require.PanicsWithValue(t, "the work", func() {
		_ = m.Do(t.Context(), func(context.Context) error { panic("the work") })
	})
	l, err := next.TryLock(t.Context())
	require.NoError(t, err, "Do has not released what a panic left")
	kit.Release(t, l)

	// A handle that is forgotten is renewed for as long as its client lives, unless a maximum was set.
	w := watched(granted(t, fairlock.New(client, "left", headwaiter.WithLease(time.Second), headwaiter.WithMaxHold(3*time.Second))))
	c := queued(t, next, 1)
	began := time.Now()
	kit.Release(t, c.Value(t))
	require.Less(t, time.Since(began), 5*time.Second)
	require.ErrorIs(t, context.Cause(w.lease.Context()), lease.ErrMaxHold)
	w.done.Wait()

	granted(t, m)
	c = queued(t, next, 1)
	require.NoError(t, client.Close(t.Context()))
	kit.Release(t, c.Value(t))
	r.everybody()
	r.finish()
}

func TestC13AReleaseThatIsNotDueChangesNothing(t *testing.T) {
	t.Parallel()
	r := begin(t, "C13")
	p := kit.Proxy(t, r.server)
	m, other := fairlock.New(r.dial(kit.Through(p)), "once", headwaiter.WithLease(time.Second)), fairlock.New(r.dial(), "once")
	twice := granted(t, m)
	kit.Release(t, twice)
	l := granted(t, other)
	require.ErrorIs(t, twice.Release(t.Context()), lease.ErrReleased)
	require.NotErrorIs(t, twice.Release(t.Context()), lease.ErrLost)
	kit.Release(t, l)

	w := watched(granted(t, m))
	next := queued(t, other, 1)
	p.Drop()
	until := r.until("once")
	require.ErrorIs(t, w.told(t, until), lease.ErrExpired)
	l = next.Value(t)
	p.Heal()
	err := w.lease.Release(t.Context())
	require.ErrorIs(t, err, lease.ErrLost)
	require.False(t, errors.Is(err, lease.ErrReleased))
	require.NoError(t, l.Context().Err())
	// The end of the lost hold reaches the server before what its client asks now.
	_, err = m.TryLock(t.Context())
	require.ErrorIs(t, err, lease.ErrBusy)
	info, err := other.Inspect(t.Context())
	require.NoError(t, err)
	require.True(t, info.Held)
	require.Equal(t, l.Token(), info.Token)
	kit.Release(t, l)
	r.everybody()
	r.finish()
}
