package lua

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestANumberThatIsNeitherATimeNorAStatusIsNoReply(t *testing.T) {
	for n := range int64(MoreKeys) + 1 {
		want := Tuple{}
		if Status(n) == Done || Status(n) == MoreKeys {
			want.Status = Status(n)
		}
		require.Equal(t, want, ofNumber(n), n)
	}
	require.Equal(t, Granted, ofNumber(1_700_000_000_000_000).Status)
	require.Equal(t, Done, ofNumber(-1_700_000_000_000_000).Status)
}
