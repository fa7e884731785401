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
	for _, text := range []string{"", "1", "1 2 3", "1 2 3 4 5 6", "1 2 3 four", "1 2 3 4 ", "1 2  4"} {
		require.Zero(t, ofText(text), text)
	}
	require.Equal(t, Tuple{Status: Waiting, Now: 1, Token: 2, Until: 3, Place: 4, Waiting: 4, Arrival: 1}, ofText("1 2 3 4"))
	require.Equal(t, Tuple{Status: Full, Now: 100, Token: 2, Until: 3, Place: -1, Waiting: 4, Arrival: 95}, ofText("100 2 3 4 5"))
	require.Equal(t, Granted, ofNumber(1_700_000_000_000_000).Status)
	require.Equal(t, Done, ofNumber(-1_700_000_000_000_000).Status)
}
