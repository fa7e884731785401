package family

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/barrier"
	"github.com/headwaiter/headwaiter/countdown"
	"github.com/headwaiter/headwaiter/election"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/multilock"
	"github.com/headwaiter/headwaiter/semaphore"
)

// A client whose network can be held up, and another one.
type pair struct {
	d         *faults.Dialer
	far, near *headwaiter.Client
}

// holdUp holds up what is sent on the connections that the client has now. It makes new ones when no answer comes.
func (p *pair) holdUp() { p.d.Stall() }

// letGo lets the server run what was held up.
func (p *pair) letGo(t *testing.T) {
	t.Helper()
	require.True(t, p.d.Holds(), "no request was held up")
	p.d.Heal()
	synctest.Wait()
}

// hurried is a context that ends before a request that is held up is repeated.
func hurried(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), 300*time.Millisecond)
}

// withoutTickets are the scripts of requests that have no ticket.
var withoutTickets = []*lua.Script{
	lua.LatchSet.Script, lua.LatchDown.Script, lua.BarrierReset.Script, lua.Resize.Script, lua.ElectionProclaim.Script,
	lua.Fairlock.Force, lua.Fairlock.Force.Logged(), lua.Election.Force,
}

func played(t *testing.T, cases map[string]func(t *testing.T, p *pair)) {
	t.Helper()
	for name, run := range cases {
		kit.BubbleOf(t, name, func(t *testing.T, s *redistest.Embedded) {
			for _, script := range withoutTickets { // The server knows them, so that one request is all that it takes.
				s.Do("SCRIPT", "LOAD", script.Source)
			}
			d := faults.NewDialer(t, s.Dial)
			run(t, &pair{d, kit.Dial(t, s, kit.Over(d)), kit.Dial(t, s)})
		})
	}
}

func sets(t *testing.T, l *countdown.Latch, n int64) {
	t.Helper()
	require.True(t, kit.Got(l.TrySetCount(t.Context(), n))(t))
}

func left(t *testing.T, l *countdown.Latch) int64 {
	t.Helper()
	return kit.Got(l.Count(t.Context()))(t)
}

func limit(t *testing.T, s *semaphore.Semaphore) int64 {
	t.Helper()
	return kit.Got(s.Inspect(t.Context()))(t).Limit
}

// Each request is answered at the second attempt, and the first one runs after that.
func TestWhatACallReturnedIsNotChangedByAnOlderAttempt(t *testing.T) {
	t.Parallel()
	played(t, map[string]func(t *testing.T, p *pair){
		"to count down a latch that is not set": func(t *testing.T, p *pair) {
			far, near := countdown.New(p.far, "latch"), countdown.New(p.near, "latch")
			p.holdUp()
			require.ErrorIs(t, kit.Err(far.CountDown(t.Context())), countdown.ErrUnset)
			sets(t, near, 1)
			p.letGo(t)
			require.EqualValues(t, 1, left(t, near))
		},
		"to count down an open latch": func(t *testing.T, p *pair) {
			far, near := countdown.New(p.far, "latch"), countdown.New(p.near, "latch")
			sets(t, far, 1)
			require.NoError(t, kit.Err(far.CountDown(t.Context())))
			p.holdUp()
			require.Zero(t, kit.Got(far.CountDown(t.Context()))(t))
			sets(t, near, 1)
			p.letGo(t)
			require.EqualValues(t, 1, left(t, near))
		},
		"to set a closed latch": func(t *testing.T, p *pair) {
			far, near := countdown.New(p.far, "latch"), countdown.New(p.near, "latch")
			sets(t, near, 1)
			p.holdUp()
			require.False(t, kit.Got(far.TrySetCount(t.Context(), 5))(t))
			require.NoError(t, kit.Err(near.CountDown(t.Context())))
			p.letGo(t)
			require.Zero(t, left(t, near), "the latch is open")
		},
		"to resize a semaphore": func(t *testing.T, p *pair) {
			far := semaphore.New(p.far, "pool", 5)
			p.holdUp()
			require.NoError(t, far.Resize(t.Context(), 10))
			require.NoError(t, far.Resize(t.Context(), 2))
			p.letGo(t)
			require.EqualValues(t, 2, limit(t, far))
		},
		"to reset a barrier": func(t *testing.T, p *pair) {
			far, near := barrier.New(p.far, "meeting", 2), barrier.New(p.near, "meeting", 2)
			p.holdUp()
			require.NoError(t, far.Reset(t.Context()))
			one := kit.Go(func() (int, error) { return near.Await(t.Context()) })
			kit.Waiting(t, 1, near.Inspect)
			p.letGo(t)
			two := kit.Go(func() (int, error) { return far.Await(t.Context()) })
			require.Equal(t, 1, one.Value(t)+two.Value(t))
		},
		"to free a lock": func(t *testing.T, p *pair) {
			far, near := fairlock.New(p.far, "lock"), fairlock.New(p.near, "lock")
			p.holdUp()
			require.ErrorIs(t, kit.Err(far.ForceRelease(t.Context(), 0)), lease.ErrNotHeld)
			kept(t, p, kit.Lock(t.Context(), near.Lock).Value(t))
		},
		"to free a lock that keeps its history": func(t *testing.T, p *pair) {
			far := fairlock.New(p.far, "lock", fairlock.WithHistory(3))
			near := fairlock.New(p.near, "lock", fairlock.WithHistory(3))
			first := kit.Lock(t.Context(), near.Lock).Value(t)
			p.holdUp()
			require.Equal(t, p.near.ID(), kit.Got(far.ForceRelease(t.Context(), 0))(t).Client)
			kit.Await(t, first.Context().Done(), "the hold to end")
			kept(t, p, kit.Lock(t.Context(), near.Lock).Value(t))
		},
		"to end a leadership": func(t *testing.T, p *pair) {
			far, near := election.New(p.far, "leader"), election.New(p.near, "leader")
			p.holdUp()
			require.ErrorIs(t, kit.Err(far.ForceRelease(t.Context(), 0)), lease.ErrNotHeld)
			kept(t, p, kit.Got(near.Campaign(t.Context(), "near"))(t))
		},
	})
}

