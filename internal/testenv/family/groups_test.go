package family

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/barrier"
	"github.com/headwaiter/headwaiter/countdown"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/observe"
	"github.com/headwaiter/headwaiter/rwlock"
	"github.com/headwaiter/headwaiter/semaphore"
)

// What many calls cost that are served together.

// clients are n clients of a server.
func clients(t *testing.T, s *redistest.Embedded, n int, changes ...func(*headwaiter.Options)) []*headwaiter.Client {
	all := make([]*headwaiter.Client, n)
	for i := range all {
		all[i] = kit.Dial(t, s, changes...)
	}
	return all
}

// A release lets all in that fit, in its own script, with one message to each of their clients.
func TestAReleaseLetsAllInThatFitByOneScriptAndOneMessageAClient(t *testing.T) {
	const n, each = 4, 6
	type look = func(context.Context) (lease.Info, error)
	for name, x := range map[string]struct {
		of       func(c *headwaiter.Client) (all, some locking, inspect look)
		together bool // by one token
	}{
		"permits": {of: func(c *headwaiter.Client) (all, some locking, inspect look) {
			s := semaphore.New(c, "name", 2*n*each)
			return func(ctx context.Context) (*lease.Lease, error) { return s.Acquire(ctx, 2*n*each) },
				func(ctx context.Context) (*lease.Lease, error) { return s.Acquire(ctx, 2) }, s.Inspect
		}},
		"readers": {together: true, of: func(c *headwaiter.Client) (all, some locking, inspect look) {
			m := rwlock.New(c, "name")
			return m.Lock, m.RLock, m.Inspect
		}},
	} {
		kit.BubbleOf(t, name, func(t *testing.T, s *redistest.Embedded) {
			first, others := kit.Dial(t, s), clients(t, s, n)
			all, _, inspect := x.of(first)
			kit.Release(t, kit.Lock(t.Context(), all).Value(t)) // The server learns the scripts.
			l := kit.Lock(t.Context(), all).Value(t)
			for range 2 { // The first time the clients subscribe.
				var calls []*kit.Call[*lease.Lease]
				for i := range n * each {
					_, some, _ := x.of(others[i%n])
					calls = append(calls, kit.Joins(t, i+1, some, inspect))
				}
				last := kit.Joins(t, n*each+1, all, inspect)
				synctest.Wait() // Nothing is under way.
				looks, messages := kit.Spent(first, others)
				s.ResetStats()
				kit.Release(t, l)
				var held []*lease.Lease
				for i, c := range calls {
					held = append(held, c.Value(t))
					if x.together {
						require.Equal(t, held[0].Token(), held[i].Token())
					} else if i > 0 {
						require.Greater(t, held[i].Token(), held[i-1].Token())
					}
				}
				synctest.Wait()
				got := kit.Scripts(s)
				later, heard := kit.Spent(first, others)
				require.LessOrEqual(t, got["evalsha"], 1+int64(later-looks), "the release alone, and looks: %v", got)
				require.EqualValues(t, n, got["publish"])
				require.EqualValues(t, n, heard-messages)
				kit.Release(t, held...)
				l = last.Value(t)
			}
			kit.Release(t, l)
		})
	}
}

// All who wait for one event ask once, and hear of it by one message to each of their clients.
func TestManyWhoWaitForOneEventAreOneMessageAClient(t *testing.T) {
	const n, waits = 3, 30
	await := func(ctx context.Context, c *headwaiter.Client) error {
		return kit.Err(barrier.New(c, "name", waits+1).Await(ctx))
	}
	for name, x := range map[string]struct {
		begin      func(t *testing.T, c *headwaiter.Client) // of a round
		wait, fire func(ctx context.Context, c *headwaiter.Client) error
	}{
		"latch": {
			func(t *testing.T, c *headwaiter.Client) { sets(t, countdown.New(c, "name"), 1) },
			func(ctx context.Context, c *headwaiter.Client) error { return countdown.New(c, "name").Wait(ctx) },
			func(ctx context.Context, c *headwaiter.Client) error {
				return kit.Err(countdown.New(c, "name").CountDown(ctx))
			},
		},
		"barrier": {func(*testing.T, *headwaiter.Client) {}, await, await},
	} {
		kit.BubbleOf(t, name, func(t *testing.T, s *redistest.Embedded) {
			told := &kit.Observer{}
			first, all := kit.Dial(t, s), clients(t, s, n, kit.Observed(told))
			for round := range 6 {
				x.begin(t, first)
				s.ResetStats()
				looks, messages := kit.Spent(first, all)
				calls := make([]*kit.Call[struct{}], waits)
				for i := range calls {
					calls[i] = kit.Run(func() error { return x.wait(t.Context(), all[i%n]) })
				}
				// A message that overtakes the answer to an ask is looked into: this is about those that do not.
				synctest.Wait()
				require.Len(t, told.Of(observe.Queued), (round+1)*waits)
				require.NoError(t, x.fire(t.Context(), first))
				for _, c := range calls {
					require.NoError(t, c.Err(t))
				}
				synctest.Wait()
				got := kit.Scripts(s)
				if round == 0 { // The server learns the scripts.
					require.EqualValues(t, n, got["subscribe"])
					continue
				}
				later, heard := kit.Spent(first, all)
				looked := int64(later - looks)
				require.LessOrEqual(t, looked, int64(2*n), "looks are for what goes wrong")
				require.Equal(t, waits+1+looked, got["evalsha"])
				require.LessOrEqual(t, got["eval"], looked, "only the script of a look may be new to the server")
				require.LessOrEqual(t, got["pubsub|numsub"], waits+looked, "each ask and each look counts the subscribers")
				require.EqualValues(t, 1, got["publish"])
				require.EqualValues(t, n, heard-messages)
			}
		})
	}
}
