package gocron

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/lease"
)

const (
	// defaultAtLeast is far above what synchronized clocks are apart, and below the second that is the shortest interval
	// of a crontab.
	defaultAtLeast = 500 * time.Millisecond
	// releaseTime is how long an unlock waits for a server that does not answer. The lease ends by itself.
	releaseTime = 5 * time.Second

	defaultPrefix = "gocron:"
)

// A Locker is a gocron.Locker: for the schedulers of one process, on one client.
type Locker struct {
	client  *headwaiter.Client
	prefix  string
	atLeast time.Duration
	terms   []fairlock.Option

	mu   sync.Mutex // guards runs
	runs map[string]*run
}

var _ gocron.Locker = (*Locker)(nil)

// An Option changes how a [Locker] behaves.
type Option func(*Locker)

// WithMinHold is how long a lock stays taken from the beginning of a run, also if the job has ended before, or its process
// ([headwaiter.WithMinHold]). The default is half a second; 0 is until the end of the job.
func WithMinHold(d time.Duration) Option { return func(l *Locker) { l.atLeast = d } }

// WithPrefix is what the names of the locks begin with, ahead of those of the jobs. The default is "gocron:". Schedulers
// with different prefixes do not share their jobs.
func WithPrefix(prefix string) Option { return func(l *Locker) { l.prefix = prefix } }

// WithLock gives the locks options, such as headwaiter.WithLease: how long the job of a process that died stays locked, by
// default ten seconds.
func WithLock(opts ...fairlock.Option) Option { return func(l *Locker) { l.terms = opts } }

// NewLocker returns a Locker. Nothing is sent.
func NewLocker(c *headwaiter.Client, opts ...Option) *Locker {
	l := &Locker{
		client: c, prefix: defaultPrefix, atLeast: defaultAtLeast, runs: make(map[string]*run),
	}
	for _, o := range opts {
		o(l)
	}
	l.terms = append([]fairlock.Option{headwaiter.WithMinHold(l.atLeast)}, l.terms...)
	return l
}

// Lock locks the job with the name key, if nobody has it, and never waits for its holder: then the error is a
// lease.ErrBusy, and the run is left out.
func (l *Locker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	held, err := fairlock.New(l.client, l.prefix+key, l.terms...).TryLock(ctx)
	if err != nil {
		return nil, fmt.Errorf("gocron: job %q: %w", key, err)
	}
	r := &run{locker: l, key: key, held: held}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runs[key] = r
	return r, nil
}

// Lease is the hold of the job with the name key that runs in this process, or nil if none does. Its context ends when
// the lock is lost, its token belongs into what the job writes.
func (l *Locker) Lease(key string) *lease.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.runs[key]; r != nil {
		return r.held
	}
	return nil
}

// A run is a gocron.Lock: one run of a job.
type run struct {
	locker *Locker
	key    string
	held   *lease.Lease
}

// Unlock is called by gocron when the job has ended, with a context that may have ended with it. It says what became of
// the hold, a lease.ErrLost if it was lost; gocron asks nobody for that.
func (r *run) Unlock(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime) // That panics where there is none.
	defer cancel()
	l := r.locker
	l.mu.Lock()
	if l.runs[r.key] == r {
		delete(l.runs, r.key)
	}
	l.mu.Unlock()
	if err := r.held.Release(ctx); err != nil {
		return fmt.Errorf("gocron: unlock job %q: %w", r.key, err)
	}
	return nil
}