// kept lets go what is held up, after which a hold must go on.
func kept(t *testing.T, p *pair, l *lease.Lease) {
	t.Helper()
	p.letGo(t)
	time.Sleep(15 * time.Second) // By then a renewal has told.
	require.NoError(t, context.Cause(l.Context()))
	kit.Release(t, l)
}

// Each request is given up without an answer, a later call of the same client about the name returns, and then the request
// comes to the server.
func TestARequestThatWasGivenUpDoesNothingAfterALaterCall(t *testing.T) {
	t.Parallel()
	played(t, map[string]func(t *testing.T, p *pair){
		"to count down, then the count": func(t *testing.T, p *pair) {
			far := countdown.New(p.far, "latch")
			sets(t, far, 1)
			given(t, p, func(ctx context.Context) error { _, err := far.CountDown(ctx); return err })
			require.EqualValues(t, 1, left(t, far))
			p.letGo(t)
			require.EqualValues(t, 1, left(t, far))
		},
		"to set a latch, then to count down": func(t *testing.T, p *pair) {
			far := countdown.New(p.far, "latch")
			given(t, p, func(ctx context.Context) error { _, err := far.TrySetCount(ctx, 3); return err })
			require.ErrorIs(t, kit.Err(far.CountDown(t.Context())), countdown.ErrUnset)
			p.letGo(t)
			require.ErrorIs(t, kit.Err(far.Count(t.Context())), countdown.ErrUnset)
		},
		"to resize a semaphore, then to resize it again": func(t *testing.T, p *pair) {
			far := semaphore.New(p.far, "pool", 5)
			given(t, p, func(ctx context.Context) error { return far.Resize(ctx, 10) })
			require.NoError(t, far.Resize(t.Context(), 2))
			p.letGo(t)
			require.EqualValues(t, 2, limit(t, far))
		},
		"to reset a barrier, then who waits": func(t *testing.T, p *pair) {
			far, near := barrier.New(p.far, "meeting", 2), barrier.New(p.near, "meeting", 2)
			one := kit.Go(func() (int, error) { return near.Await(t.Context()) })
			kit.Waiting(t, 1, near.Inspect)
			given(t, p, far.Reset)
			require.Equal(t, 1, kit.Got(far.Waiting(t.Context()))(t))
			p.letGo(t)
			two := kit.Go(func() (int, error) { return far.Await(t.Context()) })
			require.Equal(t, 1, one.Value(t)+two.Value(t))
		},
		"to free a lock, then to lock it": func(t *testing.T, p *pair) {
			far := fairlock.New(p.far, "lock")
			given(t, p, func(ctx context.Context) error { _, err := far.ForceRelease(ctx, 0); return err })
			kept(t, p, kit.Lock(t.Context(), far.Lock).Value(t))
		},
		"to free a lock, then to release it": func(t *testing.T, p *pair) {
			far, near := fairlock.New(p.far, "lock"), fairlock.New(p.near, "lock")
			l := kit.Lock(t.Context(), far.Lock).Value(t)
			given(t, p, func(ctx context.Context) error { _, err := far.ForceRelease(ctx, 0); return err })
			require.NoError(t, l.Release(t.Context()))
			kept(t, p, kit.Lock(t.Context(), near.Lock).Value(t))
		},
		"to free a leader, then to proclaim": func(t *testing.T, p *pair) {
			far := election.New(p.far, "leader")
			l := kit.Got(far.Campaign(t.Context(), "a"))(t)
			given(t, p, func(ctx context.Context) error { _, err := far.ForceRelease(ctx, 0); return err })
			require.NoError(t, far.Proclaim(t.Context(), l, "b"))
			kept(t, p, l)
		},
		"to free a lock that a multilock holds, then to release it": func(t *testing.T, p *pair) {
			l := kit.Lock(t.Context(), multilock.New(p.far, []string{"lock", "other"}).Lock).Value(t)
			forced(t, p)
			require.NoError(t, l.Release(t.Context()))
			kept(t, p, kit.Lock(t.Context(), fairlock.New(p.near, "lock").Lock).Value(t))
		},
		"to free a lock, then to hand it to a mate": func(t *testing.T, p *pair) {
			far := fairlock.New(p.far, "lock", fairlock.WithCohort(5))
			l, mate := kit.Lock(t.Context(), far.Lock).Value(t), kit.Lock(t.Context(), far.Lock)
			synctest.Wait()
			forced(t, p)
			require.NoError(t, l.Release(t.Context()))
			kept(t, p, mate.Value(t))
		},
		"to free a lock that is waited for, then to be granted": func(t *testing.T, p *pair) {
			near := fairlock.New(p.near, "lock")
			l, next := kit.Lock(t.Context(), near.Lock).Value(t), kit.Lock(t.Context(), fairlock.New(p.far, "lock").Lock)
			kit.Waiting(t, 1, near.Inspect)
			forced(t, p)
			require.NoError(t, l.Release(t.Context()))
			kept(t, p, next.Value(t))
		},
		"to free a lock, then to be restored, and to lock it": func(t *testing.T, p *pair) {
			forced(t, p)
			p.far.Restored()
			kept(t, p, kit.Lock(t.Context(), fairlock.New(p.far, "lock").Lock).Value(t))
		},
	})
}

