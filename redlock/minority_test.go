package redlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/redlock"
)

// nodes are servers of a bubble, and the way to each.
type nodes struct {
	t    *testing.T
	all  []*redistest.Embedded
	ways [][]*faults.Dialer // of each server
}

func bubble(t *testing.T, n int) *nodes {
	t.Helper()
	b := &nodes{t: t, ways: make([][]*faults.Dialer, n)}
	for range n {
		b.all = append(b.all, redistest.Bubble(t))
	}
	return b
}

// connect returns a client of each node.
func (b *nodes) connect() []*headwaiter.Client {
	clients := make([]*headwaiter.Client, len(b.all))
	for i, s := range b.all {
		d := faults.NewDialer(b.t, s.Dial)
		b.ways[i] = append(b.ways[i], d)
		clients[i] = kit.Dial(b.t, s, kit.Over(d))
	}
	return clients
}

// ailments are what can happen to a node of a bubble.
var ailments = map[string]func(s *redistest.Embedded, d *faults.Dialer){
	"killed":                func(s *redistest.Embedded, _ *faults.Dialer) { s.Kill() },
	"empty after a restart": func(s *redistest.Embedded, _ *faults.Dialer) { s.Restart() },
	"slow by a second":      func(_ *redistest.Embedded, d *faults.Dialer) { d.Delay(time.Second) },
	"silent":                func(_ *redistest.Embedded, d *faults.Dialer) { d.Freeze() },
}

// strike lets something happen to the first nodes, so many.
func (b *nodes) strike(n int, ail func(s *redistest.Embedded, d *faults.Dialer)) {
	for i := range n {
		for _, d := range b.ways[i] {
			ail(b.all[i], d)
		}
	}
}

// The clock of a bubble stands still while anybody works, so it shows what calls wait for, and not how busy the
// machine is.
func TestR1AMinorityInTroubleCostsNobodyMoreThanOneAndAHalfTimeouts(t *testing.T) {
	for name, ail := range ailments {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := bubble(t, 5)
				options := []redlock.Option{redlock.WithTimeout(timeout), headwaiter.WithLease(lasts)}
				x, y, z := mutex(t, b.connect(), options...), mutex(t, b.connect(), options...), mutex(t, b.connect(), options...)
				held, err := x.Lock(t.Context())
				require.NoError(t, err)
				synctest.Wait() // All nodes have voted.
				b.strike(2, ail)

				within := func(what string, do func()) {
					t.Helper()
					begun := time.Now()
					do()
					require.Less(t, time.Since(begun), timeout*3/2, what)
				}
				within("to release", func() { kit.Release(t, held) })
				for range 10 {
					within("to lock", func() {
						held, err = x.Lock(t.Context())
						require.NoError(t, err)
					})
					next := kit.Lock(t.Context(), y.Lock)
					within("to be told that it is busy", func() {
						_, err = z.TryLock(t.Context())
						require.ErrorIs(t, err, lease.ErrBusy)
					})
					within("to hand on", func() {
						kit.Release(t, held)
						held = next.Value(t)
					})
					within("to release", func() { kit.Release(t, held) })
				}
				for _, ways := range b.ways {
					for _, d := range ways {
						d.Heal()
					}
				}
			})
		})
	}
}

func TestR2AMajorityThatIsSilentIsAnErrorWithinFourTimeouts(t *testing.T) {
	for name, ail := range ailments {
		if name == "empty after a restart" {
			continue // They answer.
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := bubble(t, 5)
				m := mutex(t, b.connect(), redlock.WithTimeout(timeout), headwaiter.WithLease(lasts))
				b.strike(3, ail)
				begun := time.Now()
				_, err := m.Lock(t.Context())
				require.ErrorIs(t, err, redlock.ErrNoQuorum)
				require.LessOrEqual(t, time.Since(begun), 4*timeout)
				begun = time.Now()
				_, err = m.TryLock(t.Context())
				require.ErrorIs(t, err, redlock.ErrNoQuorum)
				require.LessOrEqual(t, time.Since(begun), 2*timeout, "its time-out, and one to give back what it has got")
				for _, ways := range b.ways {
					for _, d := range ways {
						d.Heal()
					}
				}
			})
		})
	}
}

// Each of two contenders reaches two of four nodes, and the other two not.
func TestOfFourNodesTwoAreNoQuorum(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := bubble(t, 4)
		options := []redlock.Option{redlock.WithTimeout(timeout), headwaiter.WithLease(lasts)}
		for k := range 2 {
			m := mutex(t, b.connect(), options...)
			for i := range b.ways {
				if i/2 != k {
					b.ways[i][k].Freeze()
				}
			}
			_, err := m.Lock(t.Context())
			require.ErrorIs(t, err, redlock.ErrNoQuorum)
		}
		for _, ways := range b.ways {
			for _, d := range ways {
				d.Heal()
			}
		}
	})
}
