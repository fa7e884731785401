package waitqueue_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
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
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/observe"
	"github.com/headwaiter/headwaiter/reentrant"
)

// A process that was stopped past its lease must see that at its first look, before its timers have run.
func TestTheContextOfDoLooksAtTheClock(t *testing.T) {
	for name, look := range map[string]func(context.Context) bool{
		"Err":   func(ctx context.Context) bool { return ctx.Err() != nil },
		"Cause": func(ctx context.Context) bool { return errors.Is(context.Cause(ctx), lease.ErrExpired) },
		"Done": func(ctx context.Context) bool {
			select {
			case <-ctx.Done():
				return true
			default:
				return false
			}
		},
		"a new child": func(ctx context.Context) bool {
			child, cancel := context.WithCancel(ctx)
			defer cancel()
			return child.Err() != nil
		},
		"a Value": func(ctx context.Context) bool {
			child, cancel := context.WithCancel(ctx)
			defer cancel()
			_ = ctx.Value(name(0))
			return child.Err() != nil
		},
	} {
		kit.BubbleOf(t, name, func(t *testing.T, s *redistest.Embedded) {
			var late kit.Stall
			c := kit.Dial(t, s, late.Option)
			m := fairlock.New(c, kit.Name(t), headwaiter.WithLease(2*time.Second))
			inner := fairlock.New(c, kit.Name(t)+":inner", headwaiter.WithLease(time.Minute))
			err := m.Do(t.Context(), func(outer context.Context) error {
				err := inner.Do(outer, func(ctx context.Context) error {
					late.Begin(t, c)
					synctime.Pass(3 * time.Second)
					require.True(t, look(ctx), "of the outer of two holds")
					require.ErrorIs(t, context.Cause(ctx), lease.ErrExpired)
					return nil
				})
				require.True(t, look(outer))
				return err
			})
			require.ErrorIs(t, err, lease.ErrExpired)
			late.End(t)
		})
	}
}

type name int

func TestALossSaysOnceAndInOneLineWhichLockAndWhy(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		m := fairlock.New(kit.Dial(t, s), "orders:42")
		var cause error
		err := m.Do(t.Context(), func(ctx context.Context) error {
			s.Kill()
			kit.Await(t, ctx.Done(), "the hold to end")
			cause = context.Cause(ctx)
			return fmt.Errorf("step 3: %w", cause)
		})
		require.ErrorIs(t, err, lease.ErrExpired)
		require.Equal(t, "step 3: "+cause.Error(), err.Error())
		require.Regexp(t, `^lease lost: orders:42: no renewal was answered for 10s: \S`, cause.Error())
		require.NotContains(t, err.Error(), "\n")
		require.Equal(t, 1, strings.Count(err.Error(), "orders:42"))

		s.Restart()
		mine := errors.New("mine")
		err = m.Do(t.Context(), func(context.Context) error {
			require.NoError(t, kit.Err(m.ForceRelease(t.Context(), 0)))
			return mine
		})
		kit.Fails(t, err, mine, lease.ErrForced)
		require.Contains(t, err.Error(), "lease lost: orders:42: released elsewhere by force")
	})
}

// A replica that runs knows of a hold before anybody could look, whether a call waits for it or not. One that is stopped
// does not, until it goes on.
func TestACallReturnsWhenTheReplicasKnowOfItsHold(t *testing.T) {
	t.Parallel()
	const replicas = 2
	set := redistest.Replicated(t, replicas)
	for name, call := range map[string]func(m *fairlock.Mutex, stop func()) *kit.Call[*lease.Lease]{
		"asked": func(m *fairlock.Mutex, stop func()) *kit.Call[*lease.Lease] {
			stop()
			return kit.Lock(t.Context(), m.Lock)
		},
		"tried": func(m *fairlock.Mutex, stop func()) *kit.Call[*lease.Lease] {
			stop()
			return kit.Lock(t.Context(), m.TryLock)
		},
		"granted by message": func(m *fairlock.Mutex, stop func()) *kit.Call[*lease.Lease] {
			other := fairlock.New(kit.Dial(t, set.Master()), m.Name())
			held := kit.Got(other.Lock(t.Context()))(t)
			waits := kit.Joins(t, 1, m.Lock, other.Inspect)
			stop()
			kit.Release(t, held)
			return waits
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := fairlock.New(kit.Dial(t, set.Master()), kit.Name(t), headwaiter.WithLease(10*kit.Patience),
				headwaiter.WithReplicas(replicas, kit.Patience))
			last := set.Replicas()[replicas-1]
			got := call(m, last.Stop)
			kit.Eventually(t, "the master to wait for its replicas", func() bool {
				require.False(t, got.Returned(), "a replica knows nothing of the hold")
				_, rest, _ := strings.Cut(set.Text("INFO", "clients"), "blocked_clients:")
				n, _, _ := strings.Cut(rest, "\r\n")
				return kit.Got(strconv.Atoi(n))(t) == 1
			})
			require.False(t, got.Returned())
			last.Cont()
			l := got.Value(t)
			for _, replica := range set.Replicas() {
				require.Equal(t, strconv.FormatUint(l.Token(), 10), replica.Text("HGET", lua.Fairlock.Keys("headwaiter", m.Name()).Lock, "token"))
			}
			kit.Release(t, l)
		})
	}
}

