package redlock_test

import (
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/headwaiter/headwaiter/fence"
	"github.com/headwaiter/headwaiter/redlock"
)

// Of three nodes one at a time is cut off, slow or silent. Each holder writes through a guard.
func TestSeedsOfFaultsAtOneNodeLetNobodyInBesideTheHolder(t *testing.T) {
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			b := bubble(t, 3)
			guard := fence.NewMemory(1).Key("resource")
			var mu sync.Mutex // guards inside
			inside := 0
			var done sync.WaitGroup
			for range 3 {
				m := mutex(t, b.connect(), redlock.WithTimeout(timeout), redlock.WithLease(lasts))
				done.Go(func() {
					for range 5 {
						l, err := m.Lock(t.Context())
						if !assert.NoError(t, err, "seed %d", seed) {
							return
						}
						mu.Lock()
						inside++
						assert.Equal(t, 1, inside, "seed %d: holders", seed)
						mu.Unlock()
						assert.NoError(t, guard.Admit(t.Context(), l.Token()), "seed %d: a holder's write", seed)
						time.Sleep(100 * time.Millisecond) // The work of a holder, by the clock of the bubble.
						mu.Lock()
						inside--
						mu.Unlock()
						assert.NoError(t, l.Release(t.Context()), "seed %d", seed)
					}
				})
			}
			r := rand.New(rand.NewPCG(seed, 1))
			for range 5 {
				ways := b.ways[r.IntN(len(b.ways))]
				d := ways[r.IntN(len(ways))]
				[]func(){d.Cut, func() { d.Freeze() }, func() { d.Delay(timeout) }}[r.IntN(3)]()
				time.Sleep(200 * time.Millisecond) // How long the fault lasts, by the clock of the bubble.
				d.Heal()
			}
			done.Wait()
		})
	}
}
