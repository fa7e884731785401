package search

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
)

// bytes is the size of a type without gaps; it fails the test at anything but bytes.
func bytes(t *testing.T, x reflect.Type) int {
	t.Helper()
	switch x.Kind() {
	case reflect.Uint8, reflect.Bool:
		return 1
	case reflect.Array:
		return x.Len() * bytes(t, x.Elem())
	case reflect.Struct:
		n := 0
		for i := range x.NumField() {
			n += bytes(t, x.Field(i).Type)
		}
		return n
	}
	require.Fail(t, "not a byte", "%v", x)
	return 0
}

// Two states are one if their bytes are: a gap, or a pointer, would make it a matter of chance.
func TestAStateHasBytesOnly(t *testing.T) {
	x := reflect.TypeFor[State]()
	require.EqualValues(t, x.Size(), bytes(t, x))
	t.Logf("%d bytes", x.Size())
}

func TestASetKnowsWhatWasAdded(t *testing.T) {
	s, chance := newSet(), rand.New(rand.NewPCG(1, 2))
	var added []uint64
	for range 100_000 {
		x := chance.Uint64() | 1
		require.True(t, s.add(x))
		added = append(added, x)
	}
	for _, x := range added {
		require.False(t, s.add(x))
	}
}

// A search that does not come to a place finds nothing wrong there.
func TestEverythingThatCanHappenHappens(t *testing.T) {
	t.Parallel()
	var moved [mKillAll + 1]int
	var sent [pGone + 1]int
	var states [ending + 1]int
	var phases [full + 1]int
	marks, suspects, zombies, past := 0, 0, 0, 0
	var moves []move
	for i, x := range Wide() {
		chance := rand.New(rand.NewPCG(uint64(i), 7))
		for range 4_000 / min(slower, 4) {
			w := world{scope: x, rules: All, s: x.start()}
			for range 200 {
				moves = w.moves(moves[:0])
				if len(moves) == 0 {
					break
				}
				m := pick(chance, moves)
				moved[m.what]++
				w.do(m)
				s := &w.s
				for _, m := range s.net[:s.sent] {
					sent[m.kind]++
				}
				for c := range s.clients {
					for _, t := range s.clients[c].tickets {
						states[t.state]++
						if t.past != 0 {
							past++
						}
					}
				}
				for _, h := range s.server.holds {
					if h.ticket != 0 {
						phases[h.phase]++
					}
				}
				count := func(n *int, is bool) {
					if is {
						*n++
					}
				}
				count(&marks, s.server.mark > 0)
				count(&suspects, s.server.suspects != 0)
				count(&zombies, s.server.zombies != 0)
			}
		}
	}
	t.Log("moves", moved, "messages", sent, "states", states, "phases", phases, "marks", marks, "suspects", suspects,
		"zombies", zombies, "past", past)
	require.NotContains(t, moved, 0)
	require.NotContains(t, sent[qAsk:], 0)
	require.NotContains(t, states, 0)
	require.NotContains(t, phases, 0)
	require.NotZero(t, marks*suspects*zombies*past)
}

// No rule that is left out leaves a ticket in the queue for good, so this is how it would look.
func TestATicketThatIsLeftBehindIsSeen(t *testing.T) {
	x := named(t, "two clients and a fault")
	w := world{scope: x, rules: All, s: x.start()}
	w.s.server.queue[0], w.s.server.queued = entry{idOf(1, 0, 0), 1}, 1
	w.fair(memo{})
	require.Equal(t, Ghost, w.kind)
}

func TestAWalkIsMadeAgainByItsSeed(t *testing.T) {
	x := Wide()[0]
	require.Equal(t, Walk(x, All, 5, 100), Walk(x, All, 5, 100))
}
