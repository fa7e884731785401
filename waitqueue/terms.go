package waitqueue

import (
	"fmt"
	"time"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
)

// Terms are how a primitive asks for a name and holds it.
type Terms struct {
	Lease   time.Duration // how long a hold lasts unless renewed
	MaxHold time.Duration // after which a hold ends, renewed or not; 0: never
	MinHold time.Duration // for which a name stays taken from the grant, whatever becomes of the hold; 0: it ends with the hold
	// Remember is for how long after the lease it is known that a hold was not released; 0: for about a minute.
	Remember time.Duration
	MaxStall time.Duration // after which a hold ends without progress; 0: never
	MaxWait  time.Duration // after which a call ends that has no hold yet; 0: never
	// QueueLimit is how many may wait for the name when a call comes that has to wait too; 0: any number.
	QueueLimit int
	Priority   int // head start in steps of PriorityStep
	// Arrival, if not 0, is the place of calls in the order of the queue, in µs of a time that all who use the name
	// agree on, instead of the server's time of their first ask. Priority then has no effect.
	Arrival int64
	// Vote is what the number of each ticket ends with, of a call that asks several servers: a [wire.Vote].
	Vote string
	// Replicas must acknowledge a hold within ReplicasTimeout before a call returns it; OnDisk: when it is on their disks,
	// and on the master's.
	Replicas        int
	ReplicasTimeout time.Duration
	OnDisk          bool
	// Shared: several may hold at once, by tokens of their own.
	Shared bool
	// SafeRestart: no hold from a server that may have forgotten another's.
	SafeRestart bool
	// History is how many hand-offs of the name Redis keeps; 0: none. It is for protocols with scripts that can.
	History int
	// Fixed: the number of permits cannot change, because something else depends on it.
	Fixed bool
	// Untold: no observer and no log is told of the calls and their holds, because a primitive makes them for itself.
	Untold bool
	// WithoutRenewal: a hold ends with its lease. It is a MaxHold of Lease.
	WithoutRenewal bool
}

// PriorityStep is what one level of priority is worth: a call overtakes those of the level below that came
// at most so long before it.
const PriorityStep = time.Second

// MaxHistory is how many hand-offs of a name can be kept: some 100 kB.
const MaxHistory = 1000

// maxPriority keeps the head start far below what an arrival can count: 11 days.
const maxPriority = 1_000_000

// check is what is wrong with the terms, nil if nothing is.
func (t Terms) check() error {
	if t.Lease < lease.MinLease || t.Lease > lease.MaxLease {
		return fmt.Errorf("%w: WithLease: a lease of %v must be from %v to 365 days", lease.ErrInvalid, t.Lease, lease.MinLease)
	}
	if t.MaxHold != 0 && (t.MaxHold < lease.MinLease || t.MaxHold > lease.MaxLease) {
		return fmt.Errorf("%w: WithMaxHold: a maximum hold of %v must be from %v to 365 days", lease.ErrInvalid, t.MaxHold, lease.MinLease)
	}
	if t.MinHold != 0 && (t.MinHold < lease.MinLease || t.MinHold > lease.MaxLease) {
		return fmt.Errorf("%w: WithMinHold: a minimum hold of %v must be from %v to 365 days", lease.ErrInvalid, t.MinHold, lease.MinLease)
	}
	if t.Remember != 0 && (t.Remember < lease.MinLease || t.Remember > lease.MaxLease) {
		return fmt.Errorf("%w: WithPrevious: a time of %v must be from %v to 365 days", lease.ErrInvalid, t.Remember, lease.MinLease)
	}
	if t.MaxStall != 0 && (t.MaxStall < lease.MinLease || t.MaxStall > lease.MaxLease) {
		return fmt.Errorf("%w: WithMaxStall: a time without progress of %v must be from %v to 365 days", lease.ErrInvalid, t.MaxStall, lease.MinLease)
	}
	if n := t.QueueLimit; n < 0 || n > lease.MaxQueueLimit {
		if n < 0 {
			n++ // As it was given: 0 is none here.
		}
		return fmt.Errorf("%w: WithQueueLimit: a limit of %d must be from 1 to %d", lease.ErrInvalid, n, lease.MaxQueueLimit)
	}
	if t.Priority > maxPriority || t.Priority < -maxPriority {
		return fmt.Errorf("%w: WithPriority: a priority of %d must be from %d to %d", lease.ErrInvalid, t.Priority, -maxPriority, maxPriority)
	}
	if t.History < 0 || t.History > MaxHistory {
		return fmt.Errorf("%w: WithHistory: %d hand-offs must be from 0 to %d", lease.ErrInvalid, t.History, MaxHistory)
	}
	if t.Arrival < 0 {
		return fmt.Errorf("%w: an arrival before 1970", lease.ErrInvalid)
	}
	option := "WithReplicas"
	if t.OnDisk {
		option = "WithFsync"
	}
	if t.Replicas < 0 {
		return fmt.Errorf("%w: %s: %d replicas must not be negative", lease.ErrInvalid, option, t.Replicas)
	}
	if t.acks() != (conn.Acks{}) && (t.ReplicasTimeout < time.Millisecond || t.ReplicasTimeout > t.Lease/2) {
		return fmt.Errorf("%w: %s: a time-out of %v must be from 1ms to half the lease of %v", lease.ErrInvalid, option, t.ReplicasTimeout, t.Lease)
	}
	return nil
}

// first returns the lease of a first grant, and whether it ends at the maximum hold.
func (t Terms) first() (lasts time.Duration, phase string) {
	if t.MaxHold > 0 && t.MaxHold <= t.Lease {
		return t.MaxHold.Truncate(time.Millisecond), wire.PhaseFinal
	}
	return t.Lease.Truncate(time.Millisecond), wire.PhaseHeld
}

// headStart is what the priority is worth, in µs.
func (t *Terms) headStart() int64 { return int64(t.Priority) * PriorityStep.Microseconds() }

// acks are what renewals need too, apart from the server's reply: replicas and disks.
func (t *Terms) acks() conn.Acks {
	if t.Replicas == 0 && !t.OnDisk {
		return conn.Acks{}
	}
	return conn.Acks{Replicas: t.Replicas, Disk: t.OnDisk, Timeout: t.ReplicasTimeout}
}

// minLifetime: less would not outlive a server that is away for a while.
const minLifetime = time.Minute

// CheckLifetime is why something cannot be kept for d after its last use, if it cannot.
func CheckLifetime(d time.Duration) error {
	if d < minLifetime || d > lease.MaxLease {
		return fmt.Errorf("%w: a lifetime of %v must be from %v to 365 days", lease.ErrInvalid, d, minLifetime)
	}
	return nil
}
