package redlock

import (
	"fmt"
	"time"

	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// settings are how a Mutex asks for its name and holds it.
type settings struct {
	lease    time.Duration
	timeout  time.Duration // of a node
	maxHold  time.Duration
	priority int
	trustful bool // a node that has just started is believed
}

// An Option sets how a [Mutex] is asked for and held. All who use a name should use the same options.
type Option func(*settings)

// WithLease sets for how long a vote lasts unless it is renewed, which each node's client does at a third of it: how
// long the others wait if the holder dies. The default is [lease.DefaultLease], the least [MinLease].
func WithLease(d time.Duration) Option { return func(s *settings) { s.lease = d } }

// WithTimeout sets how long a node may take to answer before it counts as one that does not. It should be small
// against the lease and several round trips long. The default is a twentieth of the lease, from 50 ms to 1 s.
func WithTimeout(d time.Duration) Option { return func(s *settings) { s.timeout = d } }

// WithMaxHold ends a hold after d at the latest, renewed or not: its context ends with the cause
// [lease.ErrMaxHold]. The default is no such end.
func WithMaxHold(d time.Duration) Option { return func(s *settings) { s.maxHold = d } }

// WithPriority gives calls a head start of so many steps of [waitqueue.PriorityStep], as with a fair lock.
func WithPriority(p int) Option { return func(s *settings) { s.priority = p } }

// WithoutSafeRestart believes a node that came up less than a lease ago, which may have forgotten a vote: then the
// restart of one node can let two hold. The default is that such a node has no vote until a lease is over; see
// [waitqueue.WithSafeRestart]. It is for servers that do not answer INFO.
func WithoutSafeRestart() Option { return func(s *settings) { s.trustful = true } }

const (
	// MinLease: what is shorter leaves no time for nodes that are slow.
	MinLease = 100 * time.Millisecond

	timeoutShare = 20 // of the lease
	leastTimeout = 50 * time.Millisecond
	mostTimeout  = time.Second
)

func with(opts []Option) settings {
	s := settings{lease: lease.DefaultLease}
	for _, o := range opts {
		o(&s)
	}
	if s.timeout == 0 {
		s.timeout = min(max(s.lease/timeoutShare, leastTimeout), mostTimeout)
	}
	return s
}

func (s settings) check() error {
	if s.lease < MinLease {
		return fmt.Errorf("%w: a lease of %v must be at least %v", lease.ErrInvalid, s.lease, MinLease)
	}
	if s.timeout < time.Millisecond || s.timeout > s.lease/2 {
		return fmt.Errorf("%w: a time-out of %v must be from 1ms to half the lease of %v", lease.ErrInvalid, s.timeout, s.lease)
	}
	if s.maxHold != 0 && s.maxHold < MinLease {
		return fmt.Errorf("%w: a maximum hold of %v must be at least %v", lease.ErrInvalid, s.maxHold, MinLease)
	}
	return nil
}

// terms are those of the ticket at each node. The maximum hold is that of all together, and not theirs.
func (s settings) terms() waitqueue.Terms {
	return waitqueue.Terms{Lease: s.lease, Priority: s.priority, SafeRestart: !s.trustful}
}
