package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headwaiter/headwaiter/internal/keeper"
	"github.com/headwaiter/headwaiter/lease"
)

// everybody is what a writer takes.
const everybody = 1 << 20

// offers is the client as a run sees it.
func (c *client) offers() Client {
	named := func(kind, name string, limit, n int64, lasts time.Duration) *lock {
		if c.bug == oneKind {
			kind = ""
		}
		return &lock{client: c, name: name, path: kind + name, limit: limit, n: n, lasts: lasts}
	}
	return Client{
		Mutex: func(name string, lasts time.Duration) Mutex { return &mutex{named("mutex ", name, 1, 1, lasts)} },
		Reentrant: func(name string, lasts time.Duration) Reentrant {
			return &reentrant{named("reentrant ", name, 1, 1, lasts)}
		},
		RWLock: func(name string, lasts time.Duration) RWLock {
			return &rwlock{named("rwlock ", name, everybody, everybody, lasts)}
		},
		Semaphore: func(name string, permits int64, lasts time.Duration) Semaphore {
			return &semaphore{named("semaphore ", name, permits, 0, lasts)}
		},
		Latch:   func(name string) Latch { return &latchOf{c, name} },
		Barrier: func(name string, n int, lasts time.Duration) Barrier { return &barrierOf{c, name, n, lasts} },
		Limited: func(name string, waiters int, lasts time.Duration) Mutex {
			m := named("mutex ", name, 1, 1, lasts)
			m.room = waiters
			return &mutex{m}
		},
		Kept: func(name string, lasts time.Duration) Mutex {
			m := named("mutex ", name, 1, 1, lasts)
			if c.bug == keptForGood {
				m.path += " kept" // As if it could be had without the others.
			}
			return &mutex{m}
		},
		Adopt:   c.adopt,
		Close:   c.finish,
		Cut:     c.cut,
		Silence: c.silence,
	}
}

// A lock is a name that can be held, as a client sees it.
type lock struct {
	client *client
	name   string
	path   string
	limit  int64
	n      int64
	lasts  time.Duration
	room   int // for waiters; 0: for any number
}

// heldKey finds the lease on a lock in a context.
type heldKey struct {
	client *client
	path   string
}

func (l *lock) key() heldKey { return heldKey{l.client, l.path} }

// within is the hold of this lock that ctx comes from.
func (l *lock) within(ctx context.Context) *hold {
	found, is := ctx.Value(l.key()).(*keeper.Keeper)
	if !is {
		return nil
	}
	for _, h := range l.site().held {
		if slices.ContainsFunc(h.keepers, func(k *keeper.Keeper) bool { return k == found }) {
			return h
		}
	}
	return nil
}

func (l *lock) site() *site { return l.client.site(l.path, l.limit) }

func (l *lock) named() error {
	switch {
	case l.client.bug == anyName:
		return nil
	case l.name == "" || strings.Contains(l.name, "\x00"):
		return fmt.Errorf("%w: %q", errName, l.name)
	case len(l.name) > 512:
		return fmt.Errorf("%w: a name of %d bytes", errTooLarge, len(l.name))
	}
	return nil
}

func (l *lock) take(ctx context.Context, n int64, try bool) (*lease.Lease, error) {
	if err := l.named(); err != nil {
		return nil, err
	}
	l.client.mu.Lock()
	s := l.site()
	l.client.mu.Unlock()
	return l.client.acquire(ctx, s, ticket{n: n, lasts: l.lasts, key: l.key(), room: l.room}, try)
}

func (l *lock) do(
	ctx context.Context, take func(context.Context) (*lease.Lease, error), f func(context.Context) error,
) error {
	held, err := take(ctx)
	bug := l.client.bug
	if err != nil {
		if bug == doAnyway {
			return errors.Join(f(ctx), err)
		}
		return err
	}
	inner, cancel := context.WithCancelCause(held.Context())
	defer cancel(nil)
	if bug != doesNotListen {
		defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
	}
	if bug == doReleasesFirst {
		_ = held.Release(context.Background())
	}
	released := false
	defer func() {
		if !released && bug != keepsPanicked {
			_ = held.Release(context.Background())
		}
	}()
	err = f(inner)
	if bug == swallows {
		err = nil
	}
	released = true
	if ended := held.Release(context.Background()); ended != nil && bug != doForgetsLoss && bug != doReleasesFirst {
		err = errors.Join(err, ended)
	}
	return err
}

func (l *lock) Waiting(context.Context) (int, error) {
	l.client.mu.Lock()
	defer l.client.mu.Unlock()
	return len(l.site().queue), nil
}

func (l *lock) Break(context.Context) error {
	m := l.client.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, h := range slices.Clone(l.site().held) {
		if m.bug == plainCause {
			m.drop(h, errors.New("gone"))
			continue
		}
		m.drop(h, lease.ErrForced)
	}
	return nil
}

type mutex struct{ *lock }

func (m *mutex) take1(ctx context.Context, try bool) (*lease.Lease, error) {
	m.client.mu.Lock()
	inside := m.within(ctx) != nil
	m.client.mu.Unlock()
	if m.client.bug == remembersHolds {
		_, inside = ctx.Value(m.key()).(*keeper.Keeper)
	}
	if inside && m.client.bug != waitsForItself {
		return nil, errDeadlock
	}
	return m.take(ctx, 1, try)
}

