package fairlock_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/crowd"
	"github.com/headwaiter/headwaiter/internal/faults"
	"github.com/headwaiter/headwaiter/internal/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// A process that crowd.Start has started is this test binary, and ends here.
func init() { crowd.Main() }

// proxy stands between a server and the clients that are dialed through it.
func proxy(t testing.TB, s redistest.Backend) *faults.Proxy {
	t.Helper()
	return faults.NewProxy(t, s.Option().InitAddress[0])
}

// through leads a client to the server of a proxy.
func through(p *faults.Proxy) func(*waitqueue.Options) {
	return func(o *waitqueue.Options) { o.Redis.InitAddress = []string{p.Addr()} }
}

// over leads a client to a server in a bubble, with the faults of the dialer.
func over(d *faults.Dialer) func(*waitqueue.Options) {
	return func(o *waitqueue.Options) { o.Redis.DialCtxFn = d.DialCtx }
}

// runs matches the commands that run a script.
func runs(s *lua.Script) func([]string) bool {
	return func(command []string) bool {
		return len(command) > 1 && (command[1] == s.SHA || command[1] == s.Source)
	}
}

// everyOther makes of a match of scripts one that lets pass every other command for the same lock.
func everyOther(match func([]string) bool) func([]string) bool {
	seen := map[string]bool{}
	return func(command []string) bool {
		if !match(command) || len(command) < 4 {
			return false
		}
		lock := command[3]
		seen[lock] = !seen[lock]
		return seen[lock]
	}
}

// notices matches the messages of a kind.
func notices(kind lua.MessageKind) func([]string) bool {
	return func(push []string) bool {
		return len(push) == 3 && push[0] == "message" && strings.HasPrefix(push[2], string(kind)+" ")
	}
}

// lostReplies waits until so many replies were lost.
func lostReplies(t testing.TB, f *faults.Faults, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d lost replies", n), func() bool {
		replies, _ := f.Lost()
		return replies >= n
	})
}

// number reads a number of the hash of a lock.
func number(t testing.TB, s redistest.Backend, name, field string) int64 {
	t.Helper()
	lock, _, _ := keysOf(name)
	return s.Int("HGET", lock, field)
}

// serverTime is the server's clock in µs.
func serverTime(s redistest.Backend) int64 {
	return s.Int("EVAL", "local t = redis.call('TIME'); return t[1] * 1000000 + t[2]", "0")
}

// median is the middle one of an odd number of spans.
func median(spans []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(spans))[len(spans)/2]
}

// free asserts that m is free and has no queue, and can be had.
func free(t testing.TB, m *fairlock.Mutex) {
	t.Helper()
	eventually(t, "a free lock without a queue", func() bool {
		info := inspect(t, m)
		return !info.Held && info.Waiting == 0
	})
	l, err := m.TryLock(context.Background())
	require.NoError(t, err)
	release(t, l)
}

// holds asserts that a hold stands, here and at the server.
func holds(t testing.TB, m *fairlock.Mutex, l *lease.Lease) {
	t.Helper()
	require.NoError(t, l.Context().Err(), "%v", context.Cause(l.Context()))
	info := inspect(t, m)
	require.True(t, info.Held)
	require.Equal(t, l.Token(), info.Token)
}

// audit sees all holds of one lock and judges them: one at a time, and tokens that rise.
type audit struct {
	mu      sync.Mutex // guards the fields below
	holder  *lease.Lease
	token   uint64
	last    *fairlock.Mutex // of the last hold
	grants  map[*fairlock.Mutex]int
	handed  int           // holds of another than the one before
	longest time.Duration // wait
	wrong   []string
}

// enter notes a hold that begins, leave one that is about to be released.
func (a *audit) enter(m *fairlock.Mutex, l *lease.Lease) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.holder != nil && a.holder.Context().Err() == nil {
		a.wrong = append(a.wrong, fmt.Sprintf("%d holds beside %d", l.Token(), a.holder.Token()))
	}
	if l.Token() <= a.token {
		a.wrong = append(a.wrong, fmt.Sprintf("token %d after %d", l.Token(), a.token))
	}
	if a.last != m {
		a.handed++
	}
	a.holder, a.token, a.last = l, l.Token(), m
	a.grants[m]++
	a.longest = max(a.longest, l.Waited())
}

func (a *audit) leave(l *lease.Lease) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.holder == l {
		a.holder = nil
	}
}

// fewest is how many holds the client has that has the fewest of n.
func (a *audit) fewest(n int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.grants) < n {
		return 0
	}
	return slices.Min(slices.Collect(maps.Values(a.grants)))
}

// contention is several clients that take and release one lock without a pause.
type contention struct {
	audit
	ctx  context.Context // ends when no more is to be taken
	stop context.CancelFunc
	work sync.WaitGroup
}

// contend starts to take and release each of the mutexes, until the end of the test at the latest.
func contend(t testing.TB, ms ...*fairlock.Mutex) *contention {
	c := &contention{}
	c.ctx, c.stop = context.WithCancel(context.Background())
	t.Cleanup(c.stop)
	c.grants = map[*fairlock.Mutex]int{}
	for _, m := range ms {
		c.work.Go(func() { c.cycle(m) })
	}
	return c
}

// cycle takes and releases until the end. An error is noted, and no end.
func (c *contention) cycle(m *fairlock.Mutex) {
	for c.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		l, err := m.Lock(ctx)
		cancel()
		if err == nil {
			c.enter(m, l)
			c.leave(l)
			err = l.Release(context.Background())
		}
		if err != nil {
			c.mu.Lock()
			c.wrong = append(c.wrong, err.Error())
			c.mu.Unlock()
		}
	}
}

// end stops the contention and asserts that nothing went wrong.
func (c *contention) end(t testing.TB) {
	t.Helper()
	c.stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.work.Wait()
	}()
	limit := time.NewTimer(2 * patience)
	defer limit.Stop()
	select {
	case <-done:
	case <-limit.C:
		t.Fatal("a call of Lock or Release does not return")
	}
	require.Empty(t, c.wrong)
}
