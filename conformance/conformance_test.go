package conformance

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func TestACorrectEnginePassesEveryCase(t *testing.T) {
	t.Parallel()
	var all sync.WaitGroup
	for _, k := range kinds() {
		for _, one := range k.cases {
			all.Go(func() {
				if said := performed(t, none, k, one); len(said) > 0 {
					t.Errorf("%s/%s says %q", k.name, one.name, said)
				}
			})
		}
	}
	all.Wait()
}

// performed returns what a case says of the engine with a bug. In its bubble no time passes while it does something.
func performed(t *testing.T, b bug, k kind, one trial) (said []string) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(b)
		defer close(m.leaks)
		said = record(t, func(tb testing.TB) { perform(tb, newStage(tb, m.engine()), k, one) })
	})
	return said
}

// recorder is the test of a case that is to fail.
type recorder struct {
	testing.TB
	ctx context.Context

	mu       sync.Mutex // guards the fields below
	failed   bool
	said     []string
	cleanups []func()
}

func (r *recorder) Helper()                  {}
func (r *recorder) Context() context.Context { return r.ctx }
func (r *recorder) Logf(string, ...any)      {}

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *recorder) fail(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
	r.said = append(r.said, text)
}

func (r *recorder) Error(args ...any)            { r.fail(fmt.Sprint(args...)) }
func (r *recorder) Errorf(f string, args ...any) { r.fail(fmt.Sprintf(f, args...)) }

func (r *recorder) Fatal(args ...any) {
	r.fail(fmt.Sprint(args...))
	runtime.Goexit()
}

func (r *recorder) Fatalf(f string, args ...any) {
	r.fail(fmt.Sprintf(f, args...))
	runtime.Goexit()
}

// record runs something as a test of its own and returns how it failed.
func record(t *testing.T, run func(testing.TB)) []string {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := &recorder{TB: t, ctx: ctx}
	apart := func(f func()) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			f()
		}()
		<-done
	}
	apart(func() { run(r) })
	cancel()
	for _, f := range slices.Backward(r.cleanups) {
		apart(f)
	}
	return r.said
}

// trialOf finds a case.
func trialOf(t *testing.T, kindName, name string) (kind, trial) {
	for _, k := range kinds() {
		for _, c := range k.cases {
			if k.name == kindName && c.name == name {
				return k, c
			}
		}
	}
	require.FailNow(t, "there is no such case", "%s/%s", kindName, name)
	return kind{}, trial{}
}

func TestEveryBugIsCaught(t *testing.T) {
	t.Parallel()
	var all sync.WaitGroup
	for _, c := range catches() {
		all.Go(func() {
			k, one := trialOf(t, c.kind, c.name)
			said := performed(t, c.bug, k, one)
			if !slices.ContainsFunc(said, c.heard) {
				t.Errorf("%s: %s/%s should say %q, it says %q", c.bug, c.kind, c.name, c.says, said)
			}
		})
	}
	all.Wait()
}

// A case that finds none of the bugs could not fail, for all that is known.
func TestEveryCaseCatchesABug(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	for _, c := range catches() {
		found[c.name] = true
	}
	for _, k := range kinds() {
		for _, c := range k.cases {
			require.True(t, found[c.name], "%s/%s", k.name, c.name)
		}
	}
}

// Subtests are named by their sentences, so these must tell the cases of a kind apart.
func TestCasesHaveNamesOfTheirOwn(t *testing.T) {
	t.Parallel()
	for _, k := range kinds() {
		seen := map[string]bool{}
		for _, c := range k.cases {
			require.NotContains(t, c.name, "/")
			require.False(t, seen[c.name], c.name)
			seen[c.name] = true
		}
	}
}

