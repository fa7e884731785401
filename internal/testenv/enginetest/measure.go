package enginetest

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
)

// A Locker is a lock and its release, by one client.
type Locker func() (unlock func() error, err error)

// LockerOf is the Locker of a lock of this project.
func LockerOf(b *testing.B, m Mutex) Locker {
	return func() (func() error, error) {
		l, err := m.Lock(b.Context())
		return func() error { return l.Release(b.Context()) }, err
	}
}

// Cycles measures an adapter's cycle, a rival lock's cycle, and what a cycle writes without a lock. They take
// turns, cycle by cycle and in any order, so that what else happens hits them alike.
func Cycles(b *testing.B, ours, theirs, floor Locker) {
	names := []string{"ours-ms", "theirs-ms", "floor-ms"}
	locks := []Locker{ours, theirs, floor}
	spans := make([][]time.Duration, len(locks))
	for b.Loop() {
		for _, i := range rand.Perm(len(locks)) {
			begun := time.Now()
			unlock, err := locks[i]()
			require.NoError(b, err)
			require.NoError(b, unlock())
			spans[i] = append(spans[i], time.Since(begun))
		}
	}
	report(b, names, spans)
}

// round is how many hand-offs a lock has before it is the other's turn.
const round = 200

// HandOffs measures how long a lock takes from one client to the next, while all wait for it all the time. Both kinds
// take turns, round by round; a round has a gap at its end, in which the clients run out one by one.
func HandOffs(b *testing.B, ours, theirs func(*testing.B) Locker) {
	for _, clients := range []int{2, 8, 32} {
		b.Run(strconv.Itoa(clients), func(b *testing.B) {
			names := []string{"ours-ms", "theirs-ms"}
			locks := make([][]Locker, len(names))
			for i, maker := range []func(*testing.B) Locker{ours, theirs} {
				for range clients {
					locks[i] = append(locks[i], maker(b))
				}
				contend(b, locks[i], clients) // So that all have a session.
			}
			spans := make([][]time.Duration, len(locks))
			for n := 0; b.Loop(); n++ {
				for i := range locks {
					i := (i + n) % len(locks) // Each is first every other time.
					spans[i] = append(spans[i], contend(b, locks[i], round)/round)
				}
			}
			report(b, names, spans)
		})
	}
}

// report tells the median of each, and the middle one of the ratios of the first two, pair by pair.
func report(b *testing.B, names []string, spans [][]time.Duration) {
	for i, all := range spans {
		b.ReportMetric(float64(kit.Median(all).Microseconds())/1000, names[i])
	}
	var ratios []float64
	for i := range spans[0] {
		ratios = append(ratios, float64(spans[0][i])/float64(spans[1][i]))
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "ours/theirs")
}

// contend lets the clients share that many turns, and returns how long that takes.
func contend(b *testing.B, locks []Locker, turns int) time.Duration {
	left := make(chan struct{}, turns)
	for range turns {
		left <- struct{}{}
	}
	close(left)
	begun := time.Now()
	var calls []*kit.Call[struct{}]
	for _, lock := range locks {
		calls = append(calls, kit.Run(func() error {
			for range left {
				unlock, err := lock()
				if err == nil {
					err = unlock()
				}
				if err != nil {
					return err
				}
			}
			return nil
		}))
	}
	for _, call := range calls {
		require.NoError(b, call.Err(b))
	}
	return time.Since(begun)
}