func (m *mutex) Lock(ctx context.Context) (*lease.Lease, error)    { return m.take1(ctx, false) }
func (m *mutex) TryLock(ctx context.Context) (*lease.Lease, error) { return m.take1(ctx, true) }
func (m *mutex) Do(ctx context.Context, f func(context.Context) error) error {
	return m.do(ctx, m.Lock, f)
}

type reentrant struct{ *lock }

func (r *reentrant) enter(ctx context.Context, try bool) (*lease.Lease, error) {
	m := r.client.memory
	m.mu.Lock()
	h := r.within(ctx)
	s := r.site()
	if m.bug == entersByClient && h == nil && len(s.held) > 0 && s.held[0].client == r.client {
		h = s.held[0]
	}
	if h == nil || m.bug == neverEnters || m.bug == entersInTurn && len(s.queue) > 0 {
		m.mu.Unlock()
		return r.take(ctx, 1, try)
	}
	defer m.mu.Unlock()
	if m.bug == entersAnew {
		m.token++
		h.token = m.token
	}
	k := m.keeper(ctx, h)
	h.keepers = append(h.keepers, k)
	return (*lease.Lease)(k), nil
}

func (r *reentrant) Lock(ctx context.Context) (*lease.Lease, error)    { return r.enter(ctx, false) }
func (r *reentrant) TryLock(ctx context.Context) (*lease.Lease, error) { return r.enter(ctx, true) }
func (r *reentrant) Do(ctx context.Context, f func(context.Context) error) error {
	return r.do(ctx, r.Lock, f)
}

func (r *reentrant) HoldCount(ctx context.Context) int {
	r.client.mu.Lock()
	defer r.client.mu.Unlock()
	if h := r.within(ctx); h != nil {
		return len(h.keepers)
	}
	return 0
}

type rwlock struct{ *lock }

func (r *rwlock) write(ctx context.Context, try bool) (*lease.Lease, error) {
	r.client.mu.Lock()
	reads := r.within(ctx) != nil
	r.client.mu.Unlock()
	if reads && r.client.bug != waitsForItself {
		return nil, errUpgrade
	}
	return r.take(ctx, everybody, try)
}

func (r *rwlock) Lock(ctx context.Context) (*lease.Lease, error)     { return r.write(ctx, false) }
func (r *rwlock) TryLock(ctx context.Context) (*lease.Lease, error)  { return r.write(ctx, true) }
func (r *rwlock) RLock(ctx context.Context) (*lease.Lease, error)    { return r.take(ctx, 1, false) }
func (r *rwlock) TryRLock(ctx context.Context) (*lease.Lease, error) { return r.take(ctx, 1, true) }

func (r *rwlock) Do(ctx context.Context, f func(context.Context) error) error {
	return r.do(ctx, r.Lock, f)
}

func (r *rwlock) Downgrade(_ context.Context, l *lease.Lease) error {
	m := r.client.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, h := range r.site().held {
		if h.keepers[0] != (*keeper.Keeper)(l) {
			continue
		}
		switch m.bug {
		case downgradesNothing:
		case downgradeReleases:
			m.drop(h, lease.ErrForced)
		default:
			h.n = 1
			m.advance(h.site)
		}
		return nil
	}
	if m.bug == downgradesAnything {
		for _, h := range r.site().held {
			h.n = 1
		}
		return nil
	}
	return context.Cause(l.Context())
}

type semaphore struct{ *lock }

func (s *semaphore) acquire(ctx context.Context, n int64, try bool) (*lease.Lease, error) {
	s.client.mu.Lock()
	limit := s.site().limit
	s.client.mu.Unlock()
	if s.client.bug != takesAnything && (n < 1 || limit < 1) {
		return nil, errors.New("count")
	}
	if n > limit && s.client.bug != neverTooLarge {
		return nil, errTooLarge
	}
	return s.take(ctx, n, try)
}

func (s *semaphore) Acquire(ctx context.Context, n int64) (*lease.Lease, error) {
	return s.acquire(ctx, n, false)
}

func (s *semaphore) TryAcquire(ctx context.Context, n int64) (*lease.Lease, error) {
	return s.acquire(ctx, n, true)
}

func (s *semaphore) Do(ctx context.Context, n int64, f func(context.Context) error) error {
	return s.do(ctx, func(ctx context.Context) (*lease.Lease, error) { return s.Acquire(ctx, n) }, f)
}

func (s *semaphore) Available(context.Context) (int64, error) {
	s.client.mu.Lock()
	defer s.client.mu.Unlock()
	if s.client.bug == countHolders {
		return s.site().limit - int64(len(s.site().held)), nil
	}
	return s.site().limit - s.site().used(), nil
}

func (s *semaphore) Resize(_ context.Context, permits int64) error {
	s.client.mu.Lock()
	defer s.client.mu.Unlock()
	s.site().limit = permits
	if s.client.bug != resizesSilently {
		s.client.advance(s.site())
	}
	return nil
}
