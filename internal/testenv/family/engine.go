package family

import (
	"context"
	"crypto/tls"
	"net"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/barrier"
	"github.com/headwaiter/headwaiter/conformance"
	"github.com/headwaiter/headwaiter/countdown"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/enginetest"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/reentrant"
	"github.com/headwaiter/headwaiter/rwlock"
	"github.com/headwaiter/headwaiter/semaphore"
)

// Engine is this library on the server that an option leads to, as it is delivered except for the changes, with all that
// conformance can try.
func Engine(server func() rueidis.ClientOption, changes ...func(*headwaiter.Options)) conformance.Engine {
	return conformance.Engine{
		Dial: func(t testing.TB) conformance.Client { return dial(t, server(), changes) },
		Fair: true, Fenced: true, Told: true, Wanted: true, Remembers: true,
		Errors: conformance.Errors{
			Busy: lease.ErrBusy, Closed: lease.ErrClosed, Deadlock: lease.ErrDeadlock,
			Upgrade: lease.ErrUpgrade, Name: lease.ErrInvalid, TooLarge: lease.ErrTooLarge,
			Unset: countdown.ErrUnset, Broken: barrier.ErrBroken,
		},
	}
}

func dial(t testing.TB, server rueidis.ClientOption, changes []func(*headwaiter.Options)) conformance.Client {
	t.Helper()
	w, connect := &enginetest.Wires{}, server.DialCtxFn
	if connect == nil {
		connect = usual
	}
	server.DialCtxFn = func(ctx context.Context, address string, d *net.Dialer, t *tls.Config) (net.Conn, error) {
		return w.Over(func() (net.Conn, error) { return connect(ctx, address, d, t) })
	}
	o := headwaiter.Options{Redis: server, Name: "conformance"}
	for _, change := range changes {
		change(&o)
	}
	c, err := headwaiter.Dial(o)
	require.NoError(t, err)
	return conformance.Client{
		Mutex: func(name string, d time.Duration) conformance.Mutex {
			return mutex{fairlock.New(c, name, headwaiter.WithLease(d))}
		},
		Reentrant: func(name string, d time.Duration) conformance.Reentrant {
			return reentrantMutex{reentrant.New(c, name, headwaiter.WithLease(d))}
		},
		RWLock: func(name string, d time.Duration) conformance.RWLock {
			return rwMutex{rwlock.New(c, name, headwaiter.WithLease(d))}
		},
		Semaphore: func(name string, permits int64, d time.Duration) conformance.Semaphore {
			return permitSemaphore{semaphore.New(c, name, permits, headwaiter.WithLease(d))}
		},
		Latch: func(name string) conformance.Latch { return latch{countdown.New(c, name)} },
		Barrier: func(name string, parties int, d time.Duration) conformance.Barrier {
			return barrier.New(c, name, parties, headwaiter.WithLease(d))
		},
		Limited: func(name string, waiters int, d time.Duration) conformance.Mutex {
			return mutex{fairlock.New(c, name, headwaiter.WithLease(d), headwaiter.WithQueueLimit(waiters))}
		},
		Kept: func(name string, d time.Duration) conformance.Mutex {
			return mutex{fairlock.New(c, name, headwaiter.WithLease(d), fairlock.WithKeep(time.Minute))}
		},
		Adopt: func(ctx context.Context, text string, d time.Duration) (*lease.Lease, error) {
			return fairlock.Adopt(ctx, c, text, headwaiter.WithLease(d))
		},
		Close: c.Shutdown,
		Cut:   w.Cut, Silence: w.Silence,
	}
}

// Patient is for a machine that may be busy: no hold is lost because its first renewal has to wait.
func Patient(o *headwaiter.Options) { o.GrantLease = kit.Patience }

// Polling does without subscriptions.
func Polling(o *headwaiter.Options) { o.WithoutSubscribe = true }

// usual connects as rueidis does.
func usual(ctx context.Context, address string, d *net.Dialer, t *tls.Config) (net.Conn, error) {
	if t != nil {
		return (&tls.Dialer{NetDialer: d, Config: t}).DialContext(ctx, "tcp", address)
	}
	return d.DialContext(ctx, "tcp", address)
}

// Uncounted is an engine where nobody can count who listens to a channel, so a latch does not tell how many wait.
func Uncounted(e conformance.Engine) conformance.Engine {
	dial := e.Dial
	e.Dial = func(t testing.TB) conformance.Client {
		t.Helper()
		c := dial(t)
		counted := c.Latch
		c.Latch = func(name string) conformance.Latch { return struct{ conformance.Latch }{counted(name)} }
		return c
	}
	return e
}

// The primitives tell who waits, and lose what they hold.
type (
	mutex           struct{ *fairlock.Mutex }
	reentrantMutex  struct{ *reentrant.Mutex }
	rwMutex         struct{ *rwlock.RWMutex }
	permitSemaphore struct{ *semaphore.Semaphore }
	latch           struct{ *countdown.Latch }
)

func (m mutex) Waiting(ctx context.Context) (int, error)           { return queue(m.Inspect(ctx)) }
func (m reentrantMutex) Waiting(ctx context.Context) (int, error)  { return queue(m.Inspect(ctx)) }
func (m rwMutex) Waiting(ctx context.Context) (int, error)         { return queue(m.Inspect(ctx)) }
func (m permitSemaphore) Waiting(ctx context.Context) (int, error) { return queue(m.Inspect(ctx)) }
func (m latch) Waiting(ctx context.Context) (int, error)           { return queue(m.Inspect(ctx)) }

func queue(info lease.Info, err error) (int, error) { return info.Waiting, err }

func (m mutex) Break(ctx context.Context) error {
	_, err := m.ForceRelease(ctx, 0)
	return err
}

func (m reentrantMutex) Break(ctx context.Context) error {
	_, err := m.ForceRelease(ctx, 0)
	return err
}

func (m rwMutex) Break(ctx context.Context) error {
	return freeAll(ctx, m.Inspect, m.ForceReleaseHolder)
}

func (m permitSemaphore) Break(ctx context.Context) error {
	return freeAll(ctx, m.Inspect, func(ctx context.Context, h lease.Holder) (lease.Holder, error) { return m.ForceRelease(ctx, h.Token) })
}

// freeAll takes away the holds of a name that several may hold.
func freeAll(ctx context.Context, inspect func(context.Context) (lease.Info, error),
	free func(context.Context, lease.Holder) (lease.Holder, error),
) error {
	info, err := inspect(ctx)
	for _, h := range info.Holders {
		if err == nil {
			_, err = free(ctx, h)
		}
	}
	return err
}
