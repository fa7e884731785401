// Command demo shows a lock at work: several processes contend for it, two of them are killed, and at the end there is
// a verdict made from what the processes recorded and, of a Redis, from what the server says of the order of calls and
// the time of grants.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// The course of the demo: about 12 s; a dead holder's lease takes the longest piece.
const (
	demoProcesses = 6
	demoLease     = 3 * time.Second  // longer than a busy machine stands still
	demoLength    = 10 * time.Second // of the arrivals; who waits by then is still served
	killWaiterAt  = 4 * time.Second
	killHolderAt  = 5 * time.Second
	// demoGap lies between two calls, far more than orderSlack: their order is beyond doubt.
	demoGap = 120 * time.Millisecond
	// A hold is long enough for a queue of several to form behind it.
	shortestHold = 150 * time.Millisecond
	longestHold  = 350 * time.Millisecond
	demoFrame    = 100 * time.Millisecond
	// Limits on what should take no time.
	demoStart = 20 * time.Second
	demoDrain = 20 * time.Second
	demoEnd   = 5 * time.Second
)

func main() {
	if settings := os.Getenv(workerVariable); settings != "" {
		if err := work(settings, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	name := flag.String("engine", onRedis.name, "kind of the server: "+engineNames())
	url := flag.String("url", "", "the `URL` of a server that is no Redis")
	withRedis(func(ctx context.Context, redis string) error {
		e, err := engineOf(*name)
		switch {
		case err != nil:
			return err
		case (e == onRedis) == (*url != ""):
			return errors.New("--url names the server of another --engine; the server of a Redis is --redis")
		case e != onRedis:
			return play(ctx, os.Stdout, e, *url, e.title)
		case flag.Lookup("redis").Value.String() == "":
			return play(ctx, os.Stdout, e, redis, "an embedded Redis, "+redis[len("redis://"):])
		}
		return play(ctx, os.Stdout, e, redis, e.title)
	})
}

// play runs the whole demo. Whatever happens, no process and no file stays; the keys on a server of the user
// expire about a minute after.
func play(ctx context.Context, out io.Writer, e *engine, url, title string) error {
	started := time.Now()
	// A name of its own for each run, so that two on one server do not meet.
	lock := "demo-" + strconv.FormatInt(started.UnixMicro(), 36)
	if err := e.probe(ctx, url, lock+"-probe"); err != nil {
		return fmt.Errorf("the server cannot be used: %w", err)
	}
	dir, err := os.MkdirTemp("", "headwaiter-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	s := newScene(out, fmt.Sprintf("headwaiter demo: %d processes, one lock, on %s", demoProcesses, title))
	count := counter(filepath.Join(dir, "counter"))
	err = s.enter(e, worker{Engine: e.name, URL: url, Lock: lock, Lease: e.lasts(), Counter: count})
	if err == nil {
		err = s.run(ctx)
	}
	s.leave()
	if err != nil {
		return err
	}
	return s.conclude(out, count, started)
}

// conclude prints the verdict. It returns an error if there is a fault.
func (s *scene) conclude(out io.Writer, count counter, started time.Time) error {
	n, _, err := count.state()
	if err != nil {
		return err
	}
	now := time.Now()
	v := verdictOn(evidence{
		calls:   s.record.calls,
		lone:    s.record.lone,
		counter: n,
		step:    now.Round(0).Sub(started.Round(0)) - now.Sub(started),
	})
	v.write(out)
	if !v.ok() {
		return errors.New("the verdict has faults")
	}
	return nil
}
