package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/headwaiter/headwaiter/cmd/headwaiter/internal/words"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/waitqueue"
)

const (
	// quiet is how long a wait goes on before it is mentioned: most are over by then.
	quiet = time.Second
	// moment bounds what is asked only to tell more.
	moment = 300 * time.Millisecond
	// farewell bounds what is said to the server when all else is done. Whatever it does not hear ends
	// with the lease.
	farewell = 2 * time.Second
)

// interrupted is a signal as the reason why a wait ended.
type interrupted struct{ signal os.Signal }

func (i interrupted) Error() string { return fmt.Sprintf("interrupted by a signal (%v)", i.signal) }

// hangUp closes a client, which gives back what it still has.
func hangUp(client interface{ Shutdown(context.Context) error }) {
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	_ = client.Shutdown(ctx)
}

// connect dials while it listens to signals: a server that does not answer must not keep ^C waiting.
func (x *execution) connect() (server, error) {
	type result struct {
		server server
		err    error
	}
	done := make(chan result, 1)
	go func() {
		server, err := x.where.dial(filepath.Base(x.command[0]), x.lease)
		done <- result{server, err}
	}()
	select {
	case r := <-done:
		return r.server, r.err
	case s := <-x.signals:
		// The process ends with this, and with it the connection that may still come.
		return nil, &failure{code: exitSignal + number(s)}
	}
}

// acquire waits its turn. A signal ends the wait and gives up the place.
func (x *execution) acquire(on server) (*lease.Lease, error) {
	type result struct {
		held *lease.Lease
		err  error
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	done := make(chan result, 1)
	go func() {
		held, err := x.lock(ctx, on.lock(x.name, x.lease))
		done <- result{held, err}
	}()

	mention := time.NewTimer(quiet)
	defer mention.Stop()
	mentioned := false
	for {
		select {
		case r := <-done:
			if r.err != nil {
				return nil, x.refused(r.err)
			}
			if mentioned {
				x.say("got %q after %v", x.name, r.held.Waited().Round(time.Millisecond))
			}
			return r.held, nil
		case <-mention.C:
			mentioned = true
			x.say("waiting for %q%s", x.name, on.situation(x.name))
		case s := <-x.signals:
			cancel(interrupted{s})
			if r := <-done; r.held != nil { // The grant came with the signal.
				giveBack(r.held)
			}
			return nil, &failure{code: exitSignal + number(s)}
		}
	}
}

// lock is the one call that waits, or with no time to wait, tries.
func (x *execution) lock(ctx context.Context, m mutex) (*lease.Lease, error) {
	if x.wait == 0 {
		// Some engines ask until they have an answer.
		ctx, cancel := context.WithTimeout(ctx, greeting)
		defer cancel()
		return m.TryLock(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, x.wait)
	defer cancel()
	return m.Lock(ctx)
}

// giveBack releases a hold that nothing was done with.
func giveBack(held *lease.Lease) {
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	waitqueue.Unused(held)
	_ = held.Release(ctx)
}

// refused says why there is no hold, and with which code that ends the program.
func (x *execution) refused(err error) error {
	var wait *lease.WaitError
	var busy *lease.BusyError
	switch {
	case errors.As(err, &busy) && !busy.Rests.IsZero():
		return fail(exitNotAcquired, "%q is taken until %s, though its hold is over", x.name, words.Clock(busy.Rests, time.Now()))
	case errors.Is(err, lease.ErrBusy):
		return fail(exitNotAcquired, "%q is held, or others wait for it", x.name)
	case errors.Is(err, lease.ErrInvalid), errors.Is(err, lease.ErrTooLarge):
		return &failure{exitUsage, err}
	case !errors.Is(err, context.DeadlineExceeded):
		return fail(exitUnavailable, "%s: %w", x.where.shown(), err)
	case x.wait == 0:
		return fail(exitUnavailable, "%s: no answer within %v", x.where.shown(), greeting)
	case !errors.As(err, &wait):
		return fail(exitNotAcquired, "did not get %q within %v", x.name, x.wait)
	case errors.Is(err, lease.ErrUnavailable):
		return fail(exitUnavailable, "did not get %q within %v, %s: %w", x.name, x.wait, x.where.shown(), cmp.Or(wait.Last, lease.ErrUnavailable))
	}
	return fail(exitNotAcquired, "did not get %q within %v%s", x.name, x.wait, ahead(wait))
}

// ahead tells how many were before a call that ended, and what trouble there was, as far as it is known.
func ahead(wait *lease.WaitError) (text string) {
	if wait.Place > 0 {
		text = fmt.Sprintf(", %d ahead", wait.Place)
	}
	if wait.Last != nil {
		text += fmt.Sprintf(" (last error: %v)", wait.Last)
	}
	return text
}
