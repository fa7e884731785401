// Package kit is what the tests of all primitives share: servers, clients, and calls that run at the same time as the test.
package kit

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/must"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
)

const (
	// Patience is how long a test waits for what must come. What comes later has not come.
	Patience = 20 * time.Second
	// glance is how often it looks for what tells nobody that it has come.
	glance = time.Millisecond
)

// Each runs a case on miniredis and on redis-server, in parallel with other tests.
func Each(t *testing.T, run func(t *testing.T, s redistest.Backend)) {
	t.Parallel()
	redistest.Each(t, run)
}

// Bubble runs a case on an embedded server in a bubble, where time passes when all wait.
func Bubble(t *testing.T, run func(t *testing.T, s *redistest.Embedded)) {
	t.Parallel()
	redistest.InBubble(t, run)
}

// EachBehind is Each with a proxy before the server.
func EachBehind(t *testing.T, run func(t *testing.T, s redistest.Backend, p *faults.Proxy)) {
	Each(t, func(t *testing.T, s redistest.Backend) { run(t, s, Proxy(t, s)) })
}

// BubbleOver is Bubble with a dialer that has faults.
func BubbleOver(t *testing.T, run func(t *testing.T, s *redistest.Embedded, d *faults.Dialer)) {
	Bubble(t, func(t *testing.T, s *redistest.Embedded) { run(t, s, faults.NewDialer(t, s.Dial)) })
}

// BubbleOf is Bubble for a case of several in a test.
func BubbleOf(t *testing.T, name string, run func(t *testing.T, s *redistest.Embedded)) {
	t.Run(name, func(t *testing.T) { Bubble(t, run) })
}

// EachOf is Each for a case of several in a test.
func EachOf(t *testing.T, name string, run func(t *testing.T, s redistest.Backend)) {
	t.Run(name, func(t *testing.T) { Each(t, run) })
}

// Parallel runs a case of a test in parallel with the other cases.
func Parallel(t *testing.T, name string, run func(t *testing.T)) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		run(t)
	})
}

// Start starts a redis-server for a test that runs in parallel with others.
func Start(t *testing.T, opts ...redistest.Option) *redistest.Server {
	t.Parallel()
	return redistest.Start(t, opts...)
}

// Within is a context that ends after some time, or with the test.
func Within(t testing.TB, limit time.Duration) context.Context { return must.Within(t, limit) }

// Dial returns a client of s that is closed with the test.
func Dial(t testing.TB, s interface{ Option() rueidis.ClientOption }, changes ...func(*headwaiter.Options)) *headwaiter.Client {
	t.Helper()
	o := headwaiter.Options{Redis: s.Option(), Name: "test"}
	for _, change := range changes {
		change(&o)
	}
	c, err := headwaiter.Dial(o)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.Shutdown(ctx) // The server may be gone; a test that wants to know closes by itself.
		require.Zero(t, c.Stats().Refused, "steps of tickets that the documentation of package waitqueue does not list")
	})
	return c
}

// Closing ends a client with the test. Its server may be gone; a test that wants to know closes by itself.
func Closing(t testing.TB, shutdown func(context.Context) error) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = shutdown(ctx)
	})
}

// Name is a name for the primitive of a test.
func Name(t testing.TB) string { return strings.ReplaceAll(t.Name(), "/", ":") }

// Got is what a call returned that must not fail: kit.Got(m.Lock(ctx))(t).
func Got[T any](value T, err error) func(t testing.TB) T { return must.Got(value, err) }

// Err is the error of a call that returns something else too, which the test does not need.
func Err[T any](value T, err error) error { return must.Err(value, err) }

// Fails asserts what an error is, where an error is given, and what it says, where a text is.
func Fails(t testing.TB, err error, wanted ...any) {
	t.Helper()
	must.Fails(t, err, wanted...)
}

// As is the error of its type that an error must be.
func As[E error](t testing.TB, err error) E {
	t.Helper()
	return must.As[E](t, err)
}

// A Call runs at the same time as the test.
type Call[T any] struct {
	done  chan struct{} // closed when it has returned; then the fields below are set
	value T
	err   error
}

// Go begins a call.
func Go[T any](f func() (T, error)) *Call[T] {
	c := &Call[T]{done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.value, c.err = f()
	}()
	return c
}

// Run begins a call that returns an error alone.
func Run(f func() error) *Call[struct{}] {
	return Go(func() (struct{}, error) { return struct{}{}, f() })
}

// Lock begins a call that acquires something.
func Lock(ctx context.Context, lock func(context.Context) (*lease.Lease, error)) *Call[*lease.Lease] {
	return Go(func() (*lease.Lease, error) { return lock(ctx) })
}

// Returned reports whether the call has returned.
func (c *Call[T]) Returned() bool { return Closed(c.done) }

// Value waits until the call has returned without an error, and returns what it did.
func (c *Call[T]) Value(t testing.TB) T {
	t.Helper()
	Await(t, c.done, "a call to return")
	require.NoError(t, c.err)
	return c.value
}

