// Package striped is mutual exclusion for many keys with a fixed number of locks: each key is hashed to one of
// them. Where there are millions of keys, such as accounts or users, it keeps what clients and Redis have of them
// bounded: names, subscriptions, metrics.
//
// Two keys of one stripe exclude each other for no other reason, so work under a lock should be short, and there
// should be many more stripes than holds at a time: with N stripes and n holds at once, each meets about n/N others.
// See package fairlock for the locks themselves.
package striped

import (
	"context"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/waitqueue"
)

const (
	// DefaultStripes is how many locks there are where New is told 0.
	DefaultStripes = 16
	// MaxStripes bounds what a Mutex keeps in memory: some hundred bytes a stripe.
	MaxStripes = 4096
)

// A Mutex is the name of several locks, as one client sees it, and may be used by several goroutines at once.
type Mutex struct {
	name    string
	stripes []*fairlock.Mutex
	members members
	maxWait time.Duration // of a call, the permit of its client included; 0: none
	err     error         // why it cannot be used
}

// Option sets how the locks are asked for and held; those of package fairlock.
type Option = fairlock.Option

// New names n locks, [DefaultStripes] if n is 0. Nothing is sent; a name, a number or an option that
// cannot be used is reported by the first call.
//
// All who use the name must state the same number, or equal keys would be of different locks. So the first call of a
// client takes a permit of a semaphore, name + ":stripes", which stands for the number, and keeps it until the
// client is closed. While anybody has one, a client that states another number gets an error that wraps
// [lease.ErrMismatch].
//
// To change the number while processes run, roll out two versions, each on all processes before the next. The first locks the
// key by the old Mutex, and within that hold, with its context, by one of another name with the new number. The second locks
// by the new one alone. Or close all clients of the old number, and wait for two minutes and two leases.
func New(c *headwaiter.Client, name string, stripes int, opts ...Option) *Mutex {
	m := &Mutex{name: name}
	if stripes == 0 {
		stripes = DefaultStripes
	}
	switch {
	case name == "":
		m.err = fmt.Errorf("%w: the name is empty", lease.ErrInvalid)
	case stripes < 0:
		m.err = fmt.Errorf("%w: %d stripes: at least 1 is needed", lease.ErrInvalid, stripes)
	case stripes > MaxStripes:
		m.err = fmt.Errorf("%w: %d stripes: at most %d", lease.ErrTooLarge, stripes, MaxStripes)
	}
	if m.err != nil {
		return m
	}
	m.stripes = make([]*fairlock.Mutex, stripes)
	for i := range m.stripes {
		m.stripes[i] = fairlock.New(c, name+":"+strconv.Itoa(i)+"/"+strconv.Itoa(stripes), opts...)
	}
	m.members, m.maxWait = membersOf(c, name, stripes, opts), waitqueue.With(opts).MaxWait
	return m
}

// Name returns the name.
func (m *Mutex) Name() string { return m.name }

// Stripe returns the name of the lock that a key is hashed to, such as "orders:3/16", to be looked at with package
// fairlock. It is the same in all processes and versions. In a cluster the stripes are in different slots,
// unless the name has a closing brace.
func (m *Mutex) Stripe(key string) string {
	if m.err != nil {
		return ""
	}
	return m.stripe(key).Name()
}

func (m *Mutex) stripe(key string) *fairlock.Mutex {
	i, _ := bits.Mul64(hash(key), uint64(len(m.stripes)))
	return m.stripes[i]
}

// hash is FNV-1a with 64 bits, and the finisher of MurmurHash3 after it: FNV by itself leaves the high bits, which
// choose the stripe, much alike for short keys. It must not change: old and new versions run side by side.
func hash(key string) uint64 {
	h := uint64(0xcbf29ce484222325)
	for i := range len(key) {
		h = (h ^ uint64(key[i])) * 0x100000001b3
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// Lock waits its turn for the lock of the key and returns the lease on it; see [fairlock.Mutex.Lock].
//
// With a context that comes from a hold of the same stripe Lock fails with [lease.ErrDeadlock], also where that
// was for another key. To lock one key within a hold of another is no good idea at all: holders of two stripes that
// ask for each other's wait until their contexts end. The key may be anything, also empty.
func (m *Mutex) Lock(ctx context.Context, key string) (*lease.Lease, error) {
	return m.acquire(ctx, "lock", key, false)
}

// TryLock returns the lease on the lock of the key if nobody holds it and nobody waits for it, and an error that
// wraps [lease.ErrBusy] otherwise, also if that is for another key of the same stripe.
func (m *Mutex) TryLock(ctx context.Context, key string) (*lease.Lease, error) {
	return m.acquire(ctx, "try lock", key, true)
}

// ForceRelease takes the lock of the key from its holder, for whatever key of that stripe it is held; see
// [fairlock.Mutex.ForceRelease].
func (m *Mutex) ForceRelease(ctx context.Context, key string, token uint64) (lease.Holder, error) {
	freed, err := lease.Holder{}, m.err
	if err == nil {
		freed, err = m.stripe(key).ForceRelease(ctx, token)
	}
	if err != nil {
		return freed, m.wrap("force release", key, err)
	}
	return freed, nil
}

func (m *Mutex) acquire(ctx context.Context, verb, key string, try bool) (*lease.Lease, error) {
	if ctx == nil {
		panic("striped: nil context") // As package context does, when nothing is changed yet.
	}
	if m.err != nil {
		return nil, m.wrap(verb, key, m.err)
	}
	ctx, free, err := calls.InTime(ctx, m.maxWait)
	if err != nil {
		return nil, m.wrap(verb, key, err)
	}
	defer free()
	if err := m.members.join(ctx, try); err != nil {
		return nil, m.wrap(verb, key, err)
	}
	lock := m.stripe(key).Lock
	if try {
		lock = m.stripe(key).TryLock
	}
	l, err := lock(ctx)
	if err != nil {
		return nil, m.wrap(verb, key, err)
	}
	// The wait may have been long. As a rule this is a look at what is known here.
	if err := m.members.join(ctx, try); err != nil {
		waitqueue.Unused(l)
		l.Unlock() // Where the server is silent the call does not wait for it.
		return nil, m.wrap(verb, key, err)
	}
	return l, nil
}

// Do waits for the lock of the key, calls f with the context of the hold, whose token [lease.Token] tells, and releases; see
// [fairlock.Mutex.Do].
func (m *Mutex) Do(ctx context.Context, key string, f func(context.Context) error) error {
	return lease.Do(ctx, func(ctx context.Context) (*lease.Lease, error) { return m.Lock(ctx, key) }, f)
}

// wrap says what failed, with the key cut to what an error should show.
func (m *Mutex) wrap(verb, key string, err error) error {
	const most = 64
	if len(key) > most {
		key = strings.ToValidUTF8(key[:most], "") + "…"
	}
	return fmt.Errorf("striped: %s %q: %w", verb, key, err)
}
