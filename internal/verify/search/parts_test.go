package search

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// halves are the parts of rules, searched one by one: what is found without each, and where. Of those with
// Nothing no search within the bounds has shown that they are needed beside the rest; they are searched here
// in one scope and to a smaller bound.
var halves = []struct {
	part  Rule
	scope string
	kind  Kind
}{
	{R1Order, "two clients and a fault", Nothing},
	{R1Repeat, "two clients and a fault", Phantom},
	{R2Confirmed, "two clients that come back", Overtaken},
	{R2Connection, "two clients and a fault", Nothing},
	{R3Ask, "two calls at a time", Nothing},
	{R3Check, "two clients and a fault", Stranded},
	{R3Leave, "semaphore", Nothing},
	{R8Held, "two clients that come back", Believers},
	{R8Ending, "two clients and a fault", Nothing},
	{R10Suspects, "two calls at a time", Eats},
	{R10Doubt, "two calls at a time", Nothing},
}

func TestWhichPartsOfRulesAreNeeded(t *testing.T) {
	for _, h := range halves {
		t.Run(h.part.String(), func(t *testing.T) {
			t.Parallel()
			most := *most * 3 / 10 // of those that find something, the most needs 30,000
			if h.kind == Nothing {
				most /= slower
			}
			r := Search(named(t, h.scope), All.Change(h.part), most)
			t.Logf("%v: %v", h.part, &r)
			require.Equal(t, h.kind, r.Kind, "%s", r.Why)
		})
	}
}
