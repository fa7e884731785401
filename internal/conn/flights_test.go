package conn

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTheEndWaitsForCommandsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFlights()
		require.True(t, f.begin())
		require.True(t, f.begin())
		begun, over := time.Now(), false
		go func() {
			f.close()
			over = true
		}()
		synctest.Wait()
		require.False(t, f.begin(), "no more begin")
		f.end()
		synctest.Wait()
		require.False(t, over, "one is under way")
		f.end()
		synctest.Wait()
		require.True(t, over)
		require.Zero(t, time.Since(begun))
		require.False(t, f.begin())
	})
}

func TestTheEndWaitsForNoCommandForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFlights()
		require.True(t, f.begin())
		begun := time.Now()
		f.close()
		require.Equal(t, flightsTime, time.Since(begun))
		f.end()

		none := newFlights()
		none.close()
		require.Equal(t, flightsTime, time.Since(begun), "nothing was under way")
	})
}
