package main

import (
	"hash/maphash"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// along makes the steps of a way that is given in words, and returns what is wrong at its end. After a semicolon is what happens to
// one of the things that are sent.
func (s *scope) along(t *testing.T, lines []string) (bad string) {
	t.Helper()
	w := s.world()
	w.mute = false
	k := worker{newCopier(), newEncoder(maphash.MakeSeed())}
	for _, line := range lines {
		require.Empty(t, bad, line)
		step, mishap, _ := strings.Cut(line, "; ")
		var can []string
		found := false
		k.each(w, func(n *next) bool {
			told := n.world.told
			happens := slices.ContainsFunc(told, func(text string) bool { return strings.TrimSpace(text) == mishap })
			if found = told[0] == step && (mishap == "" && n.world.plan.nth == 0 || happens); found {
				w, bad = n.world, n.bad
			}
			can = append(can, strings.Join(told, "\n"))
			return !found
		})
		t.Log(strings.Join(w.told, "\n"))
		require.True(t, found, "%s\n\n%s", line, strings.Join(can, "\n\n"))
	}
	return bad
}

// Ways through scopes that are too wide to be gone through whole.
func TestWays(t *testing.T) {
	for name, c := range map[string]struct {
		scope scope
		finds string
		steps []string
	}{
		"a ticket that is queued twice keeps its earlier arrival": {scope{Calls: "A1 A2 B1 B2 C1", Double: "B", Replica: "B", budget: budget{Late: 1}}, "", []string{
			"A1 asks", "B1 asks; held up: the check of B1 (B)", "B2 asks", "B waits no more for what is held up",
			"B2 tries again", // It queues, and is skipped.
			"C1 asks", "A1 releases", "A2 asks",
			"the acquire request of B2 runs at last", // It queues B2 behind A2.
			"the timer of B goes off",                // The check names B2 with its place.
			"C1 releases",
		}},
		// A silent client lets two grants run out, and not one, where an old check shows that it lives: it tells of a ping that
		// is older than the mark which it clears. That is known, and costs one more grant lease. Where nothing is found here any
		// more, the code has become better: then docs/explore.md says too much.
		"an old check costs one more grant lease": {scope{Calls: "A1 A2 A3 B1 B2", Double: "B", budget: budget{Late: 2, Faults: 1, Cancels: 1}}, secondLapse, []string{
			"A1 asks", "B1 asks", "B2 asks", "A1 releases; held up: the grant of B1 (B)",
			"the lease of B1 runs out", "A2 asks", // B is a suspect.
			"what was held up goes on: the grant of B1 (B); held up: the check of B1/2, B2 (B)", // Which tells of its ping.
			"B1 gives up", "B waits no more for what is held up",
			"the timer of B goes off",                                            // So does this check: it is no suspect any more.
			"B is stopped", "A2 releases", "the lease of B2 runs out", "A3 asks", // It is one again.
			"the check of B1/2, B2 runs at last",
			"A3 releases",
		}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.finds, c.scope.along(t, c.steps)) })
	}
}
