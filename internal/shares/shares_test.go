package shares

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// entered returns leases on a hold of these kinds, in the order in which they were got.
func entered(t *testing.T, kinds ...byte) (*Shares, []*Share) {
	t.Helper()
	h, all := &Shares{}, make([]*Share, len(kinds))
	for i, kind := range kinds {
		all[i] = &Share{Keeper: lease.New(t.Context(), lease.Terms{
			Until:   lease.Until{Deadline: time.Now().Add(time.Minute), Slept: lease.Slept()},
			Release: func(context.Context) error { return nil },
		})}
		h.Add(all[i], kind)
	}
	return h, all
}

// left is what Each goes through.
func left(h *Shares) (found []*Share) {
	for s := range h.Each {
		found = append(found, s)
	}
	return found
}

func TestLeasesLeaveInAnyOrder(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {1, 0, 3}, {3, 1, 2}, {2, 3, 0}} {
		h, all := entered(t, lua.Exclusive, lua.Exclusive, lua.Exclusive, lua.Exclusive)
		there := map[*Share]bool{all[0]: true, all[1]: true, all[2]: true, all[3]: true}
		for _, i := range order {
			require.False(t, h.Leave(all[i]))
			delete(there, all[i])
			require.Len(t, left(h), len(there))
			for _, s := range left(h) {
				require.True(t, there[s])
			}
			require.Equal(t, len(there), h.Open)
		}
	}
}

func TestTheLastLeaseForWritingIsTold(t *testing.T) {
	h, all := entered(t, lua.Write, lua.Write, lua.Read)
	require.False(t, h.Leave(all[0]))
	require.True(t, h.Unwrite(all[1]))
	require.False(t, h.Unwrite(all[1]), "once")
	require.Zero(t, h.Writes)
	require.Equal(t, 2, h.Open)
}

func TestTheServerIsToldOfANumberThatHasChanged(t *testing.T) {
	h, all := entered(t, lua.Exclusive, lua.Exclusive)
	require.Empty(t, h.Entries())
	h.Recount()
	require.Equal(t, "1:2", h.Entries())
	h.Leave(all[1])
	h.Recount()
	require.Equal(t, "2:1", h.Entries())
}

func TestALossOfOneLeaseEndsNotTheOthers(t *testing.T) {
	h, all := entered(t, lua.Exclusive, lua.Exclusive)
	all[1].Keeper.Lose(errors.New("lost"))
	require.False(t, h.Overdue())
	require.False(t, h.Releasing())
	require.False(t, h.Extend(lease.Until{Deadline: time.Now().Add(time.Hour), Slept: lease.Slept()}), "there was no time for that")
	all[1].Keeper.End()
	require.False(t, all[1].Released(), "a loss stays a loss")
}
