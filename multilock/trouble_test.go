package multilock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/multilock"
)

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
