// Package drivers adapts libraries to what package bench measures.
package drivers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/bench"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// Headwaiter is this library's fairlock with its defaults.
type Headwaiter struct {
	Redis  rueidis.ClientOption
	Cohort int           // of WithCohort
	Keep   time.Duration // of WithKeep
	// Unlock: a release is an Unlock, which nobody waits for.
	Unlock bool
}

// Name implements [bench.Driver].
func (d Headwaiter) Name() string {
	if d.Cohort > 0 {
		return fmt.Sprintf("headwaiter-cohort-%d", d.Cohort)
	}
	if d.Keep > 0 {
		return "headwaiter-keep"
	}
	if d.Unlock {
		return "headwaiter-unlock"
	}
	return "headwaiter"
}

// NewClient implements [bench.Driver].
func (d Headwaiter) NewClient(context.Context) (bench.Client, error) {
	c, err := headwaiter.Dial(headwaiter.Options{Redis: d.Redis, Identity: os.Getenv(bench.IdentityVariable)})
	if err != nil {
		return nil, err
	}
	return headwaiterClient{c, d}, nil
}

// buffer and ring are of a connection that clients share, and of those on which each of them listens: as the library has
// them for its own.
const (
	buffer = 32 << 10
	ring   = 8
)

// Shared implements [bench.Sharer]: commands and renewals of all clients go over one connection of the caller's.
func (d Headwaiter) Shared(keepAlive time.Duration) (bench.Driver, func(), error) {
	o := d.Redis
	o.PipelineMultiplex, o.BlockingPipeline, o.DisableCache = -1, 0, true
	o.ReadBufferEachConn, o.WriteBufferEachConn = buffer, buffer
	o.RingScaleEachConn, o.Dialer.KeepAlive = ring, keepAlive
	rc, err := rueidis.NewClient(o)
	if err != nil {
		return nil, nil, err
	}
	return shared{d, rc}, rc.Close, nil
}

type shared struct {
	Headwaiter
	redis rueidis.Client
}

// NewClient implements [bench.Driver].
func (d shared) NewClient(context.Context) (bench.Client, error) {
	c, err := headwaiter.New(d.redis, headwaiter.Options{})
	if err != nil {
		return nil, err
	}
	return headwaiterClient{c, d.Headwaiter}, nil
}

type headwaiterClient struct {
	*headwaiter.Client
	as Headwaiter
}

func (c headwaiterClient) Mutex(name string) bench.Mutex {
	return headwaiterMutex{fairlock.New(c.Client, name, fairlock.WithCohort(c.as.Cohort), fairlock.WithKeep(c.as.Keep)), c.as.Unlock}
}

// Bury implements [bench.Burier].
func (c headwaiterClient) Bury(ctx context.Context, identity string) error {
	_, found, err := c.Client.Bury(ctx, identity, "")
	if err == nil && !found {
		return errors.New("the identity is not known")
	}
	return err
}

// Lasting implements [bench.Leased].
func (c headwaiterClient) Lasting(name string, lease time.Duration) bench.Mutex {
	return headwaiterMutex{fairlock.New(c.Client, name, headwaiter.WithLease(lease)), c.as.Unlock}
}

type headwaiterMutex struct {
	*fairlock.Mutex
	unlock bool
}

// unlocked is a hold that is given back without a word.
type unlocked struct{ *lease.Lease }

// Release implements [bench.Hold].
func (l unlocked) Release(context.Context) error {
	l.Unlock()
	return nil
}

func (m headwaiterMutex) Lock(ctx context.Context) (bench.Hold, error) {
	l, err := m.Mutex.Lock(ctx)
	if err != nil {
		return nil, err
	}
	if m.unlock {
		return unlocked{l}, nil
	}
	return l, nil
}

// Try implements [bench.Trier].
func (m headwaiterMutex) Try(ctx context.Context) (refused bool, err error) {
	l, err := m.TryLock(ctx)
	if errors.Is(err, lease.ErrBusy) {
		return true, nil
	}
	if err == nil {
		err = l.Release(ctx)
	}
	return false, err
}

// Contender is a driver of this library in a run.
func Contender(d bench.Driver, lease time.Duration) bench.Contender {
	c := bench.NewContender(d)
	c.About, c.Lease, c.Fair, c.Ours = "this library, defaults", lease, true, true
	c.Queue = func(name string) []string { return []string{"ZCARD", lua.Fairlock.Keys("headwaiter", name).Queue} }
	c.Keys = func(name string) []string { return lua.Fairlock.Keys("headwaiter", name).All() }
	return c
}

// CohortContender is the same where the goroutines of a client pass the lock on among themselves, at most 64 times in a
// row. Among several clients it does not keep the order of all calls.
func CohortContender(d Headwaiter, lease time.Duration) bench.Contender {
	d.Cohort = 64
	c := Contender(d, lease)
	c.Name, c.About, c.Fair, c.Only = d.Name(), "this library, WithCohort(64)", false, []string{"W3"}
	return c
}

// UnlockContender is the same with Unlock in place of Release. It is compared with that, and with locks whose release is
// not waited for either.
func UnlockContender(d Headwaiter, lease time.Duration) bench.Contender {
	d.Unlock = true
	c := Contender(d, lease)
	c.Name, c.About, c.Background, c.Only = d.Name(), "this library, Unlock in place of Release", true, []string{"W1", "W4"}
	return c
}

// KeepContender is the same where a lock stays with its client between two uses. It takes part where one client takes a lock
// again and again, and where two want it by turns.
func KeepContender(d Headwaiter, lease time.Duration) bench.Contender {
	d.Keep = time.Minute
	c := Contender(d, lease)
	c.Name, c.About, c.Fair, c.Only = d.Name(), "this library, WithKeep(time.Minute)", false, []string{"W1", "W4 C=2"}
	return c
}

// ScriptName is the name of one of this library's scripts; "" for those of others.
func ScriptName(sha string) string {
	if s := lua.Named(sha); s != nil {
		return s.Name
	}
	return ""
}