// However a hold is given back, what its client gave up before frees none that comes after it.
func TestAReleaseByForceThatWasGivenUpFreesNoLaterHold(t *testing.T) {
	t.Parallel()
	all := make(map[string]func(t *testing.T, p *pair))
	for what, next := range map[string]func(t *testing.T, p *pair, l *lease.Lease) *lease.Lease{
		"each": func(t *testing.T, p *pair, l *lease.Lease) *lease.Lease {
			require.NoError(t, fairlock.ReleaseEach(t.Context(), l)[0])
			return kit.Lock(t.Context(), fairlock.New(p.near, "lock").Lock).Value(t)
		},
		"unlock": func(t *testing.T, p *pair, l *lease.Lease) *lease.Lease {
			l.Unlock()
			return kit.Lock(t.Context(), fairlock.New(p.near, "lock").Lock).Value(t)
		},
		"hand over": func(t *testing.T, p *pair, l *lease.Lease) *lease.Lease {
			text := kit.Got(l.HandOver(t.Context()))(t)
			return kit.Got(fairlock.Adopt(t.Context(), p.near, text))(t)
		},
	} {
		all[what] = func(t *testing.T, p *pair) {
			l := kit.Lock(t.Context(), fairlock.New(p.far, "lock").Lock).Value(t)
			forced(t, p)
			kept(t, p, next(t, p, l))
		}
	}
	played(t, all)
}

// forced gives up a release by force of the lock.
func forced(t *testing.T, p *pair) {
	t.Helper()
	given(t, p, func(ctx context.Context) error {
		return kit.Err(fairlock.New(p.far, "lock").ForceRelease(ctx, 0))
	})
}

// given holds a call up until it gives up.
func given(t *testing.T, p *pair, call func(context.Context) error) {
	t.Helper()
	ctx, cancel := hurried(t)
	defer cancel()
	p.holdUp()
	require.ErrorIs(t, call(ctx), context.DeadlineExceeded)
	p.d.Leave() // The client is not kept from its next call.
}

// However many calls there are at once, the server keeps a bounded number of notes of a client, and each has its own answer.
func TestCallsAtOnceHaveTheirOwnAnswersAndFewNotes(t *testing.T) {
	kit.EachBehind(t, func(t *testing.T, s redistest.Backend, p *faults.Proxy) {
		c := kit.Dial(t, s, kit.Through(p))
		latch := countdown.New(c, kit.Name(t))
		const calls = 300
		sets(t, latch, calls)
		p.LoseReplies(20, func(command []string) bool { return command[0] == "EVALSHA" })
		var answers [calls]*kit.Call[int64]
		for i := range answers {
			answers[i] = kit.Go(func() (int64, error) { return latch.CountDown(t.Context()) })
		}
		seen := map[int64]bool{}
		for _, a := range answers {
			seen[a.Value(t)] = true
		}
		require.Len(t, seen, calls, "each count was told once")
		require.Zero(t, left(t, latch))
		keys := s.List("KEYS", "*{"+kit.Name(t)+"}:requests:*")
		require.Len(t, keys, 1)
		require.LessOrEqual(t, len(s.List("HKEYS", keys[0])), 65)
		kit.Expiring(t, s)
	})
}
