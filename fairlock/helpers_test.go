package fairlock_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/waitqueue"
)

const (
	// patience is how long a test waits for what must come. What comes later has not come.
	patience = 20 * time.Second
	// glance is how often it looks for what tells nobody that it has come.
	glance = time.Millisecond
)

// each runs a case on miniredis and on redis-server, beside the other tests.
func each(t *testing.T, run func(t *testing.T, s redistest.Backend)) {
	t.Parallel()
	redistest.Each(t, run)
}

// bubble runs a case on an embedded server in a bubble, where time passes when all wait.
func bubble(t *testing.T, run func(t *testing.T, s *redistest.Embedded)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { run(t, redistest.Bubble(t)) })
}

// dial returns a client of s that is closed with the test.
func dial(t testing.TB, s redistest.Backend, changes ...func(*waitqueue.Options)) *waitqueue.Client {
	t.Helper()
	o := waitqueue.Options{Redis: s.Option(), Name: "test"}
	for _, change := range changes {
		change(&o)
	}
	c, err := waitqueue.Dial(o)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.Close(ctx) // The server may be gone; a test that wants to know closes by itself.
	})
	return c
}

// linger makes a client keep subscriptions for so long after their last use.
func linger(d time.Duration) func(*waitqueue.Options) {
	return func(o *waitqueue.Options) { o.Linger = d }
}

// nameOf is a name for the lock of a test.
func nameOf(t testing.TB) string { return strings.ReplaceAll(t.Name(), "/", ":") }

// dialMutex returns the lock of the test as a new client sees it.
func dialMutex(t testing.TB, s redistest.Backend, opts ...fairlock.Option) *fairlock.Mutex {
	t.Helper()
	return fairlock.New(dial(t, s), nameOf(t), opts...)
}

// keysOf are the keys of a lock under the default prefix: of the lock itself, its queue, its suspects.
func keysOf(name string) (lock, queue, suspects string) {
	lock = "headwaiter:lock:{" + name + "}"
	return lock, lock + ":queue", lock + ":suspects"
}

// hold locks m, which must come soon.
func hold(t testing.TB, m *fairlock.Mutex) *lease.Lease {
	t.Helper()
	return begin(t.Context(), m).granted(t)
}

// release gives a hold back.
func release(t testing.TB, l *lease.Lease) {
	t.Helper()
	require.NoError(t, l.Release(context.Background()))
}

// call is a Lock that runs in the background.
type call struct {
	done  chan struct{} // closed when it has returned; then the fields below are set
	lease *lease.Lease
	err   error
}

// begin calls m.Lock(ctx) in the background.
func begin(ctx context.Context, m *fairlock.Mutex) *call {
	c := &call{done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.lease, c.err = m.Lock(ctx)
	}()
	return c
}

// await waits until the call has returned.
func (c *call) await(t testing.TB) {
	t.Helper()
	await(t, c.done, "a call of Lock to return")
}

// granted waits for the hold.
func (c *call) granted(t testing.TB) *lease.Lease {
	t.Helper()
	c.await(t)
	require.NoError(t, c.err)
	require.NotNil(t, c.lease)
	return c.lease
}

// failed waits for the error.
func (c *call) failed(t testing.TB) error {
	t.Helper()
	c.await(t)
	require.Nil(t, c.lease)
	require.Error(t, c.err)
	return c.err
}

// returned reports whether the call has returned.
func (c *call) returned() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// await waits for the end of a channel.
func await(t testing.TB, done <-chan struct{}, what string) {
	t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	select {
	case <-done:
	case <-limit.C:
		t.Fatalf("waited %v in vain for %s", patience, what)
	}
}

// eventually waits until a state has come of which nobody tells.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(glance)
	defer tick.Stop()
	for end := time.Now().Add(patience); !is(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("waited %v in vain for %s", patience, what)
		}
	}
}

// inspect tells who holds and who waits.
func inspect(t testing.TB, m *fairlock.Mutex) waitqueue.Info {
	t.Helper()
	info, err := m.Inspect(context.Background())
	require.NoError(t, err)
	return info
}

// queued waits until so many tickets are in the queue of m.
func queued(t testing.TB, m *fairlock.Mutex, n int) {
	t.Helper()
	eventually(t, "the queue to have its length", func() bool { return inspect(t, m).Waiting == n })
}

// lost waits until the hold has ended, and returns why.
func lost(t testing.TB, l *lease.Lease) error {
	t.Helper()
	await(t, l.Context().Done(), "a hold to end")
	return context.Cause(l.Context())
}
