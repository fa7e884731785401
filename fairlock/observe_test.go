package fairlock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
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
	"github.com/headwaiter/headwaiter/observe"
)

func TestTheObserverIsToldOfACallThatNeedNotWait(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		type key struct{}
		o := &kit.Observer{}
		m := fairlock.New(kit.Dial(t, s, kit.Observed(o)), kit.Name(t))
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "the caller's"))
		l := kit.Got(m.Lock(ctx))(t)
		cancel()
		require.Equal(t, 1, o.Holder(l.Context()), "the context of the lease has what the tracer put there")
		synctime.Pass(time.Second)
		kit.Release(t, l)

		all := o.All()
		require.Equal(t, []string{"began, granted, released"}, o.Story())
		for _, x := range all {
			require.Equal(t, "lock", x.Kind)
			require.Equal(t, kit.Name(t), x.Name)
			require.Equal(t, all[0].Ticket, x.Ticket)
			require.Equal(t, "the caller's", x.Ctx.Value(key{}))
			require.NoError(t, x.Ctx.Err(), "its end is not the call's")
		}
		require.NotEmpty(t, all[0].Ticket)
		require.Equal(t, l.Token(), all[1].Token)
		require.Empty(t, all[1].Note)
		require.Less(t, all[1].Waited, time.Second)
		require.Equal(t, l.Token(), all[2].Token)
		require.InDelta(t, time.Second, all[2].Held, float64(10*time.Millisecond))
		require.NoError(t, all[2].Err)
	})
}

func TestTheObserverIsToldOfPlacesAndHandOffs(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		first, second := &kit.Observer{}, &kit.Observer{}
		holder := fairlock.New(kit.Dial(t, s, kit.Observed(first)), kit.Name(t))
		waiter := fairlock.New(kit.Dial(t, s, kit.Observed(second)), kit.Name(t))
		l := hold(t, holder)
		calls := []*call{begin(t.Context(), waiter)}
		synctest.Wait()
		calls = append(calls, begin(t.Context(), waiter))
		synctime.Pass(time.Second)
		l = kit.Next(t, l, calls[0])
		kit.PassOn(t, l, calls[1])

		require.Equal(t, []string{"began, granted, released", "handed off"}, first.Story())
		require.Equal(t, []string{
			"began, queued, granted, released", "began, queued, granted, released", "woken",
		}, second.Story(), "the second grant comes in the reply to the own release: no message, no hand-off")
		for i, x := range second.Of(observe.Queued) {
			require.Equal(t, 1+i, x.Place)
			require.Equal(t, 1+i, x.Waiting)
		}
		grants := second.Of(observe.Granted)
		require.Equal(t, "1", grants[0].Note, "the number of the call of the first client")
		require.Equal(t, "1", grants[1].Note, "and of the own one")
		require.InDelta(t, time.Second, grants[0].Waited, float64(10*time.Millisecond))
		require.Greater(t, grants[1].Token, grants[0].Token)
		woken := second.Of(observe.Woken)
		require.Len(t, woken, 1)
		require.Equal(t, 1, woken[0].Count)
		require.Equal(t, kit.Name(t), woken[0].Name)
		require.Len(t, first.Of(observe.HandedOff), 1)
	})
}

func TestANoteThatCannotStandInAMessageIsLeftOut(t *testing.T) {
	long := strings.Repeat("x", observe.MaxNote)
	for note, carried := range map[string]string{
		"": "", "~!": "~!", long: long, long + "x": "", "two words": "", "line\n": "", "\x7f": "", "ümlaut": "", " ~x": "",
	} {
		kit.BubbleOf(t, fmt.Sprintf("%.9q", note), func(t *testing.T, s *redistest.Embedded) {
			from := &kit.Observer{Carry: func() string { return note }}
			to, c := &kit.Observer{}, kit.Dial(t, s, kit.Observed(from))
			holder, waiter := fairlock.New(c, "name"), fairlock.New(kit.Dial(t, s, kit.Observed(to)), "name")
			l := hold(t, holder)
			own, others := joins(t, 1, holder, holder), joins(t, 2, waiter, holder)
			kit.PassOn(t, l, own, others)
			require.Equal(t, carried, from.Of(observe.Granted)[1].Note, "in a reply")
			require.Equal(t, carried, to.Of(observe.Granted)[0].Note, "in a message")
		})
	}
}

