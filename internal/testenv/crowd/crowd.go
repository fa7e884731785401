//go:build unix

// Package crowd runs clients in a process of their own, for tests that kill or stop them.
//
// The process is the test binary itself: a package whose tests start one calls [Main] before its tests
// run, in an init function or in TestMain.
package crowd

import (
	"encoding/json"
	"errors"
	"io"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headwaiter/headwaiter/internal/testenv/evidence"
)

// planVariable is the environment variable that makes a process a child, and tells it what to do.
const planVariable = "HEADWAITER_CROWD"

// A Plan is what the clients of the process do.
type Plan struct {
	Addr    string        // of the server
	Kind    string        // of call; see Lock
	Names   []string      // of the locks
	Clients int           // how many
	Waiters int           // how many calls each client makes for each name, at the same time
	Lease   time.Duration // of a hold
	Keep    bool          // hold until told to release; otherwise each hold is released at once
	Permits int64         // that a semaphore has
	N       int64         // permits that each call acquires; 0 stands for 1
	Entries int           // how many times each hold is entered again, and kept so
}

// Kinds of event.
const (
	Held     = "held"
	Released = "released"
	Failed   = "failed" // the call returned an error
	Watching = "watching"
	Looked   = "looked" // the first look at the context of a hold after the process was stopped
)

// An Event is what happened to one call or hold.
type Event struct {
	Kind   string
	Name   string
	Client string
	Token  uint64
	Error  string // of the call, of Release, or of the context of the hold
	Lost   bool   // whether that is a lease.ErrLost
}

// What a child can be told.
const (
	watch   = "watch"
	release = "release"
	unlock  = "unlock"
)

// A Crowd is one process. It ends with the test.
type Crowd struct {
	t     testing.TB
	child Child
	ended chan struct{} // closed when the process has ended and all its events are here

	mu     sync.Mutex // guards events and news
	events []Event
	news   chan struct{} // closed and replaced with each event
}

// Start runs a process with the given plan.
func Start(t testing.TB, p Plan) *Crowd {
	t.Helper()
	plan, err := json.Marshal(p)
	if err != nil {
		t.Fatalf("crowd: %v", err)
	}
	c := &Crowd{t: t, child: Fork(t, planVariable, string(plan)), ended: make(chan struct{}), news: make(chan struct{})}
	go c.follow()
	t.Cleanup(c.end)
	return c
}

// follow collects the events until the process ends.
func (c *Crowd) follow() {
	defer close(c.ended)
	lines := c.child.Lines
	for lines.Scan() {
		var e Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			e = Event{Kind: Failed, Error: "crowd: " + lines.Text()}
		}
		c.mu.Lock()
		c.events = append(c.events, e)
		close(c.news)
		c.news = make(chan struct{})
		c.mu.Unlock()
	}
	// How it ended is for the test to judge.
	_ = c.child.Cmd.Wait()
}

// Await returns the events of a kind when there are n of them, and fails the test if they do not come
// within the limit.
func (c *Crowd) Await(kind string, n int, limit time.Duration) []Event {
	c.t.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		c.mu.Lock()
		all, news := slices.Clone(c.events), c.news
		c.mu.Unlock()
		found := slices.DeleteFunc(slices.Clone(all), func(e Event) bool { return e.Kind != kind })
		if len(found) >= n {
			return found
		}
		select {
		case <-news:
		case <-c.ended:
			c.t.Fatalf("crowd: the process ended with %d of %d events %q: %+v", len(found), n, kind, all)
		case <-timer.C:
			c.t.Fatalf("crowd: %d of %d events %q within %v, of all: %+v", len(found), n, kind, limit, all)
		}
	}
}

// Watch makes the process look at the contexts of its holds without a pause, until it has been stopped
// for longer than a lease or they end, and returns when it does. A [Looked] for each hold tells how its
// context was at the first look after that.
func (c *Crowd) Watch() {
	c.t.Helper()
	c.tell(watch)
	c.Await(Watching, 1, time.Minute)
}

// Release makes the process release what it keeps; a [Released] for each hold tells the outcome.
func (c *Crowd) Release() {
	c.t.Helper()
	c.tell(release)
}

// UnlockAndDie makes the process unlock what it keeps and kill itself right after that, and returns when it is gone.
func (c *Crowd) UnlockAndDie() {
	c.t.Helper()
	c.tell(unlock)
	<-c.ended
	evidence.Fault(c.t, "process killed", 1)
}

func (c *Crowd) tell(command string) {
	c.t.Helper()
	if _, err := io.WriteString(c.child.Input, command+"\n"); err != nil {
		c.t.Fatalf("crowd: %v", err)
	}
}

// Kill ends the process with SIGKILL, also a stopped one, and returns when it is gone.
func (c *Crowd) Kill() {
	select {
	case <-c.ended:
	default:
		evidence.Fault(c.t, "process killed", 1)
	}
	c.end()
}

func (c *Crowd) end() {
	_ = c.child.Cmd.Process.Kill()
	<-c.ended
}

// Stop suspends the process with SIGSTOP: its connections stay open and nothing answers. It returns when all threads
// of the process stand still, which is later than the signal.
func (c *Crowd) Stop() {
	c.t.Helper()
	c.signal(syscall.SIGSTOP)
	for {
		var status syscall.WaitStatus
		if _, err := syscall.Wait4(c.child.Cmd.Process.Pid, &status, syscall.WUNTRACED, nil); errors.Is(err, syscall.EINTR) {
			continue
		} else if err != nil {
			c.t.Fatalf("crowd: wait for the stop: %v", err)
		}
		if !status.Stopped() {
			c.t.Fatalf("crowd: the process ended before it stopped: %v", status)
		}
		evidence.Fault(c.t, "process stopped", 1)
		return
	}
}

// Cont lets a stopped process go on.
func (c *Crowd) Cont() { c.signal(syscall.SIGCONT) }

func (c *Crowd) signal(s syscall.Signal) {
	c.t.Helper()
	if err := c.child.Cmd.Process.Signal(s); err != nil {
		c.t.Fatalf("crowd: %v: %v", s, err)
	}
}
