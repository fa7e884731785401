package console

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/headwaiter/headwaiter/internal/tty"
)

// shared is a look at the server that all requests share: there is one at a time, and its answer is good for a while.
type shared[T any] struct {
	console *Console
	fresh   time.Duration
	look    func(context.Context) (T, error)

	mu      sync.Mutex
	answer  answer[T]
	looking chan struct{} // closed at the end of the look; nil if there is none
}

// answer is what a look has found.
type answer[T any] struct {
	value T
	err   error
	at    time.Time // when it was complete
	took  time.Duration
}

func newShared[T any](c *Console, fresh time.Duration, look func(context.Context) (T, error)) *shared[T] {
	return &shared[T]{console: c, fresh: fresh, look: look}
}

// get returns the last answer if it is fresh, or waits for the next. A look that takes long is good for longer, so that no
// server spends more than a fifth of its time on one. An error is not: what it was for may soon be over.
func (s *shared[T]) get(ctx context.Context) answer[T] {
	s.mu.Lock()
	if a := s.answer; !a.at.IsZero() && time.Since(a.at) < a.good(s.fresh) {
		s.mu.Unlock()
		return a
	}
	if s.looking == nil {
		if ended := s.console.ctx.Err(); ended != nil {
			s.mu.Unlock()
			return answer[T]{err: ended}
		}
		s.looking = make(chan struct{})
		s.console.work.Go(s.run)
	}
	done := s.looking
	s.mu.Unlock()
	select {
	case <-done:
	case <-ctx.Done():
		return answer[T]{err: ctx.Err()}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answer
}

func (s *shared[T]) run() {
	ctx, cancel := context.WithTimeout(s.console.ctx, lookLimit)
	defer cancel()
	begun := time.Now()
	value, err := s.look(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.answer = answer[T]{value, err, now, now.Sub(begun)}
	close(s.looking)
	s.looking = nil
}

// good is for how long the answer is, which is fresh for a while at the least.
func (a answer[T]) good(fresh time.Duration) time.Duration {
	if a.err != nil {
		return fresh
	}
	return max(fresh, 4*a.took)
}

// age says how old the answer is, and what it took.
func (a answer[T]) age() string {
	return fmt.Sprintf("%d s ago, in %s", int(time.Since(a.at).Seconds()), tty.Short(a.took))
}
