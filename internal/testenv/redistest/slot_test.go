package redistest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The check value is the one in the Redis cluster specification; keys and slots are from its documentation.
func TestSlotsAreThoseOfTheSpecification(t *testing.T) {
	t.Parallel()
	require.Equal(t, 12739, Slot("123456789"))
	require.Equal(t, 12182, Slot("foo"))
	require.Equal(t, 5061, Slot("bar"))
	require.Zero(t, Slot(""))
}

func TestOnlyTheFirstTagCounts(t *testing.T) {
	t.Parallel()
	require.Equal(t, Slot("user1000"), Slot("{user1000}.following"))
	require.Equal(t, Slot("user1000"), Slot("a{user1000}b{c}"))
	require.Equal(t, Slot("{bar"), Slot("foo{{bar}}zap"))
}
