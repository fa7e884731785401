package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/headwaiter/headwaiter/lease"
)

// deadlineLook is how often a holder of the demo looks whether its lease was renewed.
const deadlineLook = 20 * time.Millisecond

// placeLook is how often one that waits looks whether the server knows of it.
const placeLook = 5 * time.Millisecond

// farewell bounds what is said to the server when all else is done. Whatever it does not hear ends with the lease.
const farewell = 2 * time.Second

// workerVariable has the settings of a process of the demo, as JSON.
const workerVariable = "HEADWAITER_DEMO_WORKER"

// worker is one process of the demo. It takes the lock once for each line on its input, which says for
// how long to hold it, tells what happens as lines of JSON, and ends when the input does: so it also ends
// with a parent that was killed.
type worker struct {
	Process, Engine, URL, Lock string
	Lease                      time.Duration
	Counter                    counter

	connection
	mutex mutex
	out   *json.Encoder
}

// work is the program as a worker.
func work(settings string, in io.Reader, out io.Writer) error {
	var w worker
	if err := json.Unmarshal([]byte(settings), &w); err != nil {
		return err
	}
	w.out = json.NewEncoder(out)
	return w.run(in)
}

// run serves the input to its end.
func (w *worker) run(in io.Reader) error {
	// The keyboard's ^C goes to all processes of the demo; what it means is for the parent to say.
	signal.Ignore(os.Interrupt, syscall.SIGQUIT)
	e, err := engineOf(w.Engine)
	if err != nil {
		return err
	}
	if w.connection, err = e.dial(w.URL, "headwaiter demo "+w.Process, w.Lease); err != nil {
		return err
	}
	defer w.hangUp()
	w.mutex = w.lock(w.Lock)

	ctx, cancel := context.WithCancel(context.Background())
	lines := make(chan string)
	go func() {
		defer close(lines)
		defer cancel()
		for s := bufio.NewScanner(in); s.Scan(); {
			lines <- s.Text()
		}
	}()
	w.tell(event{Kind: kindReady})
	for line := range lines {
		hold, err := time.ParseDuration(line)
		if err == nil {
			err = w.turn(ctx, hold)
		}
		if err != nil {
			w.tell(event{Kind: kindFailed, Text: err.Error()})
		}
		w.tell(event{Kind: kindReady})
	}
	return nil
}

// tell writes an event. If nobody reads it any more the input is about to end too.
func (w *worker) tell(e event) {
	e.Process = w.Process
	if e.At.IsZero() {
		e.At = time.Now()
	}
	_ = w.out.Encode(e)
}

// turn is one call of Lock and what follows.
func (w *worker) turn(ctx context.Context, hold time.Duration) error {
	look := w.stands(ctx, w.Lock)
	w.tell(event{Kind: kindCalled})
	stop := w.placed(ctx, look)
	held, err := w.mutex.Lock(ctx)
	now := time.Now()
	stop()
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	_, granted := look(ctx)
	w.tell(event{Kind: kindHeld, At: now, Token: held.Token(), Deadline: held.Deadline(), Granted: granted})
	wrote, err := w.work(ctx, held, hold)
	if cause := context.Cause(held.Context()); cause != nil {
		w.tell(event{Kind: kindLost, Text: cause.Error()})
	}
	// Told before it is done: what the others do after a release must not seem to come before it.
	w.tell(event{Kind: kindReleased, Deadline: held.Deadline(), Wrote: wrote})
	bounded, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	switch released := held.Release(bounded); {
	case errors.Is(released, lease.ErrLost):
		w.tell(event{Kind: kindLost, Text: released.Error()})
	case released == nil:
		w.tell(event{Kind: kindFreed})
	case err == nil:
		err = released
	}
	return err
}

// placed tells when the server knows of a call, until that is over and it is stopped.
func (w *worker) placed(ctx context.Context, look look) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var looks sync.WaitGroup
	looks.Go(func() {
		again := time.NewTicker(placeLook)
		defer again.Stop()
		for ctx.Err() == nil {
			if placed, _ := look(ctx); placed && ctx.Err() == nil {
				w.tell(event{Kind: kindQueued})
				return
			}
			select {
			case <-again.C:
			case <-ctx.Done():
			}
		}
	})
	return func() { cancel(); looks.Wait() }
}

// work reads the counter, lets the time of the hold pass, and writes the counter. It stops early when the
// hold is lost or the demo ends.
func (w *worker) work(ctx context.Context, held *lease.Lease, hold time.Duration) (wrote bool, err error) {
	n, err := w.Counter.read(held.Token())
	if err != nil {
		return false, err
	}
	done := time.NewTimer(hold)
	defer done.Stop()
	look := time.NewTicker(deadlineLook)
	defer look.Stop()
	deadline := held.Deadline()
	for {
		select {
		case <-done.C:
			if err := w.Counter.write(n+1, held.Token()); err != nil {
				return false, fmt.Errorf("counter: %w", err)
			}
			return true, nil
		case <-look.C:
			if d := held.Deadline(); !d.Equal(deadline) {
				deadline = d
				w.tell(event{Kind: kindRenewed, Deadline: d})
			}
		case <-held.Context().Done():
			return false, nil
		case <-ctx.Done():
			return false, nil
		}
	}
}