// A note goes through real servers' scripts, and through the end that is sent in the background too.
func TestANoteReachesTheNextHolder(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		from := &kit.Observer{Carry: func() string { return "00-a~b-01" }}
		to := &kit.Observer{}
		holder := fairlock.New(kit.Dial(t, s, kit.Observed(from)), kit.Name(t))
		waiter := fairlock.New(kit.Dial(t, s, kit.Observed(to)), kit.Name(t))
		for _, ctx := range []context.Context{context.Background(), ended} {
			noted := func() int { return len(notes(to)) }
			before := noted()
			// A look of the waiter may be faster than the message, and has no note.
			kit.Eventually(t, "a grant with a note", func() bool {
				l, c := hold(t, holder), joins(t, 1, waiter, holder)
				_ = l.Release(ctx)
				kit.Release(t, c.Value(t))
				return noted() > before
			})
		}
		for _, note := range notes(to) {
			require.Equal(t, "00-a~b-01", note)
		}
	})
}

func TestTheReplyToAnEndInTheBackgroundHasTheNoteToo(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		o, d := &kit.Observer{}, faults.NewDialer(t, s.Dial)
		m := fairlock.New(kit.Dial(t, s, kit.Observed(o), kit.Over(d)), kit.Name(t))
		l := hold(t, m)
		next := begin(t.Context(), m)
		synctest.Wait()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		d.Freeze(faults.ToClient) // Else the answer may be there first, and is told.
		require.ErrorIs(t, l.Release(ended), lease.ErrUnconfirmed)
		d.Heal()
		kit.Release(t, next.Value(t))
		require.Equal(t, "1", o.Of(observe.Granted)[1].Note)
	})
}

// notes are those of the grants that had one.
func notes(o *kit.Observer) (all []string) {
	for _, x := range o.Of(observe.Granted) {
		if x.Note != "" {
			all = append(all, x.Note)
		}
	}
	return all
}

func TestTheObserverIsToldWhyACallFailed(t *testing.T) {
	why := errors.New("no more")
	for name, x := range map[string]struct {
		call  func(ctx context.Context, c *headwaiter.Client, m *fairlock.Mutex) error
		wraps error
		story string
	}{
		"busy": {func(ctx context.Context, _ *headwaiter.Client, m *fairlock.Mutex) error {
			return kit.Err(m.TryLock(ctx))
		}, lease.ErrBusy, "began, failed"},
		"time-out": {func(ctx context.Context, _ *headwaiter.Client, m *fairlock.Mutex) error {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			return kit.Err(m.Lock(ctx))
		}, context.DeadlineExceeded, "began, queued, failed"},
		"cancelled": {func(ctx context.Context, _ *headwaiter.Client, m *fairlock.Mutex) error {
			ctx, cancel := context.WithCancelCause(ctx)
			time.AfterFunc(time.Second, func() { cancel(why) })
			return kit.Err(m.Lock(ctx))
		}, why, "began, queued, failed"},
		"closed": {func(ctx context.Context, c *headwaiter.Client, m *fairlock.Mutex) error {
			time.AfterFunc(time.Second, func() { _ = c.Shutdown(context.Background()) })
			return kit.Err(m.Lock(ctx))
		}, lease.ErrClosed, "began, queued, failed"},
	} {
		kit.BubbleOf(t, name, func(t *testing.T, s *redistest.Embedded) {
			l, o := hold(t, dialMutex(t, s)), &kit.Observer{}
			c := kit.Dial(t, s, kit.Observed(o))
			begun := time.Now()
			err := x.call(t.Context(), c, fairlock.New(c, kit.Name(t)))
			took := time.Since(begun)
			require.ErrorIs(t, err, x.wraps)
			synctest.Wait()
			require.Equal(t, []string{x.story}, o.Story())
			failed := o.Of(observe.Failed)
			require.Len(t, failed, 1)
			require.ErrorIs(t, failed[0].Err, x.wraps)
			require.InDelta(t, took, failed[0].Waited, float64(10*time.Millisecond))
			kit.Release(t, l)
		})
	}
}

