package chaos

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// violations are what a history has that must not be. Where two holders are possible, because the server has
// lost what it knew, only the tokens are judged: then they are what tells the two apart.
func violations(history []hold, limit func(name string) int, exclusive bool) []string {
	byName := map[string][]hold{}
	for _, h := range history {
		byName[h.name] = append(byName[h.name], h)
	}
	var found []string
	for name, holds := range byName {
		found = append(found, tokens(name, holds)...)
		if exclusive {
			found = append(found, overlaps(name, holds, limit(name))...)
		}
	}
	return found
}

// tokens finds tokens that do not rise: a call that began when a hold was there has a higher one than that
// hold. Readers may share one, so that only a writer's has to be above those of others.
func tokens(name string, holds []hold) []string {
	byCall := slices.SortedFunc(slices.Values(holds), func(a, b hold) int { return cmp.Compare(a.called, b.called) })
	byReturn := slices.SortedFunc(slices.Values(holds), func(a, b hold) int { return cmp.Compare(a.from, b.from) })
	var found []string
	var highest, writer hold // of those that were there, and that of those that share with nobody
	i := 0
	for _, h := range byCall {
		for ; i < len(byReturn) && byReturn[i].from < h.called; i++ {
			was := byReturn[i]
			if was.from == 0 {
				continue // It never saw that it held.
			}
			if was.token > highest.token {
				highest = was
			}
			if !was.shares() && was.token > writer.token {
				writer = was
			}
		}
		before := highest
		if h.shares() {
			before = writer
		}
		if h.token <= before.token {
			found = append(found, fmt.Sprintf("%s: token %d of %s is not above %d of %s, which was there before the call",
				name, h.token, h.worker, before.token, before.worker))
		}
	}
	seen := map[uint64]hold{}
	for _, h := range holds {
		if was, twice := seen[h.token]; twice && !(h.shares() && was.shares()) {
			found = append(found, fmt.Sprintf("%s: %s and %s both have token %d", name, was.worker, h.worker, h.token))
		}
		seen[h.token] = h
	}
	return found
}

// shares reports whether it is a reader's.
func (h hold) shares() bool {
	return h.weight == 1 && len(h.name) > len(reads) && h.name[:len(reads)] == reads
}

// overlaps finds moments at which more was certain to be held than there is.
func overlaps(name string, holds []hold, limit int) []string {
	type edge struct {
		at    int64
		ends  bool
		which hold
	}
	var edges []edge
	for _, h := range holds {
		if h.from != 0 && h.to > h.from {
			edges = append(edges, edge{h.from, false, h}, edge{h.to, true, h})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int {
		if c := cmp.Compare(a.at, b.at); c != 0 || a.ends == b.ends {
			return c
		}
		if a.ends {
			return -1
		}
		return 1
	})
	var found []string
	var present []hold
	used := 0
	for _, e := range edges {
		if e.ends {
			used -= e.which.weight
			present = slices.DeleteFunc(present, func(h hold) bool { return h == e.which })
			continue
		}
		used += e.which.weight
		present = append(present, e.which)
		if used > limit {
			found = append(found, fmt.Sprintf("%s: %d of %d are held: %+v", name, used, limit, present))
		}
	}
	return found
}

func TestAHistoryThatIsRightIsAccepted(t *testing.T) {
	lock := []hold{
		{worker: "a", name: `lock "x"`, weight: 1, token: 5, called: 1, from: 2, to: 9},
		{worker: "b", name: `lock "x"`, weight: 1, token: 6, called: 3, from: 9, to: 12},
		{worker: "c", name: `lock "x"`, weight: 1, token: 7, called: 2, from: 0, to: 0},
		{worker: "d", name: `rwlock "x"`, weight: 1, token: 7, called: 2, from: 3, to: 8},
		{worker: "e", name: `rwlock "x"`, weight: 1, token: 7, called: 4, from: 5, to: 8},
		{worker: "f", name: `rwlock "x"`, weight: readers, token: 8, called: 4, from: 8, to: 10},
	}
	require.Empty(t, violations(lock, limitOf, true))
}

func TestAHistoryThatIsWrongIsRefused(t *testing.T) {
	first := hold{worker: "a", name: `lock "x"`, weight: 1, token: 5, called: 1, from: 2, to: 9}
	reader := hold{worker: "a", name: `rwlock "x"`, weight: 1, token: 5, called: 1, from: 2, to: 9}
	for name, c := range map[string]struct {
		first, second hold
		always        bool // also where two holders are possible
	}{
		"two holders":      {first, hold{name: first.name, weight: 1, token: 6, called: 1, from: 8, to: 12}, false},
		"the token falls":  {first, hold{name: first.name, weight: 1, token: 4, called: 9, from: 10, to: 12}, true},
		"the token stays":  {first, hold{name: first.name, weight: 1, token: 5, called: 1, from: 10, to: 12}, true},
		"a reader's falls": {hold{name: reader.name, weight: readers, token: 5, called: 1, from: 2, to: 3}, hold{name: reader.name, weight: 1, token: 4, called: 3, from: 10, to: 12}, true},
		"a writer beside":  {reader, hold{name: reader.name, weight: readers, token: 6, called: 1, from: 8, to: 12}, false},
		"a writer's stays": {reader, hold{name: reader.name, weight: readers, token: 5, called: 9, from: 10, to: 12}, true},
		"too many permits": {hold{name: `semaphore "x"`, weight: 2, token: 5, called: 1, from: 2, to: 9}, hold{name: `semaphore "x"`, weight: 1, token: 6, called: 1, from: 8, to: 12}, false},
		"a permit's stays": {hold{name: `semaphore "x"`, weight: 1, token: 5, called: 1, from: 2, to: 9}, hold{name: `semaphore "x"`, weight: 1, token: 5, called: 1, from: 3, to: 12}, true},
	} {
		t.Run(name, func(t *testing.T) {
			both := []hold{c.first, c.second}
			require.NotEmpty(t, violations(both, limitOf, true))
			require.Equal(t, c.always, len(violations(both, limitOf, false)) > 0)
		})
	}
}
