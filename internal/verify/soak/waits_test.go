package soak

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// waits judges how long each worker waited, by the holds of all.
type waits struct {
	held  [1024]hold // the last ones, round and round
	got   int
	worst wait // in which nobody held for the longest time
	took  time.Duration
	turns int // the most
}

// hold is the time of one, from the start.
type hold struct{ got, released time.Duration }

// wait is one: how long it was, how many held meanwhile, and how long nobody did.
type wait struct {
	took, idle time.Duration
	turns      int
}

// add notes a hold, behind all that were released before it began, and says what is wrong with the wait for it. The
// holders sleep, so how long they held is no matter of the lock's, but how many they were, and the time between them is:
// no more than half of what they are to hold, beside the time in which the machine stood still.
func (x *waits) add(h hold, called, stood time.Duration) string {
	w := wait{took: h.got - called}
	w.idle = w.took
	for _, o := range x.held {
		if o.released > called {
			w.idle -= min(o.released, h.got) - max(o.got, called)
			w.turns++
		}
	}
	if w.idle > x.worst.idle {
		x.worst = w
	}
	x.took, x.turns = max(x.took, w.took), max(x.turns, w.turns)
	x.held[x.got%len(x.held)] = h
	x.got++
	if w.turns > mostTurns+int(stood/holds) {
		return fmt.Sprintf("at %v a wait of %d turns, more than %d", h.got, w.turns, mostTurns)
	}
	if limit := turn/2 + stood; w.idle > limit {
		return fmt.Sprintf("at %v a wait in which nobody held for %v, more than %v", h.got, w.idle, limit)
	}
	return ""
}

// a wait behind n others, each of whom holds for that long with a pause behind.
func after(n int, holds, pause, stood time.Duration) string {
	var x waits
	at := time.Duration(0)
	for range n {
		x.add(hold{at, at + holds}, at, 0)
		at += holds + pause
	}
	return x.add(hold{at, at + holds}, 0, stood)
}

func TestAWaitIsAsManyTurnsAsThereAreWorkersAndNoTimeBeside(t *testing.T) {
	t.Parallel()
	require.Empty(t, after(workers, holds, holds/4, 0))
	require.Empty(t, after(workers, time.Second, holds/4, 0), "the machine, or the work, is slow: the holds are long")
	require.Empty(t, after(workers, holds, holds, turn), "it stood still")
	require.Contains(t, after(600, holds, 0, 0), "a wait of 600 turns", "30 s in which the others held all the time")
	require.Contains(t, after(mostTurns+1, holds, 0, 0), "turns", "overtaken")
	require.Contains(t, after(workers, holds, holds, 0), "nobody held")
	require.Contains(t, after(workers, time.Second, holds, 0), "nobody held", "however long the others hold")
	require.Contains(t, after(1, holds, turn, 0), "nobody held", "a hand-off that waits for a look")
}
