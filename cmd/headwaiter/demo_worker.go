package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/headwaiter/headwaiter/lease"
)

// deadlineLook is how often a holder of the demo looks whether its lease was renewed.
const deadlineLook = 20 * time.Millisecond

// placeLook is how often one that waits looks whether the server knows of it.
const placeLook = 5 * time.Millisecond

// worker is one process of the demo. It takes the lock once for each line on its input, which says for
// how long to hold it, tells what happens as lines of JSON, and ends when the input does: so it also ends
// with a parent that was killed.
type worker struct {
	process, lock, counter string
	lease                  time.Duration
	choice                 chooser

	mutex  mutex
	teller teller // nil where the server cannot tell
	out    *json.Encoder
}

func newDemoWorker() *cobra.Command {
	var w worker
	cmd := &cobra.Command{
		Use:    "demo-worker",
		Short:  "One process of the demo, which starts it by itself",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			w.out = json.NewEncoder(cmd.OutOrStdout())
			return w.run(cmd.InOrStdin())
		},
	}
	f := cmd.Flags()
	f.StringVar(&w.process, "process", "", "what to call itself")
	f.StringVar(&w.lock, "lock", "", "name of the lock")
	f.StringVar(&w.counter, "counter", "", "file of the fenced counter")
	f.StringVar(&w.choice.engine, "engine", onRedis.name, "kind of the server")
	f.DurationVar(&w.lease, "lease", demoLease, "lease of a hold")
	return cmd
}

// run serves the input to its end.
func (w *worker) run(in io.Reader) error {
	// The keyboard's ^C goes to all processes of the demo; what it means is for the parent to say.
	signal.Ignore(keyboard...)
	where, err := w.choice.choose()
	if err != nil {
		return err
	}
	on, err := where.dial("headwaiter demo "+w.process, w.lease)
	if err != nil {
		return err
	}
	defer on.hangUp()
	w.mutex = on.lock(w.lock, w.lease)
	w.teller, _ = on.(teller)

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
	e.Process = w.process
	if e.At.IsZero() {
		e.At = time.Now()
	}
	_ = w.out.Encode(e)
}

// turn is one call of Lock and what follows.
func (w *worker) turn(ctx context.Context, hold time.Duration) error {
	w.tell(event{Kind: kindCalled})
	stop := w.placed(ctx)
	held, err := w.mutex.Lock(ctx)
	now := time.Now()
	stop()
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	var granted time.Time
	if w.teller != nil {
		_, granted = w.teller.stands(ctx, w.lock)
	}
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
func (w *worker) placed(ctx context.Context) (stop func()) {
	if w.teller == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var looks sync.WaitGroup
	looks.Go(func() {
		again := time.NewTicker(placeLook)
		defer again.Stop()
		for ctx.Err() == nil {
			if placed, _ := w.teller.stands(ctx, w.lock); placed && ctx.Err() == nil {
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
	c := counter(w.counter)
	n, err := c.read(held.Token())
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
			if err := c.write(n+1, held.Token()); err != nil {
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