func TestNothingIsToldOfACallThatNeverAsks(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		o := &kit.Observer{}
		c := kit.Dial(t, s, kit.Observed(o))
		require.ErrorIs(t, kit.Err(fairlock.New(c, "").Lock(t.Context())), lease.ErrInvalid)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, kit.Err(fairlock.New(c, kit.Name(t)).Lock(ended)), context.Canceled)
		require.NoError(t, c.Shutdown(t.Context()))
		require.ErrorIs(t, kit.Err(fairlock.New(c, kit.Name(t)).Lock(t.Context())), lease.ErrClosed)
		require.Empty(t, o.All())
	})
}

func TestTheObserverIsToldOfRenewalsAndOfTheLastOnes(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		o, d := &kit.Observer{}, faults.NewDialer(t, s.Dial)
		m := fairlock.New(kit.Dial(t, s, kit.Observed(o), kit.Over(d)), kit.Name(t), headwaiter.WithLease(3*time.Second))
		l := hold(t, m)
		synctime.Pass(3500 * time.Millisecond)
		renewed := o.Of(observe.Renewed)
		require.Len(t, renewed, 3)
		for _, x := range renewed {
			require.InDelta(t, 2*time.Second, x.Margin, float64(100*time.Millisecond), "due at a third")
			require.Equal(t, 3*time.Second, x.Lease)
			require.Equal(t, l.Token(), x.Token)
		}
		d.Away()
		require.ErrorIs(t, kit.Lost(t, l), lease.ErrExpired)
		require.ErrorIs(t, l.Release(context.Background()), lease.ErrExpired)
		failed := o.Of(observe.RenewalFailed)
		require.Greater(t, len(failed), 2)
		for i, x := range failed {
			require.Error(t, x.Err)
			require.Equal(t, 3*time.Second, x.Lease)
			if i > 0 {
				require.Less(t, x.Margin, failed[i-1].Margin)
			}
		}
		require.Equal(t, []string{"began, granted, renewed, renewal failed, lost"}, o.Story(), "and nothing after that")
		gone := o.Of(observe.Lost)[0]
		require.ErrorIs(t, gone.Err, lease.ErrExpired)
		require.Equal(t, l.Token(), gone.Token)
		require.InDelta(t, 6*time.Second, gone.Held, float64(200*time.Millisecond))
	})
}

func TestTheObserverIsToldOnceWhyAHoldIsLost(t *testing.T) {
	for name, x := range map[string]struct {
		lose  func(t *testing.T, s *redistest.Embedded, c *headwaiter.Client)
		cause error
	}{
		"forced": {func(t *testing.T, s *redistest.Embedded, _ *headwaiter.Client) {
			require.NoError(t, kit.Err(dialMutex(t, s).ForceRelease(t.Context(), 0)))
		}, lease.ErrForced},
		"forgotten": {func(_ *testing.T, s *redistest.Embedded, _ *headwaiter.Client) { s.Do("FLUSHALL") }, lease.ErrForgotten},
		"max hold":  {func(*testing.T, *redistest.Embedded, *headwaiter.Client) {}, lease.ErrMaxHold},
		"closed": {func(t *testing.T, _ *redistest.Embedded, c *headwaiter.Client) {
			require.NoError(t, c.Shutdown(context.Background()))
		}, lease.ErrClientClosed},
	} {
		kit.BubbleOf(t, name, func(t *testing.T, s *redistest.Embedded) {
			o := &kit.Observer{}
			c := kit.Dial(t, s, kit.Observed(o))
			l := hold(t, fairlock.New(c, kit.Name(t), headwaiter.WithMaxHold(20*time.Second)))
			x.lose(t, s, c)
			require.ErrorIs(t, kit.Lost(t, l), x.cause)
			require.ErrorIs(t, l.Release(context.Background()), x.cause)
			found := o.Of(observe.Lost, observe.Released)
			require.Len(t, found, 1)
			require.Equal(t, observe.Lost, found[0].Event)
			require.ErrorIs(t, found[0].Err, x.cause)
			require.Equal(t, l.Token(), found[0].Token)
		})
	}
}

