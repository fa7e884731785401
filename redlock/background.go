package redlock

import (
	"context"
	"sync"

	"github.com/headwaiter/headwaiter/internal/calls"
)

// A background is what goes on when nobody waits for it: requests to nodes that are slower than a quorum of the
// others. Each ends by itself, at the latest when the client does that carries it.
type background struct {
	mu   sync.Mutex // guards the fields below; nothing is called under it
	open int
	idle chan struct{} // closed when open falls to 0; nil while nobody waits for that
}

// run calls f on a goroutine of its own.
func (b *background) run(f func()) {
	b.add()
	go func() {
		defer b.done()
		f()
	}()
}

func (b *background) add() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open++
}

func (b *background) done() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open--
	if b.open == 0 && b.idle != nil {
		close(b.idle)
		b.idle = nil
	}
}

// over returns a channel that is closed when nothing goes on.
func (b *background) over() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open == 0 {
		return nothing
	}
	if b.idle == nil {
		b.idle = make(chan struct{})
	}
	return b.idle
}

// nothing goes on.
var nothing = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// wait returns when nothing goes on, or ctx ends.
func (b *background) wait(ctx context.Context) error {
	select {
	case <-b.over():
		return nil
	case <-ctx.Done():
		return calls.WhyEnded(ctx)
	}
}
