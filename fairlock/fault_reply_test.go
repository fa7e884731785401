package fairlock_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// cuts is how many replies are lost to one kind of request.
const cuts = 100

func TestAnAskWhoseReplyIsLostHasItsGrantOnce(t *testing.T) {
	each(t, func(t *testing.T, s redistest.Backend) {
		p := proxy(t, s)
		client, other := dial(t, s, through(p)), dialMutex(t, s)
		m := fairlock.New(client, nameOf(t))
		release(t, hold(t, m)) // Now both scripts are known to the server.
		s.ResetStats()
		for range cuts {
			p.LoseReplies(1, runs(lua.Fairlock.Ask))
			l := hold(t, m)
			holds(t, other, l)
			release(t, l)
		}
		replies, _ := p.Lost()
		require.Equal(t, cuts, replies)
		require.EqualValues(t, cuts, s.CommandStats()["hset"], "a grant is one HSET")
		free(t, other)
	})
}

func TestAnAskWhoseReplyIsLostKeepsOnePlaceInTheQueue(t *testing.T) {
	each(t, func(t *testing.T, s redistest.Backend) {
		p := proxy(t, s)
		client, other := dial(t, s, through(p), linger(time.Hour)), dialMutex(t, s)
		m := fairlock.New(client, nameOf(t))
		l := hold(t, other)
		warm := begin(t.Context(), m)
		queued(t, other, 1) // Now the client has a subscription, and asks once for a place.
		release(t, l)
		release(t, warm.granted(t))
		for i := range cuts {
			l := hold(t, other)
			p.LoseReplies(1, runs(lua.Fairlock.Ask))
			ctx, cancel := context.WithCancel(t.Context())
			c := begin(ctx, m)
			lostReplies(t, p.Faults, i+1)
			queued(t, other, 1)
			if i%2 == 0 {
				cancel()
				require.ErrorIs(t, c.failed(t), context.Canceled)
				queued(t, other, 0)
				release(t, l)
			} else {
				release(t, l)
				release(t, c.granted(t))
			}
			cancel()
		}
		free(t, other)
	})
}

func TestAReleaseWhoseReplyIsLostIsOneRelease(t *testing.T) {
	each(t, func(t *testing.T, s redistest.Backend) {
		p := proxy(t, s)
		client, other := dial(t, s, through(p)), dialMutex(t, s)
		m := fairlock.New(client, nameOf(t))
		for i := range cuts {
			l := hold(t, m)
			var c *call
			if i%2 == 0 {
				c = begin(t.Context(), other)
				queued(t, other, 1)
			}
			p.LoseReplies(1, runs(lua.Fairlock.End))
			require.NoError(t, l.Release(context.Background()), "%d", i)
			require.ErrorIs(t, l.Release(context.Background()), lease.ErrReleased)
			if c == nil {
				free(t, other)
				continue
			}
			// The repetition came when the next held, and has not freed it.
			next := c.granted(t)
			holds(t, other, next)
			release(t, next)
		}
		replies, _ := p.Lost()
		require.Equal(t, cuts, replies)
		free(t, other)
	})
}

func TestHoldsOutliveLostRepliesToRenewals(t *testing.T) {
	each(t, func(t *testing.T, s redistest.Backend) {
		const clients = 25
		p := proxy(t, s)
		direct := dial(t, s)
		leases, others := make([]*lease.Lease, clients), make([]*fairlock.Mutex, clients)
		for i := range leases {
			name := fmt.Sprintf("%s:%d", nameOf(t), i)
			others[i] = fairlock.New(direct, name)
			leases[i] = hold(t, fairlock.New(dial(t, s, through(p)), name, fairlock.WithLease(3*time.Second)))
		}
		p.LoseReplies(cuts, everyOther(runs(lua.Fairlock.Renew)))
		lostReplies(t, p.Faults, cuts)
		for i, l := range leases {
			holds(t, others[i], l)
			release(t, l)
			free(t, others[i])
		}
	})
}

func TestAHolderThatHearsOfNoRenewalGivesUpAndFreesTheLock(t *testing.T) {
	each(t, func(t *testing.T, s redistest.Backend) {
		p := proxy(t, s)
		client, other := dial(t, s, through(p)), dialMutex(t, s)
		l := hold(t, fairlock.New(client, nameOf(t), fairlock.WithLease(time.Second)))
		c := begin(t.Context(), other)
		queued(t, other, 1)
		p.LoseReplies(1<<30, runs(lua.Fairlock.Renew))
		// Each renewal ran at the server, but the holder must go by what it was told.
		require.ErrorIs(t, lost(t, l), lease.ErrExpired)
		require.ErrorIs(t, l.Release(context.Background()), lease.ErrLost)
		next := c.granted(t)
		require.Greater(t, next.Token(), l.Token())
		require.Less(t, next.Waited(), 10*time.Second)
		release(t, next)
		free(t, other)
	})
}

func TestNobodyIsLostWhileAnyReplyMayBe(t *testing.T) {
	each(t, func(t *testing.T, s redistest.Backend) {
		const clients = 4
		p := proxy(t, s)
		ms := make([]*fairlock.Mutex, clients)
		for i := range ms {
			ms[i] = fairlock.New(dial(t, s, through(p)), nameOf(t))
		}
		// Every seventh, so that each kind of request has its turn.
		n := 0
		p.LoseReplies(cuts, func(command []string) bool {
			n++
			return strings.HasPrefix(command[0], "EVAL") && n%7 == 0
		})
		c := contend(t, ms...)
		lostReplies(t, p.Faults, cuts)
		c.end(t)
		t.Logf("%d hand-offs, the longest wait was %v", c.handed, c.longest)
		require.Positive(t, c.fewest(clients), "somebody starves")
		free(t, dialMutex(t, s))
	})
}
