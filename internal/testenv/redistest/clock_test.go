package redistest

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAClockOfItsOwnIsTheServersAlone(t *testing.T) {
	t.Parallel()
	c := NewClock(t)
	s := Start(t, WithClock(c))
	ahead := func() time.Duration {
		sec, err := strconv.ParseInt(s.List("TIME")[0], 10, 64)
		require.NoError(t, err)
		return time.Duration(sec-time.Now().Unix()) * time.Second
	}
	require.InDelta(t, 0, ahead(), float64(2*time.Second))
	s.Do("SET", "short", "x", "PX", "10000")
	c.Shift(-time.Hour)
	require.InDelta(t, -time.Hour, ahead(), float64(2*time.Second))
	require.Greater(t, s.Int("PTTL", "short"), int64(3_500_000))
	c.Shift(time.Minute)
	require.InDelta(t, time.Minute, ahead(), float64(2*time.Second))
	require.Nil(t, s.Do("GET", "short"))
}
