package fairlock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
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
	"github.com/headwaiter/headwaiter/observe"
)

// deaf sees to it that a client hears of no subscription, until it is told that a call failed.
type deaf struct {
	*kit.Observer
	dialer *faults.Dialer
}

func (o deaf) Observe(ctx context.Context, x observe.Observation) {
	o.Observer.Observe(ctx, x)
	if x.Moment == observe.Failed {
		o.dialer.LosePushes(0, nil)
		o.dialer.Cut()
		synctime.Pass(5 * time.Second) // Its check has found a place for what still waits.
	}
}

func TestNothingIsToldOfACallAfterItsEnd(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		d := faults.NewDialer(t, s.Dial)
		o := deaf{&kit.Observer{}, d}
		holder, client := dialMutex(t, s), kit.Dial(t, s, kit.Observed(o), kit.Over(d))
		l := hold(t, holder)
		d.LosePushes(1<<30, func(push []string) bool { return push[0] == "subscribe" })
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := fairlock.New(client, kit.Name(t)).Lock(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, []string{"asked, failed"}, o.Story())
		kit.Release(t, l)
	})
}

// grammar is how the story of a call can go.
const grammar = `^asked(, queued)?(, failed|, granted(, renewed|, renewal failed|, held for long)*, (released|lost))$`

func TestWhateverHappensTheStoryOfACallIsInOrder(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		const (
			clients = 3
			workers = 4
			cycles  = 25
		)
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		observers := make([]*kit.Observer, clients)
		var late [clients]atomic.Int64 // calls whose context had ended when they were made: they have no story
		var work sync.WaitGroup
		for i := range clients {
			observers[i] = &kit.Observer{}
			c := kit.Dial(t, s, kit.Observed(observers[i]), func(o *headwaiter.Options) { o.HeldTooLong = time.Millisecond })
			cohort := []fairlock.Option{fairlock.WithCohort(3 * i)} // The first has none.
			for j := range workers {
				random := rand.New(rand.NewPCG(seed, uint64(i*workers+j)))
				work.Go(func() { late[i].Add(disturbed(c, random, kit.Name(t), cycles, cohort...)) })
			}
		}
		kit.All(t, &work)
		for i, o := range observers {
			calls := map[int][]string{}
			for _, x := range o.All() {
				calls[x.Call] = append(calls[x.Call], x.Moment.String())
			}
			delete(calls, 0)
			require.Len(t, calls, workers*cycles-int(late[i].Load()))
			for _, moments := range calls {
				require.Regexp(t, grammar, strings.Join(moments, ", "))
			}
		}
	})
}

// disturbed takes and releases a lock while calls are given up and holds are released by force. It returns how many of
// its calls had a context that had ended already.
func disturbed(c *headwaiter.Client, random *rand.Rand, name string, cycles int, opts ...fairlock.Option) (late int64) {
	m := fairlock.New(c, name, append(opts, headwaiter.WithLease(time.Second))...)
	for range cycles {
		ctx, cancel := context.WithTimeout(context.Background(), kit.Patience)
		if random.IntN(3) == 0 {
			cancel()
			ctx, cancel = context.WithTimeout(context.Background(), time.Duration(1+random.IntN(5000))*time.Microsecond)
		}
		lock := m.Lock
		if random.IntN(4) == 0 {
			lock = m.TryLock
		}
		l, err := lock(ctx)
		cancel()
		if err != nil {
			var ended *lease.WaitError
			if errors.As(err, &ended) && ended.Waited == 0 {
				late++
			}
			continue
		}
		if random.IntN(6) == 0 {
			_, _ = m.ForceRelease(context.Background(), l.Token())
		}
		_ = l.Release(context.Background()) // It may be lost.
	}
	return late
}

func TestWhatACohortPassesOnIsToldAsHoldsOfTheirOwn(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		o := &kit.Observer{}
		m := fairlock.New(kit.Dial(t, s, kit.Observed(o)), kit.Name(t), fairlock.WithCohort(5))
		l := hold(t, m)
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		calls := []*call{begin(t.Context(), m)}
		synctest.Wait()
		gone := begin(ctx, m)
		synctest.Wait()
		calls = append(calls, begin(t.Context(), m))
		synctime.Pass(time.Second)
		require.ErrorIs(t, gone.Err(t), context.DeadlineExceeded)
		for _, c := range calls {
			kit.Release(t, l)
			l = c.Value(t)
			require.Equal(t, l.Token(), o.Of(observe.Granted)[len(o.Of(observe.Granted))-1].Token)
			synctime.Pass(time.Second)
		}
		kit.Release(t, l)
		require.Equal(t, []string{
			"asked, granted, released", "asked, granted, released", "asked, failed", "asked, granted, released",
		}, slices.DeleteFunc(o.Story(), func(s string) bool { return s == "woken" }))
		for i, x := range o.Of(observe.Granted) {
			require.InDelta(t, time.Duration(i)*time.Second, x.Waited, float64(50*time.Millisecond))
			require.Equal(t, []string{"", "1", "2"}[i], x.Note, "of the hold before")
		}
		for _, x := range o.Of(observe.Released) {
			require.InDelta(t, time.Second, x.Held, float64(50*time.Millisecond))
		}
	})
}

func TestAHoldThatWasPassedOnAndLastsTooLongIsToldInTime(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		o := &kit.Observer{}
		c := kit.Dial(t, s, kit.Observed(o), func(o *headwaiter.Options) { o.HeldTooLong = time.Second })
		m := fairlock.New(c, kit.Name(t), fairlock.WithCohort(5))
		l := hold(t, m)
		next := begin(t.Context(), m)
		synctime.Pass(1500 * time.Millisecond)
		kit.Release(t, l)
		l = next.Value(t)
		synctime.Pass(1500 * time.Millisecond) // Less than until the next renewal.
		kit.Release(t, l)
		long := o.Of(observe.HeldLong)
		require.Len(t, long, 2)
		for i, x := range long {
			require.InDelta(t, time.Second, x.Held, float64(50*time.Millisecond))
			require.Equal(t, o.Of(observe.Granted)[i].Token, x.Token)
		}
	})
}
