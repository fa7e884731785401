package redlock_test

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fence"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/redlock"
)

// seeds are how many worlds are played.
const seeds = 15

// Of three nodes one at a time is cut off, slow or silent for one client, or one client has no way to any node, for less
// or more than a lease. Each holder writes through a guard, and is told of a loss before another holds.
func TestSeedsOfFaultsAtOneNodeLetNobodyInBesideTheHolder(t *testing.T) {
	held, lost := 0, 0
	for seed := range uint64(seeds) {
		synctest.Test(t, func(t *testing.T) {
			b := bubble(t, 3)
			guard := fence.NewMemory(1).Key("resource")
			var mu sync.Mutex // guards inside, held and lost
			inside := 0
			note := func(change func()) {
				mu.Lock()
				defer mu.Unlock()
				change()
			}
			var done sync.WaitGroup
			for lane := range uint64(3) {
				r := rand.New(rand.NewPCG(seed, 2+lane))
				m := mutex(t, b.connect(), redlock.WithTimeout(timeout), headwaiter.WithLease(lasts))
				done.Go(func() {
					for range 4 {
						l, err := m.Lock(t.Context())
						if errors.Is(err, redlock.ErrNoQuorum) {
							continue // It had no way to two nodes.
						}
						if !assert.NoError(t, err, "seed %d", seed) {
							return
						}
						note(func() {
							held++
							inside++
							assert.Equal(t, 1, inside, "seed %d: holders", seed)
						})
						assert.NoError(t, guard.Admit(t.Context(), l.Token()), "seed %d: a holder's write", seed)
						select {
						case <-l.Context().Done():
							note(func() { lost++ })
						// The work of a holder, by the clock of the bubble.
						case <-time.After([]time.Duration{100 * time.Millisecond, 2 * lasts}[r.IntN(2)]):
						}
						note(func() { inside-- })
						_ = l.Release(t.Context()) // Which tells of a loss.
					}
				})
			}
			r := rand.New(rand.NewPCG(seed, 1))
			for range 6 {
				struck := []*faults.Dialer{b.ways[r.IntN(3)][r.IntN(3)]}
				if client := r.IntN(3); r.IntN(2) == 0 {
					struck = []*faults.Dialer{b.ways[0][client], b.ways[1][client], b.ways[2][client]}
				}
				fault := []func(d *faults.Dialer){
					(*faults.Dialer).Cut, func(d *faults.Dialer) { d.Freeze() }, func(d *faults.Dialer) { d.Delay(timeout) },
					func(d *faults.Dialer) { d.Cut(); d.Refuse() },
				}[r.IntN(4)]
				for _, d := range struck {
					fault(d)
				}
				span := []time.Duration{200 * time.Millisecond, lasts + time.Second}[r.IntN(2)]
				time.Sleep(span) // How long the fault lasts, by the clock of the bubble.
				for _, d := range struck {
					d.Heal()
				}
			}
			done.Wait()
		})
	}
	t.Logf("%d holds, of which %d were lost", held, lost)
	assert.NotZero(t, lost, "no fault met a holder")
}