// The release is the first to hear that the server has forgotten the hold, or released it by force.
func TestALossThatTheReleaseFindsIsToldAsOne(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		o := &kit.Observer{}
		l := hold(t, fairlock.New(kit.Dial(t, s, kit.Observed(o)), kit.Name(t)))
		lock, _, _ := keysOf(kit.Name(t))
		s.Do("DEL", lock)
		require.ErrorIs(t, l.Release(t.Context()), lease.ErrForgotten)
		require.Equal(t, []string{"began, granted, lost"}, o.Story())
		require.ErrorIs(t, o.Of(observe.Lost)[0].Err, lease.ErrForgotten)
	})
}

func TestAReleaseThatDidNotGoWellSaysSo(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		o, d := &kit.Observer{}, faults.NewDialer(t, s.Dial)
		l := hold(t, fairlock.New(kit.Dial(t, s, kit.Observed(o), kit.Over(d)), kit.Name(t)))
		d.Away()
		require.ErrorIs(t, l.Release(kit.Within(t, time.Second)), lease.ErrUnconfirmed)
		released := o.Of(observe.Released)
		require.Len(t, released, 1)
		require.ErrorIs(t, released[0].Err, lease.ErrUnconfirmed)
		require.Less(t, released[0].Held, 100*time.Millisecond, "the hold ended when its release began")
		d.Heal()
	})
}

func TestAHoldThatLastsTooLongIsTold(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		o := &kit.Observer{}
		m := fairlock.New(kit.Dial(t, s, kit.Observed(o), func(o *headwaiter.Options) { o.HeldTooLong = 45 * time.Second }), kit.Name(t))
		l := hold(t, m)
		synctime.Pass(44 * time.Second)
		kit.Release(t, l)
		l = hold(t, m)
		begun := time.Now()
		synctime.Pass(44 * time.Second)
		require.Empty(t, o.Of(observe.HeldLong))
		synctime.Pass(40 * time.Second)
		kit.Release(t, l)
		long := o.Of(observe.HeldLong)
		require.Len(t, long, 1)
		require.Equal(t, l.Token(), long[0].Token)
		require.InDelta(t, 45*time.Second, long[0].Held, float64(50*time.Millisecond), "since %v", begun)
		require.Equal(t, fmt.Sprintf("test@%s#%d", kit.Got(os.Hostname())(t), os.Getpid()), long[0].Who)
	})
}

// A wait and a hold that last are told of when they have lasted for too long, and whenever that has doubled.
func TestAWaitAndAHoldThatLastAreToldAgain(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		long := func(o *headwaiter.Options) { o.HeldTooLong, o.WaitedTooLong = 10*time.Second, 10*time.Second }
		holder, waiter := &kit.Observer{}, &kit.Observer{}
		l := hold(t, fairlock.New(kit.Dial(t, s, kit.Observed(holder), long), kit.Name(t)))
		m := fairlock.New(kit.Dial(t, s, kit.Observed(waiter), long), kit.Name(t))
		waits := begin(t.Context(), m)
		time.Sleep(75 * time.Second) // What the holder does.
		kit.PassOn(t, l, waits)
		told := func(o *kit.Observer, m observe.EventKind, lasted func(observe.Observation) time.Duration) {
			all := o.Of(m)
			require.Len(t, all, 3, "%v", m)
			for i, o := range all {
				require.Equal(t, i+1, o.Count)
				require.InDelta(t, 10*time.Second<<i, lasted(o.Observation), float64(time.Second), "%v", m)
			}
		}
		told(holder, observe.HeldLong, func(o observe.Observation) time.Duration { return o.Held })
		told(waiter, observe.WaitedLong, func(o observe.Observation) time.Duration { return o.Waited })
		require.Equal(t, 1, waiter.Of(observe.WaitedLong)[0].Place)
		require.Empty(t, waiter.Of(observe.HeldLong))
	})
}
