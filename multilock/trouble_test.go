package multilock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/multilock"
)

// Replies and messages are lost, connections cut, names released by force, maximum holds over, calls given up, at moments
// that are left to the seed: whoever gets a lease has all of it, and nothing is left behind.
func TestWhateverHappensACallHasAllOrLeavesNothing(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
				all, force := names(t, 3), kit.Dial(t, s)
				var work sync.WaitGroup
				for i := range uint64(3) {
					d := faults.NewDialer(t, s.Dial)
					a := &troubled{
						Rand: rand.New(rand.NewPCG(seed, i)), names: all, faults: d.Faults, client: kit.Dial(t, s, kit.Over(d)), force: force,
					}
					work.Go(func() {
						for range 12 {
							a.trouble(&work)
							a.call(t)
						}
					})
				}
				kit.All(t, &work)
				free(t, kit.Dial(t, s), all)
			})
		})
	}
}

// troubled is a client that has bad luck.
type troubled struct {
	*rand.Rand
	names         []string
	faults        *faults.Faults
	client, force *headwaiter.Client
}

func (a *troubled) within(d time.Duration) time.Duration { return time.Duration(a.Int64N(int64(d))) }

// trouble lets something go wrong, now or soon.
func (a *troubled) trouble(work *sync.WaitGroup) {
	soon := func(f func()) {
		after := a.within(80 * time.Millisecond)
		work.Go(func() {
			time.Sleep(after) // Of the bubble.
			f()
		})
	}
	switch a.IntN(6) {
	case 0:
		a.faults.LoseReplies(1+a.IntN(2), func(command []string) bool { return command[0] == "EVALSHA" })
	case 1:
		a.faults.LosePushes(1, func(push []string) bool { return push[0] == "message" })
	case 2:
		soon(a.faults.Cut)
	case 3:
		m := fairlock.New(a.force, a.names[a.IntN(len(a.names))])
		soon(func() { _, _ = m.ForceRelease(context.Background(), 0) }) // It may be free.
	}
}

// call is one call for some of the names, and what becomes of it.
func (a *troubled) call(t *testing.T) {
	var some []string
	for _, i := range a.Perm(len(a.names))[:1+a.IntN(len(a.names))] {
		some = append(some, a.names[i])
	}
	options := []multilock.Option{
		multilock.WithBound(time.Millisecond + a.within(100*time.Millisecond)), headwaiter.WithLease(2 * time.Second),
	}
	if a.IntN(4) == 0 {
		options = append(options, headwaiter.WithMaxHold(20*time.Millisecond+a.within(200*time.Millisecond)))
	}
	m := multilock.New(a.client, some, options...)
	lock := m.Lock
	if a.IntN(5) == 0 {
		lock = m.TryLock
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond+a.within(4*time.Second))
	defer cancel()
	l, err := lock(ctx)
	if err != nil {
		return
	}
	assert.NoError(t, l.Context().Err(), "it was over already")
	select {
	case <-l.Context().Done():
	case <-time.After(a.within(60 * time.Millisecond)):
	}
	_ = l.Release(context.Background()) // It may be lost.
}

// Two calls each come to hold what the other waits for, at the same moment, with the same bound, over a network that is
// slow enough for neither to hear in time that the other gives up. Both must have all of it soon.
func TestTwoThatGiveUpAtTheSameMomentDoNotDoSoForGood(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		over := func() *headwaiter.Client {
			d := faults.NewDialer(t, s.Dial)
			d.Delay(time.Millisecond)
			return kit.Dial(t, s, kit.Over(d))
		}
		const bound = 10 * time.Millisecond
		first, second, holder := over(), over(), kit.Dial(t, s)
		for apart := range 20 {
			all := names(t, 3)
			l, err := multilock.New(holder, []string{all[0], all[2]}).Lock(t.Context())
			assert.NoError(t, err)
			var work sync.WaitGroup
			call := func(c *headwaiter.Client) {
				m := multilock.New(c, all, multilock.WithBound(bound))
				work.Go(func() { assert.NoError(t, m.Do(t.Context(), func(context.Context) error { return nil })) })
			}
			// The first holds the name in the middle, which is free, until its bound is over, and waits for the others.
			call(first)
			time.Sleep(5 * bound) // Of the bubble.
			// The second takes that name about when the first gets the others.
			call(second)
			time.Sleep(time.Duration(apart) * time.Millisecond) // Of the bubble.
			kit.Release(t, l)
			begun := time.Now()
			kit.All(t, &work)
			assert.Less(t, time.Since(begun), 10*time.Second, "%d ms apart", apart)
		}
	})
}

// The same two where a maximum ends what each holds before its bound is over.
func TestTwoThatLoseTheirNamesAtTheSameMomentDoNotDoSoForGood(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		over := func() *headwaiter.Client {
			d := faults.NewDialer(t, s.Dial)
			d.Delay(4 * time.Millisecond)
			return kit.Dial(t, s, kit.Over(d))
		}
		const most = 200 * time.Millisecond
		first, second, holder := over(), over(), kit.Dial(t, s)
		for apart := range 120 {
			all := names(t, 3)
			l, err := multilock.New(holder, []string{all[0], all[2]}).Lock(t.Context())
			assert.NoError(t, err)
			var work sync.WaitGroup
			call := func(c *headwaiter.Client) {
				m := multilock.New(c, all, headwaiter.WithMaxHold(most))
				work.Go(func() { assert.NoError(t, m.Do(t.Context(), func(context.Context) error { return nil })) })
			}
			call(first)
			time.Sleep(3 * most / 4) // Of the bubble.
			call(second)
			time.Sleep(time.Duration(apart) * time.Millisecond) // Of the bubble.
			kit.Release(t, l)
			begun := time.Now()
			kit.All(t, &work)
			assert.Less(t, time.Since(begun), 10*most, "%d ms apart", apart)
		}
	})
}

// The same two where clients look for their grants: what one gives back the other sees late, when its own bound may be over.
// It looks first, so that one of them has all names as soon as the other has given back its part.
func TestTwoThatLookDoNotGiveBackInTurn(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		polling := func(o *headwaiter.Options) { o.WithoutSubscribe = true }
		const bound = time.Second
		clients := []*headwaiter.Client{kit.Dial(t, s, polling), kit.Dial(t, s, polling)}
		holder := kit.Dial(t, s, polling)
		for range 30 {
			all := names(t, 2)
			l, err := multilock.New(holder, all[1:]).Lock(t.Context())
			assert.NoError(t, err)
			var work sync.WaitGroup
			call := func(c *headwaiter.Client) {
				work.Go(func() {
					assert.NoError(t, multilock.New(c, all, multilock.WithBound(bound)).Do(t.Context(), func(context.Context) error { return nil }))
				})
			}
			call(clients[0])
			time.Sleep(3 * bound / 2) // Of the bubble: it has given back the first name.
			call(clients[1])          // And this one has that now.
			time.Sleep(bound / 10)    // Of the bubble: and waits for the other.
			begun := time.Now()
			kit.Release(t, l)
			kit.All(t, &work)
			assert.Less(t, time.Since(begun), 3*bound/2)
		}
	})
}
