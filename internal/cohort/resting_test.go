package cohort

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What a release looks through is the holds that are idle, however many are in use.
func TestAReleaseLooksAtNoKeptHoldThatIsInUse(t *testing.T) {
	all := &cohorts{}
	kept := make([]*cohort, 3*mostKept)
	for i := range kept {
		kept[i] = &cohort{of: all}
		require.Nil(t, kept[i].restLocked())
		kept[i].takenUpLocked()
	}
	require.Equal(t, 1, all.resting.Len())
	idle := kept[mostKept:]
	for _, co := range idle[:mostKept] {
		require.Nil(t, co.restLocked())
	}
	require.Equal(t, 1+mostKept, all.resting.Len())
	idle[0].takenUpLocked()
	require.Nil(t, idle[0].restLocked(), "it is the last now")
	require.Same(t, idle[1], idle[mostKept].restLocked())
	idle[1].takenUpLocked() // As its hold is given back.
	require.Same(t, idle[2], idle[1].restLocked())
	require.Equal(t, 1+mostKept, all.resting.Len())
	require.Equal(t, mostKept, all.rest)
}
