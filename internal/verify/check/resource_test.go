package check

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/crowd"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

// withAndWithoutFence plays a game on a resource that looks at tokens, where nothing may be lost, and on one
// that does not, where something must be: else the game proves nothing.
func withAndWithoutFence(t *testing.T, play func(t *testing.T, r *Resource)) {
	t.Parallel()
	for _, fenced := range []bool{true, false} {
		t.Run(fmt.Sprintf("fenced %v", fenced), func(t *testing.T) {
			r := &Resource{Fenced: fenced}
			play(t, r)
			lost, refused := r.Lost()
			t.Logf("%d updates lost, %d writes refused", lost, refused)
			if fenced {
				require.Zero(t, lost)
				require.Positive(t, refused, "nobody was late")
			} else {
				require.Positive(t, lost, "the game has no teeth")
			}
		})
	}
}

// raise does the work of a holder between two moments.
func raise(r *Resource, token uint64, think func()) error {
	v, err := r.Read(token)
	if err != nil {
		return err
	}
	think()
	return r.Write(token, v+1)
}

// A holder is stopped (SIGSTOP) past its lease. What it read before, it writes when it goes on, as a process
// would that looks at nothing but its own work.
func TestAStoppedHolderLosesNoUpdateOfOthers(t *testing.T) {
	withAndWithoutFence(t, func(t *testing.T, r *Resource) {
		s := redistest.Start(t)
		holder := crowd.Start(t, crowd.Plan{Addr: s.Addr(), Names: []string{"x"}, Clients: 1, Waiters: 1, Lease: 300 * time.Millisecond, Keep: true})
		token := holder.Await(crowd.Held, 1, kit.Patience)[0].Token
		m := fairlock.New(kit.Dial(t, s), "x")
		err := raise(r, token, func() {
			holder.Stop()
			for range 3 {
				l, err := m.Lock(t.Context())
				require.NoError(t, err)
				require.Greater(t, l.Token(), token)
				require.NoError(t, raise(r, l.Token(), func() {}))
				kit.Release(t, l)
			}
			holder.Cont()
		})
		require.Equal(t, r.Fenced, errors.Is(err, ErrFenced))
		holder.Release()
		require.True(t, holder.Await(crowd.Released, 1, kit.Patience)[0].Lost)
	})
}

// Holders on whom the network stands still past their leases, and who take no notice of their contexts: those
// who look at theirs would not write.
func TestHoldersWhoIgnoreALossLoseNoUpdateOfOthers(t *testing.T) {
	t.Parallel()
	for _, fenced := range []bool{true, false} {
		t.Run(fmt.Sprintf("fenced %v", fenced), func(t *testing.T) {
			kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
				r := &Resource{Fenced: fenced}
				const clients, rounds = 4, 30
				failed := make(chan error, clients)
				for i := range clients {
					d := faults.NewDialer(t, s.Dial)
					m := fairlock.New(kit.Dial(t, s, kit.Over(d)), "x", headwaiter.WithLease(time.Second))
					rng := rand.New(rand.NewPCG(uint64(i), 11))
					go func() { failed <- careless(t.Context(), m, d, rng, r, rounds) }()
				}
				for range clients {
					require.NoError(t, <-failed)
				}
				lost, refused := r.Lost()
				t.Logf("%d updates lost, %d writes refused", lost, refused)
				if fenced {
					require.Zero(t, lost)
					require.Positive(t, refused)
				} else {
					require.Positive(t, lost)
				}
			})
		})
	}
}

// careless raises the resource again and again; each fourth time its network stands still meanwhile.
func careless(ctx context.Context, m *fairlock.Mutex, d *faults.Dialer, rng *rand.Rand, r *Resource, rounds int) error {
	for range rounds {
		l, err := m.Lock(ctx)
		if err != nil {
			return err
		}
		err = raise(r, l.Token(), func() {
			if rng.IntN(4) > 0 {
				time.Sleep(time.Duration(1+rng.IntN(20)) * time.Millisecond) // The work.
				return
			}
			d.Freeze()
			time.Sleep(time.Duration(1500+rng.IntN(2000)) * time.Millisecond) // Past its lease, more often than not.
			d.Heal()
		})
		if err != nil && !errors.Is(err, ErrFenced) {
			return err
		}
		_ = l.Release(ctx) // It may be lost.
	}
	return nil
}