func TestWhatIsNotOfferedIsNamed(t *testing.T) {
	t.Parallel()
	m := newMemory(noChannel)
	e := m.engine()
	e.Fair, e.Fenced, e.Told, e.Wanted = false, false, false, false
	e.Errors.Deadlock = nil
	e.Dial = func(testing.TB) Client {
		c := m.dial()
		return Client{
			Mutex: func(name string, lasts time.Duration) Mutex {
				return struct{ Mutex }{c.offers().Mutex(name, lasts)} // without Waiting and Break
			},
			Close: c.finish,
		}
	}
	_, missed := planned(t, newStage(t, e))
	require.ElementsMatch(t, []string{
		"mutex: holds are in the order of the calls: it is not Fair",
		"mutex: a try overtakes nobody who waits: it is not Fair",
		"mutex: tokens rise: it is not Fenced",
		"mutex: a bound context ends with a loss: losses are not Told",
		"mutex: a loss is told to its holder: losses are not Told",
		"mutex: a release after a loss says so and frees nothing: it has no Break",
		"mutex: an Unlock after a loss does nothing: it has no Break",
		"mutex: a holder that asks is told when somebody waits: it is not told when it is Wanted",
		"mutex: a hold is told how the one before it ended: it has no Break",
		"mutex: an Unlock that is cut off costs a lease: the client has no Cut",
		"mutex: Do tells a loss: losses are not Told",
		"mutex: a holder that is cut off loses its hold: the client has no Cut",
		"mutex: a waiter that is cut off holds up nobody: the client has no Cut",
		"mutex: a client that is cut off can be closed: the client has no Cut",
		"mutex: a release waits for a silent server no longer than the lease: the client has no Silence",
		"mutex: a wait says that it was the server that was silent: the client has no Silence",
		"mutex: a client can be closed though the server is silent: the client has no Silence",
		"mutex: Do waits for a silent server no longer than the lease: the client has no Silence",
		"mutex: a call from within its own hold is a deadlock: Errors.Deadlock is not set",
		"mutex: a full queue refuses at once, and nobody who waits: the client has no Limited",
		"mutex: what a client keeps is given back to who wants it: the client has no Kept",
		"mutex: a hold is handed over once, ahead of the queue: the client has no Adopt",
		"mutex: kinds of one name do not meet: nothing else is offered",
		"reentrant: it is not offered", "rwlock: it is not offered", "semaphore: it is not offered",
		"latch: it is not offered", "barrier: it is not offered",
	}, missed)
}

// What is promised must be shown, and what is needed be given.
func TestAnEngineThatCannotBeTriedIsAFailure(t *testing.T) {
	t.Parallel()
	bare := func(change func(*Engine, *Client)) []string {
		return record(t, func(tb testing.TB) {
			m := newMemory(none)
			e := m.engine()
			c := m.dial()
			offered := Client{
				Mutex: func(name string, lasts time.Duration) Mutex { return struct{ Mutex }{c.offers().Mutex(name, lasts)} },
				Close: c.finish,
			}
			change(&e, &offered)
			if e.Dial != nil {
				e.Dial = func(testing.TB) Client { return offered }
			}
			planned(tb, newStage(tb, e))
		})
	}
	said := strings.Join(bare(func(*Engine, *Client) {}), "\n")
	require.Contains(t, said, "Fair is promised, but the mutex has no Waiting")
	require.Contains(t, said, "Told is promised, but the mutex has no Break and the client no Cut")
	for want, change := range map[string]func(*Engine, *Client){
		"no Dial":       func(e *Engine, _ *Client) { e.Dial = nil },
		"Errors.Busy":   func(e *Engine, _ *Client) { e.Errors.Busy = nil },
		"Errors.Closed": func(e *Engine, _ *Client) { e.Errors.Closed = nil },
		"Lease":         func(e *Engine, _ *Client) { e.Lease = -1 },
		"Patience":      func(e *Engine, _ *Client) { e.Patience = -1 },
		"no Close":      func(_ *Engine, c *Client) { c.Close = nil },
		"nothing":       func(_ *Engine, c *Client) { c.Mutex = nil },
	} {
		require.Contains(t, strings.Join(bare(change), "\n"), want)
	}
}
