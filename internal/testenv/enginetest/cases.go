package enginetest

import (
	"testing"
	"time"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
)

// Outlive has an adapter, whose leases are not shorter than the shortest, go through what each must outlive, all cases
// at the same time. A rig has a server of its own, or one that others use too.
func Outlive(t *testing.T, own, shared func(t testing.TB) Rig, shortest time.Duration) {
	t.Parallel()
	for name, run := range map[string]func(t *testing.T){
		"HoldsAndPlacesOutliveARestart":    func(t *testing.T) { own(t).HoldsAndPlacesOutliveARestart(t) },
		"AServerThatForgotIsToldOf":        func(t *testing.T) { own(t).AServerThatForgotIsToldOf(t, shortest) },
		"AHoldEndsByTheOwnClock":           func(t *testing.T) { own(t).AHoldEndsByTheOwnClock(t) },
		"NobodyWaitsLongerThanTheContext":  func(t *testing.T) { own(t).NobodyWaitsLongerThanTheContext(t) },
		"ClosingEndsThoughTheServerIsAway": func(t *testing.T) { ClosingEndsThoughTheServerIsAway(t, own(t), own(t)) },
		"AHistoryInTroubleIsLinearizable":  func(t *testing.T) { own(t).AHistoryInTrouble(t) },
		"AHoldEndsAtItsLimits":             func(t *testing.T) { shared(t).AHoldEndsAtItsLimits(t) },
		"AWaiterThatLeavesFromTheMiddleLetsNobodyIn": func(t *testing.T) {
			shared(t).AWaiterThatLeavesFromTheMiddleLetsNobodyIn(t)
		},
	} {
		kit.Parallel(t, name, run)
	}
}
