package redlock

import (
	"fmt"
	"time"

	"github.com/headwaiter/headwaiter/internal/option"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// settings are how a Mutex asks for its name and holds it.
type settings struct {
	lease    time.Duration
	timeout  time.Duration // of a node
	maxHold  time.Duration
	maxStall time.Duration
	maxWait  time.Duration
	priority int
	trustful bool // a node that has just started is believed
}

// An Option sets how a [Mutex] is asked for and held. It takes WithLease, WithMaxHold, WithMaxStall, WithMaxWait and
// WithPriority of package headwaiter, [WithTimeout] and [WithoutSafeRestart]. All who use a name should use the same options. The least lease is [MinLease].
type Option interface{ option.Redlock }

// WithTimeout sets how long a node may take to answer before it counts as one that does not. It should be small
// against the lease and several round trips long. d is from 1 ms to half the lease. The default is a
// twentieth of the lease, from 50 ms to 1 s.
func WithTimeout(d time.Duration) Option { return option.Set(func(s *settings) { s.timeout = d }) }

// WithoutSafeRestart believes a node that came up less than a lease ago, which may have forgotten a vote: then the
// restart of one node can let two hold. The default is that such a node has no vote until a lease is over; see
// [headwaiter.WithSafeRestart]. It is for servers that do not answer INFO.
func WithoutSafeRestart() Option { return option.Set(func(s *settings) { s.trustful = true }) }

const (
	// MinLease: what is shorter leaves no time for nodes that are slow.
	MinLease = 100 * time.Millisecond

	timeoutShare = 20 // of the lease
	leastTimeout = 50 * time.Millisecond
	mostTimeout  = time.Second
)

func with(opts []Option) settings {
	t := waitqueue.With(opts)
	s := option.Apply(settings{lease: t.Lease, maxHold: t.MaxHold, maxStall: t.MaxStall, maxWait: t.MaxWait, priority: t.Priority}, opts)
	if s.timeout == 0 {
		s.timeout = min(max(s.lease/timeoutShare, leastTimeout), mostTimeout)
	}
	return s
}

func (s settings) check() error {
	if s.lease < MinLease {
		return fmt.Errorf("%w: WithLease: a lease of %v must be at least %v", lease.ErrInvalid, s.lease, MinLease)
	}
	if s.timeout < time.Millisecond || s.timeout > s.lease/2 {
		return fmt.Errorf("%w: WithTimeout: a time-out of %v must be from 1ms to half the lease of %v", lease.ErrInvalid, s.timeout, s.lease)
	}
	if s.maxStall != 0 && s.maxStall < MinLease {
		return fmt.Errorf("%w: WithMaxStall: a time without progress of %v must be at least %v", lease.ErrInvalid, s.maxStall, MinLease)
	}
	if s.maxHold != 0 && s.maxHold < MinLease {
		return fmt.Errorf("%w: WithMaxHold: a maximum hold of %v must be at least %v", lease.ErrInvalid, s.maxHold, MinLease)
	}
	return nil
}

// terms are those of the ticket at each node. The maxima are those of all together, and not theirs.
func (s settings) terms() waitqueue.Terms {
	return waitqueue.Terms{Lease: s.lease, Priority: s.priority, SafeRestart: !s.trustful}
}
