package words

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/lease"
)

func TestARollThatForgetsDoesNotHideWhatIsSaidHere(t *testing.T) {
	t.Parallel()
	who := Roll{}
	for i := range rolled + 1 {
		who.Read(lease.Info{Queue: []lease.Waiter{{Client: strconv.Itoa(i), Who: "test@here#1"}}})
	}
	require.Empty(t, who.Who("0", ""))
	require.Equal(t, "test@here#1", who.Who(strconv.Itoa(rolled), ""))
	require.Equal(t, "test@there#2", who.Who("0", "test@there#2"))
	require.Equal(t, "test@there#2", who.Of(lease.Holder{Client: "0", Who: "test@there#2"}))
}
