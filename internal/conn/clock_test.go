package conn

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/internal/timers"
	"github.com/headwaiter/headwaiter/lease"
)

// farServer is a server whose clock has an offset, and runs apart by so many parts of a thousand.
type farServer struct {
	began  time.Time
	offset time.Duration
	rate   float64
}

// at is what its clock shows, in µs.
func (f farServer) at(t time.Time) int64 {
	local := t.Sub(f.began)
	return (f.offset + local + time.Duration(float64(local)*f.rate)).Microseconds()
}

func TestAClockWithoutAReadingPromisesNothing(t *testing.T) {
	var c Clock
	now := time.Now()
	require.Zero(t, c.AtLeast(now))
	from, slept := c.Since(12345, now)
	require.Equal(t, now, from)
	require.Greater(t, lease.Slept()-slept, timers.WokeUp, "news of nobody knows when was taken for fresh")
	c.Observe(Attempt{Sent: now}, 0, true)
	require.Zero(t, c.AtLeast(now), "a reply without a time is no reading")
}

// Requests and replies take random times; the server's clock runs up to 0.1 % too fast or too slow.
func TestTheBoundsOfTheServersClockHold(t *testing.T) {
	t.Parallel()
	for _, rate := range []float64{-0.0009, 0, 0.0009} {
		synctest.Test(t, func(t *testing.T) {
			var c Clock
			f := farServer{began: time.Now(), offset: time.Duration(rand.N(int64(50 * 365 * 24 * time.Hour))), rate: rate}
			pause := func(most time.Duration) { synctime.Pass(rand.N(most)) }
			for range 500 {
				sent := time.Now()
				pause(5 * time.Millisecond)
				shown := f.at(time.Now())
				pause(5 * time.Millisecond)
				c.Observe(Attempt{Sent: sent}, shown, rand.N(2) == 0)

				later := time.Now().Add(rand.N(time.Minute))
				require.LessOrEqual(t, c.AtLeast(later), f.at(later), "the server's clock was promised to show more than it did")
				require.Greater(t, c.AtLeast(later), f.at(later)-(300*time.Millisecond).Microseconds())

				pause(time.Second)
				granted := time.Now()
				at := f.at(granted)
				pause(20 * time.Millisecond)
				from, _ := c.Since(at, time.Now())
				require.False(t, from.After(granted.Add(2*time.Microsecond)), "the grant is older than it was taken for")
				require.Less(t, granted.Sub(from), 50*time.Millisecond)
			}
		})
	}
}

func TestAGrantIsNeverYoungerThanItsNotice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Clock
		sent := time.Now()
		c.Observe(Attempt{Sent: sent, Slept: 7}, 1_000_000, true)
		received := sent.Add(time.Second)
		// The server's clock has stepped forward by an hour since.
		from, slept := c.Since(3_600_000_000, received)
		require.Equal(t, received, from)
		require.Equal(t, time.Duration(7), slept, "what the machine slept since the reading counts")
		// Or back: then the grant seems older than it is, which only costs a confirmation.
		from, _ = c.Since(0, received)
		require.True(t, from.Before(sent))
	})
}

func TestAReadingIsReplacedWhenItIsOldOrWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Clock
		begun := time.Now()
		c.Observe(Attempt{Sent: begun}, 1000, false)
		synctime.Pass(readingAge / 2)
		c.Observe(Attempt{Sent: time.Now()}, 2000, false)
		require.Equal(t, int64(1000), c.newest.Load().server, "a young reading is good enough")
		c.Observe(Attempt{Sent: time.Now()}, 3000, true)
		require.Equal(t, int64(3000), c.newest.Load().server)
		synctime.Pass(readingAge)
		c.Observe(Attempt{Sent: time.Now()}, 4000, false)
		require.Equal(t, int64(4000), c.newest.Load().server)
	})
}
