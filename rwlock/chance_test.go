package rwlock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/rwlock"
)

// chances is how many plans are tried, and steps how long each is.
const (
	chances = 60
	steps   = 60
)

// A believer is a lease, and a context that comes from it, whose channel nobody has asked for since.
type believer struct {
	client int
	group  int // entries of one hold have one
	write  bool
	lease  *lease.Lease
	done   <-chan struct{}
}

// believes reports whether whoever has the context goes on.
func (b *believer) believes() bool {
	select {
	case <-b.done:
		return false
	default:
		return true
	}
}

// Entries, downgrades, releases at and after the end of the lease, and timers that are late: nobody believes to hold
// while another client believes in a hold that excludes it, and no context stays when its hold is over.
func TestNobodyBelievesTooLongWhateverTheChances(t *testing.T) {
	t.Parallel()
	for seed := range uint64(chances) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newPlan(t, seed).run() })
		})
	}
}

// plan is what one seed does.
type plan struct {
	t       *testing.T
	rng     *rand.Rand
	server  *redistest.Embedded
	clients []*headwaiter.Client
	stalls  []*kit.Stall
	late    []bool
	locks   []*rwlock.RWMutex
	held    []*believer
	groups  int
}

func newPlan(t *testing.T, seed uint64) *plan {
	p := &plan{t: t, rng: rand.New(rand.NewPCG(seed, 1)), server: redistest.Bubble(t)}
	for range 2 {
		stall := &kit.Stall{}
		c := kit.Dial(t, p.server, stall.Option)
		p.clients, p.stalls, p.late = append(p.clients, c), append(p.stalls, stall), append(p.late, false)
		p.locks = append(p.locks, rwlock.New(c, "lock", headwaiter.WithLease(2*time.Second)))
	}
	return p
}

func (p *plan) run() {
	for range steps {
		p.step()
		p.look()
	}
	for i := range p.clients {
		p.wake(i)
	}
	for _, b := range p.held {
		_ = b.lease.Release(p.t.Context()) // Lost, or released; what counts is that it is over.
	}
	for _, b := range p.held {
		require.False(p.t, b.believes(), "its hold is over")
	}
	for _, c := range p.clients {
		require.NoError(p.t, c.Shutdown(p.t.Context()), "nothing is left")
	}
}

func (p *plan) step() {
	client := p.rng.IntN(len(p.clients))
	switch p.rng.IntN(9) {
	case 0, 1:
		p.lock(client)
	case 2, 8:
		p.enter()
	case 3, 4:
		p.release()
	case 5:
		p.downgrade()
	case 6:
		if p.late[client] {
			p.wake(client)
		} else {
			p.stalls[client].Begin(p.t, p.clients[client])
			p.late[client] = true
		}
	case 7:
		synctime.Pass(time.Duration(p.rng.IntN(2500)) * time.Millisecond)
	}
}

func (p *plan) wake(client int) {
	if p.late[client] {
		p.stalls[client].End(p.t)
		p.late[client] = false
	}
}

func (p *plan) lock(client int) {
	m, write := p.locks[client], p.rng.IntN(2) == 0
	try := m.TryRLock
	if write {
		try = m.TryLock
	}
	l, err := try(p.t.Context())
	if err != nil {
		require.ErrorIs(p.t, err, lease.ErrBusy)
		return
	}
	p.groups++
	p.add(client, p.groups, write, l)
}

func (p *plan) add(client, group int, write bool, l *lease.Lease) {
	work, cancel := context.WithCancel(l.Context())
	p.t.Cleanup(cancel)
	p.held = append(p.held, &believer{client, group, write, l, work.Done()})
}

// any is one of the leases, or nil.
func (p *plan) any() *believer {
	if len(p.held) == 0 {
		return nil
	}
	return p.held[p.rng.IntN(len(p.held))]
}

func (p *plan) enter() {
	b := p.any()
	if b == nil || b.lease.Context().Err() != nil {
		return
	}
	m, write := p.locks[b.client], b.write && p.rng.IntN(2) == 0
	lock := m.RLock
	if write {
		lock = m.Lock
	}
	if l, err := lock(b.lease.Context()); err == nil {
		p.add(b.client, b.group, write, l)
	}
}

func (p *plan) release() {
	if b := p.any(); b != nil {
		_ = b.lease.Release(p.t.Context()) // It may be lost, or released.
		require.False(p.t, b.believes())
	}
}

func (p *plan) downgrade() {
	b := p.any()
	if b == nil {
		return
	}
	if p.locks[b.client].Downgrade(p.t.Context(), b.lease) == nil {
		b.write = false
	}
}

// look compares all who believe. Between two clients whose timers run, and within one client, only compatible holds may
// be believed at a time. A belief of a client whose timers are held up is checked by its workers, at their next step.
func (p *plan) look() {
	synctest.Wait()
	p.held = slices.DeleteFunc(p.held, func(b *believer) bool { return !b.believes() })
	for i, a := range p.held {
		if !p.late[a.client] {
			require.True(p.t, time.Now().Before(a.lease.Deadline()), "it believes in a lease that has run out: %v", *a)
		}
		for _, b := range p.held[:i] {
			if a.group == b.group || !a.write && !b.write {
				continue
			}
			if p.late[a.client] && a.lease.Context().Err() != nil || p.late[b.client] && b.lease.Context().Err() != nil {
				continue
			}
			require.False(p.t, a.believes() && b.believes(), "two hold: %v and %v", *a, *b)
		}
	}
}
