package fairlock_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// cuts is how many replies are lost to one kind of request.
const cuts = 100

func TestAnAskWhoseReplyIsLostHasItsGrantOnce(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		p := kit.Proxy(t, s)
		client, other := kit.Dial(t, s, kit.Through(p)), dialMutex(t, s)
		m := fairlock.New(client, kit.Name(t))
		kit.Release(t, hold(t, m)) // Now both scripts are known to the server.
		s.ResetStats()
		for range cuts {
			p.LoseReplies(1, kit.Runs(lua.Fairlock.Ask))
			l := hold(t, m)
			holds(t, other, l)
			kit.Release(t, l)
		}
		replies, _ := p.Lost()
		require.Equal(t, cuts, replies)
		require.EqualValues(t, cuts, s.CommandStats()["hset"], "a grant is one HSET")
		kit.Free(t, other)
	})
}

func TestAnAskWhoseReplyIsLostKeepsOnePlaceInTheQueue(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		p := kit.Proxy(t, s)
		client, other := kit.Dial(t, s, kit.Through(p), linger(time.Hour)), dialMutex(t, s)
		m := fairlock.New(client, kit.Name(t))
		l := hold(t, other)
		warm := begin(t.Context(), m)
		queued(t, other, 1) // Now the client has a subscription, and asks once for a place.
		kit.Release(t, l)
		kit.Release(t, warm.Value(t))
		for i := range cuts {
			l := hold(t, other)
			p.LoseReplies(1, kit.Runs(lua.Fairlock.Ask))
			ctx, cancel := context.WithCancel(t.Context())
			c := begin(ctx, m)
			kit.LostReplies(t, p.Faults, i+1)
			queued(t, other, 1)
			if i%2 == 0 {
				cancel()
				require.ErrorIs(t, c.Err(t), context.Canceled)
				queued(t, other, 0)
				kit.Release(t, l)
			} else {
				kit.Release(t, l)
				kit.Release(t, c.Value(t))
			}
			cancel()
		}
		kit.Free(t, other)
	})
}

func TestAReleaseWhoseReplyIsLostIsOneRelease(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		p := kit.Proxy(t, s)
		client, other := kit.Dial(t, s, kit.Through(p)), dialMutex(t, s)
		m := fairlock.New(client, kit.Name(t))
		for i := range cuts {
			l := hold(t, m)
			var c *call
			if i%2 == 0 {
				c = begin(t.Context(), other)
				queued(t, other, 1)
			}
			p.LoseReplies(1, kit.Runs(lua.Fairlock.End))
			require.NoError(t, l.Release(context.Background()), "%d", i)
			require.ErrorIs(t, l.Release(context.Background()), lease.ErrReleased)
			if c == nil {
				kit.Free(t, other)
				continue
			}
			// The repetition came when the next held, and has not freed it.
			next := c.Value(t)
			holds(t, other, next)
			kit.Release(t, next)
		}
		replies, _ := p.Lost()
		require.Equal(t, cuts, replies)
		kit.Free(t, other)
	})
}

func TestHoldsOutliveLostRepliesToRenewals(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		const clients = 25
		p := kit.Proxy(t, s)
		direct := kit.Dial(t, s)
		leases, others := make([]*lease.Lease, clients), make([]*fairlock.Mutex, clients)
		for i := range leases {
			name := fmt.Sprintf("%s:%d", kit.Name(t), i)
			others[i] = fairlock.New(direct, name)
			leases[i] = hold(t, fairlock.New(kit.Dial(t, s, kit.Through(p)), name, headwaiter.WithLease(3*time.Second)))
		}
		p.LoseReplies(cuts, everyOther(kit.Runs(lua.Fairlock.Renew)))
		kit.LostReplies(t, p.Faults, cuts)
		for i, l := range leases {
			holds(t, others[i], l)
			kit.Release(t, l)
			kit.Free(t, others[i])
		}
	})
}

func TestAHolderThatHearsOfNoRenewalGivesUpAndFreesTheLock(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		p := kit.Proxy(t, s)
		client, other := kit.Dial(t, s, kit.Through(p)), dialMutex(t, s)
		l := hold(t, fairlock.New(client, kit.Name(t), headwaiter.WithLease(time.Second)))
		c := begin(t.Context(), other)
		queued(t, other, 1)
		p.LoseReplies(1<<30, kit.Runs(lua.Fairlock.Renew))
		// Each renewal ran at the server, but the holder must go by what it was told.
		require.ErrorIs(t, kit.Lost(t, l), lease.ErrExpired)
		require.ErrorIs(t, l.Release(context.Background()), lease.ErrLost)
		next := c.Value(t)
		require.Greater(t, next.Token(), l.Token())
		require.Less(t, next.Waited(), 10*time.Second)
		kit.Release(t, next)
		kit.Free(t, other)
	})
}

func TestNobodyIsLostWhileAnyReplyMayBe(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		const clients = 4
		p := kit.Proxy(t, s)
		ms := make([]*fairlock.Mutex, clients)
		for i := range ms {
			ms[i] = fairlock.New(kit.Dial(t, s, kit.Through(p)), kit.Name(t))
		}
		// Every seventh, so that each kind of request has its turn.
		n := 0
		p.LoseReplies(cuts, func(command []string) bool {
			n++
			return strings.HasPrefix(command[0], "EVAL") && n%7 == 0
		})
		c := contend(t, ms...)
		kit.LostReplies(t, p.Faults, cuts)
		c.end(t)
		t.Logf("%d hand-offs, the longest wait was %v", c.handed, c.longest)
		require.Positive(t, c.fewest(clients), "somebody starves")
		kit.Free(t, dialMutex(t, s))
	})
}
