package renewals

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/lease"
)

func TestTheMarginIsAPartOfTheLease(t *testing.T) {
	for lasts, want := range map[time.Duration]time.Duration{
		time.Hour:              36 * time.Second,
		10 * time.Second:       100 * time.Millisecond,
		time.Second:            10 * time.Millisecond,
		100 * time.Millisecond: 2 * time.Millisecond,
		10 * time.Millisecond:  2 * time.Millisecond,
		4 * time.Millisecond:   time.Millisecond,
		time.Millisecond:       250 * time.Microsecond,
	} {
		require.Equal(t, want, Margin(lasts), "%v", lasts)
	}
	from := time.Now()
	u := Until(from, 10*time.Second, 5, lease.ErrMaxHold)
	require.Equal(t, lease.Until{Deadline: from.Add(9900 * time.Millisecond), Slept: 5, Cause: lease.ErrMaxHold}, u)
}
