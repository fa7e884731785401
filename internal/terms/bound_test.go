package terms

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// What is off sends what was sent before there was such a thing.
func TestACallWithoutABoundSaysNothingOfIt(t *testing.T) {
	b := Terms{}.Bound(t.Context())
	require.Nil(t, b)
	require.Equal(t, lua.Wait, b.Mode(lua.Wait))
	require.Equal(t, "1700000000123456", b.Brought(1700000000123456, 0))
}

func TestABoundSaysHowManyMayWaitAndWhatIsLeft(t *testing.T) {
	limited := Terms{QueueLimit: 3}.Bound(t.Context())
	require.Equal(t, "wait 3:", limited.Mode(lua.Wait))
	require.Equal(t, "7:3:", limited.Brought(7, 0))
	require.Equal(t, "7:3:@-5000000", limited.Brought(7, -5000000))
	require.Equal(t, "7@60", (*Bound)(nil).Brought(7, 60))

	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	require.Equal(t, "0:0", Terms{Admission: true}.Bound(ctx).String(), "what is over leaves nothing, and not less")
	require.Equal(t, "2:", Terms{QueueLimit: 2}.Bound(ctx).String(), "the deadline counts for admission alone")
}

func TestACheckTellsHowFullAQueueIs(t *testing.T) {
	var full *lease.QueueFullError
	require.ErrorAs(t, Terms{QueueLimit: 3}.Bound(t.Context()).Told("4 1000000", 1500000), &full)
	require.Equal(t, lease.QueueFullError{Waiting: 4, Oldest: 500 * time.Millisecond}, *full)
	require.ErrorIs(t, Terms{QueueLimit: 3}.Bound(t.Context()).Told("many", 0), lease.ErrQueueFull)
}