// named calls a client worker.
func named(o *headwaiter.Options) { o.Name = "worker" }

func TestEachRequestIsToldWithItsServerAndItsTime(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		r, d := &kit.Requests{}, faults.NewDialer(t, s.Dial)
		m := fairlock.New(kit.Dial(t, s, named, kit.Observed(observe.Observers(&kit.Observer{}, r)), kit.Over(d)), kit.Name(t))
		hold := func() {
			l := kit.Got(m.Lock(t.Context()))(t)
			synctime.Pass(4 * time.Second) // One renewal.
			kit.Release(t, l)
		}
		hold() // The server knows the scripts from now on.
		before := len(r.Made())
		d.Delay(7*time.Millisecond, faults.ToServer)
		hold()
		synctime.Pass(time.Second) // Nothing follows the release.
		made := r.Made()[before:]
		require.Len(t, made, 3)
		for _, x := range made {
			require.Equal(t, observe.Request{Engine: "redis", Client: "worker", Server: s.Option().InitAddress[0], Took: x.Took}, x)
			require.InDelta(t, 7*time.Millisecond, x.Took, float64(time.Millisecond))
		}
	})
}

func TestWhatIsRefusedIsAnsweredUnlessTheServerDoesNotServe(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		r := &kit.Requests{}
		m := fairlock.New(kit.Dial(t, s, kit.Observed(r)), kit.Name(t))
		t.Cleanup(func() { s.Fail("") })
		for refusal, up := range map[string]bool{
			"NOPERM this user has no permissions": true, "OOM command not allowed": true,
			"LOADING Redis is loading the dataset in memory": false, "MASTERDOWN Link with MASTER is down": false,
		} {
			s.Fail(refusal)
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			_, err := m.Lock(ctx)
			cancel()
			require.Error(t, err)
			require.Equal(t, up, r.Up(), refusal)
			s.Fail("")
			kit.Release(t, kit.Lock(t.Context(), m.Lock).Value(t))
			require.True(t, r.Up())
		}
	})
}

// A caller with little time says nothing of the server. The requests that it leaves under way do.
func TestAServerThatHangsIsToldOfThoughAllCallersAreInAHurry(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		r, d := &kit.Requests{}, faults.NewDialer(t, s.Dial)
		m := fairlock.New(kit.Dial(t, s, kit.Observed(r), kit.Over(d)), kit.Name(t))
		hurry := func() {
			require.ErrorIs(t, kit.Err(m.TryLock(kit.Within(t, 20*time.Millisecond))), context.DeadlineExceeded)
		}
		d.Freeze()
		hurry()
		require.True(t, r.Up(), "the caller gave up, not the server")
		begun := time.Now()
		for r.Up() {
			hurry()
			synctest.Wait()
		}
		require.Less(t, time.Since(begun), 5*time.Second)
		d.Heal()
		kit.Release(t, kit.Lock(t.Context(), m.Lock).Value(t))
		require.True(t, r.Up())
	})
}

func TestOfSeveralObserversThoseAreToldOfRequestsThatWantToKnow(t *testing.T) {
	one, other := &kit.Requests{}, &kit.Requests{}
	_, wants := observe.Observers(&kit.Observer{}, plain{one}).(observe.RequestObserver)
	require.False(t, wants, "nobody does, so nobody looks at the clock")
	all := observe.Observers(one, observe.Observers(plain{one}, other))
	_, traces := all.(observe.Tracer)
	require.True(t, traces)
	all.(observe.RequestObserver).ObserveRequest(observe.Request{Server: "a"})
	require.Len(t, one.Made(), 1)
	require.Len(t, other.Made(), 1)
}

// fragile is an observer that panics whatever it is told.
type fragile struct{ kit.Observer }

func (f *fragile) Observe(ctx context.Context, o observe.Observation) {
	f.Observer.Observe(ctx, o)
	panic("observer")
}

func (f *fragile) Wait(context.Context, observe.Observation) context.Context { panic("wait") }
func (f *fragile) Hold(context.Context, observe.Observation) context.Context { return nil }
func (f *fragile) Note(context.Context) string                               { panic("note") }

