package barrier_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/barrier"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lua"
)

// A party that has passed, but has not heard of it before its generation and others are over, asks again. It
// may be told that it has passed, or that nothing is known of it any more; it is no arrival of the generation
// that it finds.
func TestAPartyThatAsksAgainGenerationsLaterDoesNotComeAgain(t *testing.T) {
	for _, later := range []int{0, 1, 2, 3} {
		t.Run(string(rune('0'+later)), func(t *testing.T) {
			kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
				d := faults.NewDialer(t, s.Dial)
				far, near := on(t, kit.Dial(t, s, kit.Over(d)), 2), dial(t, s, 2)
				meet(t, func(i int) view { return []view{far, near}[i] })

				first := near.comes(t, t.Context(), 1)
				d.LoseReplies(1, kit.Runs(lua.Barrier.Ask))
				lost := far.party(t.Context())
				kit.LostReplies(t, d.Faults, 1)
				d.Refuse() // Until the others have met a few times.
				d.Cut()
				require.Equal(t, 1, first.Value(t))
				for range later {
					meet(t, func(int) view { return near })
				}
				alone := near.comes(t, t.Context(), 1)
				d.Heal()
				synctime.Pass(10 * time.Second)
				require.True(t, lost.Returned(), "it waits in a generation that is not its own")
				if err := lost.Err(t); err != nil {
					require.ErrorIs(t, err, barrier.ErrBroken)
				}
				require.False(t, alone.Returned())
				require.Equal(t, 1, near.inspect(t).Waiting)
				pass(t, alone, far.party(t.Context()))
			})
		})
	}
}
