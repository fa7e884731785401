package fairlock_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
)

func TestTokensOfACohortAreBelowThoseOfTheNextGrant(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		first := fairlock.New(kit.Dial(t, s), kit.Name(t), fairlock.WithCohort(8))
		stranger := dialMutex(t, s) // It has seen no token of the cohort.
		l := hold(t, first)
		for range 20 {
			calls := mates(t, first, 9)
			for _, mate := range calls[:8] {
				token := l.Token()
				kit.Release(t, l)
				l = mate.Value(t)
				require.Equal(t, token+1, l.Token())
			}
			token := l.Token()
			kit.Release(t, l) // That was the last pass.
			l = calls[8].Value(t)
			require.Greater(t, l.Token(), token)
		}
		for _, mate := range mates(t, first, 8) {
			kit.Release(t, l)
			l = mate.Value(t)
		}
		token := l.Token()
		s.Miniredis().SetTime(time.Now().Add(-time.Hour)) // Not the clock makes them rise,
		_, err := stranger.TryLock(t.Context())           // nor what the stranger knew of it.
		require.ErrorIs(t, err, lease.ErrBusy)
		kit.Release(t, l)
		other := hold(t, stranger)
		require.Greater(t, other.Token(), token)
		kit.Release(t, other)
		again := hold(t, first)
		require.Greater(t, again.Token(), other.Token())
		kit.Release(t, again)
	})
}

// None of them is ahead of the server's clock, however many a ticket may have: what forgets the lock begins there.
func TestTokensOfACohortAreBelowThoseOfAServerThatHasForgottenThem(t *testing.T) {
	for name, workers := range map[string]int{"alone": 1, "with mates": 4} {
		t.Run(name, func(t *testing.T) {
			kit.Each(t, func(t *testing.T, s redistest.Backend) {
				m := dialMutex(t, s, fairlock.WithCohort(fairlock.MaxCohort))
				var highest atomic.Uint64
				var all sync.WaitGroup
				for range workers {
					all.Go(func() {
						for range 400 / workers {
							l, err := m.Lock(t.Context())
							if err != nil {
								t.Errorf("lock: %v", err)
								return
							}
							highest.Store(l.Token()) // One holds at a time.
							if err := l.Release(t.Context()); err != nil {
								t.Errorf("release: %v", err)
							}
						}
					})
				}
				all.Wait()
				s.Do("FLUSHALL")
				l := hold(t, dialMutex(t, s))
				require.Greater(t, l.Token(), highest.Load())
				kit.Release(t, l)
			})
		})
	}
}

// Of a hold whose client died nobody knows how often it was passed on.
func TestTokensOfACohortThatDiedAreBelowTheNext(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, s *redistest.Embedded, other *fairlock.Mutex){
		"by the end of its lease": func(t *testing.T, s *redistest.Embedded, other *fairlock.Mutex) {
			_, err := other.TryLock(t.Context()) // The lease is cut to its length.
			require.ErrorIs(t, err, lease.ErrBusy)
			s.Miniredis().SetTime(time.Now().Add(time.Minute - time.Hour))
		},
		"by force": func(t *testing.T, _ *redistest.Embedded, other *fairlock.Mutex) {
			_, err := other.ForceRelease(t.Context(), 0)
			require.NoError(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
				d := faults.NewDialer(t, s.Dial)
				m := fairlock.New(kit.Dial(t, s, kit.Over(d)), kit.Name(t), fairlock.WithCohort(8))
				l := hold(t, m)
				calls := mates(t, m, 8)
				d.Freeze(faults.ToServer, faults.ToClient)
				for _, mate := range calls {
					kit.Release(t, l)
					l = mate.Value(t)
				}
				s.Miniredis().SetTime(time.Now().Add(-time.Hour)) // Not the clock makes them rise, nor who took it to be later.
				other := dialMutex(t, s)
				end(t, s, other)
				next := hold(t, other)
				require.Greater(t, next.Token(), l.Token())
				kit.Release(t, next)
				d.Heal()
			})
		})
	}
}

// The token of a pass names the hold, also to those who end it by force; one that it cannot have come to does not.
func TestAHoldThatWasPassedOnIsForcedByItsToken(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		m := dialMutex(t, s, fairlock.WithCohort(4))
		l := hold(t, m)
		mate := mates(t, m, 1)[0]
		kit.Release(t, l)
		l = mate.Value(t)
		_, err := m.ForceRelease(t.Context(), l.Token()+10)
		require.ErrorIs(t, err, lease.ErrOtherToken)
		_, err = m.ForceRelease(t.Context(), l.Token())
		require.NoError(t, err)
	})
}
