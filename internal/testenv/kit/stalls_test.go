package kit

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWhatOfASpanTheMachineStoodStill(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	at := func(ms int) time.Time { return begun.Add(time.Duration(ms) * time.Millisecond) }
	s := newStalls(begun)
	s.woke(at(10), at(12)) // as timers are
	s.woke(at(20), at(120))
	s.woke(at(130), at(130))
	s.woke(at(140), at(240))
	for _, c := range []struct{ from, to, stood int }{
		{0, 20, 0}, {0, 240, 200}, {50, 60, 10}, {50, 180, 110}, {120, 140, 0}, {200, 240, 40},
	} {
		require.Equal(t, time.Duration(c.stood)*time.Millisecond, s.Within(at(c.from), at(c.to)), "%v", c)
	}
}

func TestAMachineThatDoesNotStandStillHasNoStalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		s := WatchStalls(t)
		time.Sleep(time.Minute) // of the bubble
		require.Zero(t, s.Within(begun, time.Now()))
	})
}
