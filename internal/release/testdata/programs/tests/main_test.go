package tests // A function that takes a lock, and the tests of what it does when the lock is lost or Redis is away.

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/headwaitertest"
	"github.com/headwaiter/headwaiter/lease"
)

// importAll imports n parts under a lock, each of which takes a second, and stops when it loses the lock.
func importAll(ctx context.Context, client *headwaiter.Client, n int) error {
	return fairlock.New(client, "import").Do(ctx, func(ctx context.Context) error {
		for i := 0; i < n && ctx.Err() == nil; i++ {
			time.Sleep(time.Second) // the work
		}
		return context.Cause(ctx)
	})
}

func TestImport(t *testing.T) {
	for want, fault := range map[error]func(*headwaitertest.Server){
		nil:                func(*headwaitertest.Server) {},
		lease.ErrForced:    func(s *headwaitertest.Server) { s.ForceRelease("import") },
		lease.ErrForgotten: (*headwaitertest.Server).Restart,
		lease.ErrExpired:   func(s *headwaitertest.Server) { s.Pause() },
	} {
		synctest.Test(t, func(t *testing.T) {
			server, done := headwaitertest.Start(t), make(chan error, 1)
			client := server.Client(t)
			go func() { done <- importAll(t.Context(), client, 60) }()
			time.Sleep(5 * time.Second) // of the bubble: It works.
			fault(server)
			if err := <-done; !errors.Is(err, want) {
				t.Errorf("%v instead of %v", err, want)
			}
		})
	}
}
