package kit

import (
	"testing"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

// Pair runs a case on miniredis and on redis-server, and on each with one client in both roles and with two.
func Pair(t *testing.T, run func(t *testing.T, s redistest.Backend, a, b *headwaiter.Client)) {
	Each(t, func(t *testing.T, s redistest.Backend) {
		c := Dial(t, s)
		t.Run("one client", func(t *testing.T) { run(t, s, c, c) })
		t.Run("two clients", func(t *testing.T) { run(t, s, c, Dial(t, s)) })
	})
}

// Two is Each with two clients.
func Two(t *testing.T, run func(t *testing.T, s redistest.Backend, a, b *headwaiter.Client)) {
	Each(t, func(t *testing.T, s redistest.Backend) { run(t, s, Dial(t, s), Dial(t, s)) })
}

// BubbleTwo is that in a bubble.
func BubbleTwo(t *testing.T, run func(t *testing.T, s *redistest.Embedded, a, b *headwaiter.Client)) {
	Bubble(t, func(t *testing.T, s *redistest.Embedded) { run(t, s, Dial(t, s), Dial(t, s)) })
}

// One is Each with a client.
func One(t *testing.T, run func(t *testing.T, s redistest.Backend, c *headwaiter.Client)) {
	Each(t, func(t *testing.T, s redistest.Backend) { run(t, s, Dial(t, s)) })
}

// BubbleOne is that in a bubble.
func BubbleOne(t *testing.T, run func(t *testing.T, s *redistest.Embedded, c *headwaiter.Client)) {
	Bubble(t, func(t *testing.T, s *redistest.Embedded) { run(t, s, Dial(t, s)) })
}