// Err waits until the call has returned, and returns its error.
func (c *Call[T]) Err(t testing.TB) error {
	t.Helper()
	Await(t, c.done, "a call to return")
	return c.err
}

// Joins begins a call that waits, as the n-th.
func Joins(t testing.TB, n int, lock func(context.Context) (*lease.Lease, error), inspect func(context.Context) (lease.Info, error)) *Call[*lease.Lease] {
	t.Helper()
	c := Lock(t.Context(), lock)
	Waiting(t, n, inspect)
	return c
}

// Release gives holds back.
func Release(t testing.TB, all ...*lease.Lease) {
	t.Helper()
	for _, l := range all {
		require.NoError(t, l.Release(context.Background()))
	}
}

// Next gives a hold back and returns the one of a call that waits for it, which has a higher token.
func Next(t testing.TB, l *lease.Lease, waiter *Call[*lease.Lease]) *lease.Lease {
	t.Helper()
	Release(t, l)
	next := waiter.Value(t)
	require.Greater(t, next.Token(), l.Token())
	return next
}

// Cancel ends the context of a call, which says so.
func Cancel[T any](t testing.TB, cancel func(), c *Call[T]) {
	t.Helper()
	cancel()
	require.ErrorIs(t, c.Err(t), context.Canceled)
}

// PassOn gives a hold back, and so does each of its waiters, in their order.
func PassOn(t testing.TB, l *lease.Lease, waiters ...*Call[*lease.Lease]) {
	t.Helper()
	Release(t, l)
	for _, next := range waiters {
		Release(t, next.Value(t))
	}
}

// Lost waits until a hold has ended, and returns why.
func Lost(t testing.TB, l *lease.Lease) error {
	t.Helper()
	Await(t, l.Context().Done(), "a hold to end")
	return context.Cause(l.Context())
}

// Closed reports whether a channel has ended.
func Closed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// Await waits for the end of a channel.
func Await(t testing.TB, done <-chan struct{}, what string) {
	t.Helper()
	limit := time.NewTimer(Patience)
	defer limit.Stop()
	select {
	case <-done:
	case <-limit.C:
		t.Fatalf("waited %v in vain for %s", Patience, what)
	}
}

// Eventually waits until a state has come that nobody reports.
func Eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(glance)
	defer tick.Stop()
	for end := time.Now().Add(Patience); !is(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("waited %v in vain for %s", Patience, what)
		}
	}
}

// Waiting waits until n tickets wait for what inspect looks at.
func Waiting(t testing.TB, n int, inspect func(context.Context) (lease.Info, error)) {
	t.Helper()
	Eventually(t, "the queue to have its length", func() bool {
		info, err := inspect(context.Background())
		require.NoError(t, err)
		return info.Waiting == n
	})
}

// Free asserts that a lock is free and has no queue, soon, and can be had.
func Free(t testing.TB, lock interface {
	Inspect(context.Context) (lease.Info, error)
	TryLock(context.Context) (*lease.Lease, error)
}) {
	t.Helper()
	Eventually(t, "a free lock without a queue", func() bool {
		info, err := lock.Inspect(context.Background())
		require.NoError(t, err)
		return !info.Held && info.Used == 0 && info.Waiting == 0
	})
	l, err := lock.TryLock(context.Background())
	require.NoError(t, err)
	Release(t, l)
}

// All waits for a group of goroutines.
func All(t testing.TB, g *sync.WaitGroup) {
	t.Helper()
	AllMoving(t, g, func() int64 { return 0 })
}

// AllMoving waits for a group of goroutines that count the turns they take: for as long as there is a turn now and then,
// since how long all of them take is the machine's.
func AllMoving(t testing.TB, g *sync.WaitGroup, turns func() int64) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.Wait()
	}()
	limit := time.NewTicker(Patience)
	defer limit.Stop()
	for before := int64(-1); ; {
		select {
		case <-done:
			return
		case <-limit.C:
			now := turns()
			if now == before || now == 0 {
				t.Fatalf("waited %v in vain for all goroutines to end (%d turns)", Patience, now)
			}
			before = now
		}
	}
}

// Until is the server's end of the lease of a lock, by its key; 0 if nobody holds it.
func Until(s interface{ Do(args ...string) any }, lock string) int64 {
	f := s.Do("HMGET", lock, "owner", "until", "token").([]any)
	owner, held := f[0].(string)
	till, told := f[1].(string)
	if !held {
		return 0
	}
	if told {
		n, _ := strconv.ParseInt(till, 10, 64)
		return n
	}
	token, _ := strconv.ParseInt(f[2].(string), 10, 64)
	return token + wire.TicketLease(owner).Microseconds()
}

// Spent is how many checks and renewals the clients have sent, which come with time, and messages heard.
func Spent(first *headwaiter.Client, others []*headwaiter.Client) (looks, messages uint64) {
	for _, c := range append([]*headwaiter.Client{first}, others...) {
		looks += c.Stats().Checks + c.Stats().Renewals
		messages += c.Stats().Messages
	}
	return looks, messages
}
