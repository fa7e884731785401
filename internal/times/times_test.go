package times

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTheFirstOfSomeTimesIsNoneThatIsNotSet(t *testing.T) {
	early := time.Unix(1, 0)
	late, unset := early.Add(time.Second), time.Time{}
	require.Equal(t, early, First(late, early))
	require.Equal(t, late, First(unset, late, unset))
	require.Zero(t, First(unset, unset))
	require.Zero(t, First())
}

func TestTheLaterAndTheEarlierOfTwoTimes(t *testing.T) {
	early := time.Unix(1, 0)
	late := early.Add(time.Second)
	require.Equal(t, late, Later(early, late))
	require.Equal(t, late, Later(late, early))
	require.Equal(t, early, Earlier(early, late))
	require.Equal(t, early, Earlier(late, early))
}

func TestPausesDoubleToASecondWithHalfLeftToChance(t *testing.T) {
	for tries := range 100 {
		whole := min(FirstBackoff<<min(tries, 10), LongestBackoff)
		require.Equal(t, whole/2, Backoff(tries, 0))
		require.Less(t, Backoff(tries, 1<<64-1), whole)
		require.Greater(t, Backoff(tries, 1<<64-1), whole-time.Microsecond)
	}
	require.Equal(t, time.Second, Jitter(time.Second, time.Second, 5))
	require.Equal(t, time.Second, Jitter(time.Second, 0, 5))
}

func TestDurationsAreToldWithThreeDigits(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 1: "1ns", 999: "999ns", 1234: "1.23µs", 123_456: "123µs", 1_234_567: "1.23ms",
		999_999_999: "1s", 5_000_300_000: "5s", 5_123_456_789: "5.12s", 65_432_100_000: "1m5.4s",
		3 * time.Hour / 2: "1h30m0s", 100*time.Hour + 1234*time.Millisecond: "100h0m0s", -time.Second: "-1s",
	} {
		require.Equal(t, want, Readable(d).String(), "%d", d)
	}
}