// pages is what a log is written to.
type pages struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (p *pages) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func TestAPanicOfTheObserverHarmsNoLockAndIsReportedOnce(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		var f fragile
		var written pages
		c := kit.Dial(t, s, kit.Observed(&f), func(o *headwaiter.Options) {
			o.HeldTooLong, o.Log = time.Second, slog.New(slog.NewTextHandler(&written, nil))
		})
		other := kit.Dial(t, s)
		m := fairlock.New(c, kit.Name(t), fairlock.WithCohort(2), headwaiter.WithLease(2*time.Second))
		for range 3 {
			held := kit.Got(m.Lock(t.Context()))(t)
			mate := kit.Lock(t.Context(), m.Lock)
			rival := kit.Joins(t, 1, fairlock.New(other, kit.Name(t)).Lock, m.Inspect)
			synctime.Pass(10 * time.Second)
			require.NoError(t, held.Context().Err(), "it is renewed")
			kit.PassOn(t, held, mate, rival)
		}
		re := reentrant.New(c, kit.Name(t)+":reentrant")
		outer := kit.Got(re.Lock(t.Context()))(t)
		inner := kit.Got(re.Lock(outer.Context()))(t)
		require.NoError(t, kit.Err(reentrant.New(other, re.Name()).ForceRelease(t.Context(), 0)))
		require.ErrorIs(t, kit.Lost(t, outer), lease.ErrForced)
		require.ErrorIs(t, inner.Release(t.Context()), lease.ErrForced)
		require.NoError(t, c.Shutdown(t.Context()))

		require.Len(t, f.Of(observe.Granted), 7, "it was told of each")
		require.Len(t, f.Of(observe.Released), 6)
		require.Len(t, f.Of(observe.Lost), 1)
		text := written.text.String()
		require.Equal(t, 1, strings.Count(text, "an observer panicked"), "of many")
		require.Contains(t, text, "panic=wait")
		require.Contains(t, text, "requests_test.go")
	})
}

// curious is a context whose methods ask the client for something.
type curious struct {
	context.Context
	ask func()
}

func (c curious) Err() error                  { c.ask(); return c.Context.Err() }
func (c curious) Done() <-chan struct{}       { c.ask(); return c.Context.Done() }
func (c curious) Value(key any) any           { c.ask(); return c.Context.Value(key) }
func (c curious) Deadline() (time.Time, bool) { c.ask(); return c.Context.Deadline() }

// Else the context of a caller could wait for itself.
func TestNoLockIsTakenWhileAContextIsAsked(t *testing.T) {
	kit.EachBehind(t, func(t *testing.T, s redistest.Backend, p *faults.Proxy) {
		c := kit.Dial(t, s, kit.Through(p))
		m := reentrant.New(c, kit.Name(t))
		lock := fairlock.New(c, kit.Name(t), fairlock.WithCohort(1))
		owner := reentrant.Owner(context.Background(), "somebody")
		outer, end := context.WithCancel(context.Background())
		ctx := curious{outer, func() {
			asked := make(chan struct{})
			go func() {
				defer close(asked)
				m.HoldCount(owner)
				c.Stats()
			}()
			select {
			case <-asked:
			case <-time.After(kit.Patience): // So that the test ends.
				t.Error("a lock is taken while a context is asked")
			}
		}}
		require.NoError(t, kit.Run(func() error {
			return m.Do(ctx, func(within context.Context) error {
				return m.Do(curious{within, ctx.ask}, func(within context.Context) error { return within.Err() })
			})
		}).Err(t))
		for range 2 {
			outer := kit.Lock(ctx, m.Lock).Value(t)
			inner := kit.Lock(curious{outer.Context(), ctx.ask}, m.Lock).Value(t)
			require.NoError(t, kit.Run(func() error { return outer.Release(ctx) }).Err(t))
			require.NoError(t, kit.Run(func() error { return inner.Release(ctx) }).Err(t))
			held, mate := kit.Lock(ctx, lock.Lock).Value(t), kit.Lock(ctx, lock.Lock)
			require.NoError(t, kit.Run(func() error { return held.Release(ctx) }).Err(t))
			require.NoError(t, kit.Run(func() error { return mate.Value(t).Release(ctx) }).Err(t))
		}
		p.LoseReplies(1, func(command []string) bool { return strings.HasPrefix(command[0], "EVAL") })
		again := kit.Lock(ctx, m.Lock).Value(t) // Whose call has noted why it had to ask again.
		require.NoError(t, kit.Run(func() error { return again.Release(ctx) }).Err(t))
		held := kit.Lock(ctx, lock.Lock).Value(t)
		end()
		p.Freeze(faults.ToClient) // Else the answer may be there first, and is told.
		require.ErrorIs(t, kit.Run(func() error { return held.Release(ctx) }).Err(t), lease.ErrUnconfirmed)
		p.Heal()
	})
}
