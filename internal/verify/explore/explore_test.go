package main

import (
	"flag"
	"hash/maphash"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// findsNothing asserts that a scope is gone through whole, that nothing is wrong, and that everybody gets in from each state.
func findsNothing(t *testing.T, s *scope) {
	t.Helper()
	r := (&search{scope: s, deep: s.Depth}).run()
	if r.found != nil {
		told, _ := s.follow(r.found.way)
		require.Fail(t, r.found.what, "%s\n\n%s", strings.Join(told, "\n"), s.command(r.found.way))
	}
	require.True(t, s.Depth > 0 || r.whole && r.lives)
}

func TestNothingIsFound(t *testing.T) {
	for _, s := range scopes {
		if s.Long || s.Wide {
			continue
		}
		t.Run(s.Title, func(t *testing.T) { findsNothing(t, s) })
	}
}

// In the larger scopes mutants are found. They are gone through where this test is asked for by its name, and by make explore.
func TestNothingIsFoundInALongScope(t *testing.T) {
	for _, s := range scopes {
		if !s.Long && !s.Wide {
			continue
		}
		t.Run(s.Title, func(t *testing.T) {
			if asked := flag.Lookup("test.run").Value.String(); strings.Contains(asked, "InALongScope") {
				findsNothing(t, s)
			}
		})
	}
}

// A slip is a mistake of what is not in the core or the scripts.
func TestSlipsAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		scope string
		slip  func(*scope)
		finds string
	}{
		"the next leader of a cohort asks after the release":          {"a cohort and a stranger", func(s *scope) { s.AsksLater = true }, overtaken},
		"who hands a hold over ends when that is answered":            {"a client that hands over, one other, a late message and a fault", func(s *scope) { s.EndsLate = true }, twoBelievers},
		"a client counts as subscribed until it has heard of the end": {"two clients that come back, one that gives up and one that unsubscribes", func(s *scope) { s.HearsOn = true }, overtaken},
		"what a dead client has sent is served after its burial":      {"a holder that is buried, one other, and a late message", func(s *scope) { s.RunsOn = true }, buriedHolds},
		"a call for several names asks for each by itself":            {"a call for one name, two for two, and a ticket that is skipped", func(s *scope) { s.OneByOne, s.Late = true, 1 }, anotherOrder},
		"what was given back is asked for again behind all others":    {"a call for one name, three for two", func(s *scope) { s.NewPlace = true }, anotherOrder},
		"requests overtake each other, for which releases make up":    {"two clients, a late message and one that gives up", func(s *scope) { s.Overtake = true }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := *chosen(c.scope, true)[0]
			c.slip(&s)
			r := (&search{scope: &s}).run()
			if c.finds == "" {
				require.Nil(t, r.found)
				return
			}
			require.NotNil(t, r.found)
			require.Equal(t, c.finds, r.found.what)
			_, bad := s.follow(r.found.way)
			require.Equal(t, c.finds, bad, "the way leads there again")
		})
	}
}

func TestNothingIsFoundOnWalks(t *testing.T) {
	for _, s := range walks {
		t.Run(s.Title, func(t *testing.T) {
			for seed := range uint64(500) {
				told, steps, bad := s.walk(seed, true)
				require.Empty(t, told)
				require.Empty(t, bad, "go run ./internal/verify/explore -scope %q -walks 1 -seed %d", s.Title, seed)
				require.Positive(t, steps)
			}
		})
	}
}

// One seed is one history, byte for byte.
func TestASeedIsAHistory(t *testing.T) {
	for _, s := range walks {
		one, bad := s.history(7)
		other, _ := s.history(7)
		require.Empty(t, bad)
		require.Equal(t, one, other, s.Title)
		next, _ := s.history(8)
		require.NotEqual(t, one, next, s.Title)
	}
}

// What depends on more than one field is written down: a form that was made too early has nothing of it.
func TestFormsHaveTheirSpecials(t *testing.T) {
	for of := range specials {
		if f := forms[of]; f != nil {
			require.NotNil(t, f.special, of.String())
		}
	}
	require.NotNil(t, forms[reflect.TypeFor[flight]()])
}

// A copy shares nothing with what it is a copy of, and is the same state.
func TestACopyIsTheSameStateAndSharesNothing(t *testing.T) {
	for _, s := range append(walks, scopes...) {
		w := s.world()
		k := worker{newCopier(), newEncoder(maphash.MakeSeed())}
		for range 12 {
			all := w.steps()
			if len(all) == 0 {
				break
			}
			before := string(encode(k.encoder, w, w.now))
			x := copyOf(k.copier, w)
			require.Equal(t, before, string(encode(k.encoder, x, x.now)), s.Title)
			all[0].do(x)
			x.flow()
			require.Equal(t, before, string(encode(k.encoder, w, w.now)), s.Title)
			w = x
		}
	}
}

// The page and the table have what a search found, and keep what it did not go through.
func TestThePageHasWhatTheTableComesTo(t *testing.T) {
	dir := t.TempDir()
	table, page := filepath.Join(dir, "scopes.tsv"), filepath.Join(dir, "page.md")
	first, second := scopes[0].Title, scopes[1].Title
	require.NoError(t, os.WriteFile(table, []byte(tableHead+first+"\t1\t2\t3\n"+second+"\t10\t20\t30\ngone\t5\t5\t5\n"), 0o600))
	require.NoError(t, os.WriteFile(page, []byte("before\n"+totalBegins+"old\n"+totalEnds+"after\n"), 0o600))
	require.NoError(t, fill(table, page, "Ran.\n", []string{first + "\t100\t200\t4"}))
	text, err := os.ReadFile(table)
	require.NoError(t, err)
	require.Equal(t, tableHead+first+"\t100\t200\t4\n"+second+"\t10\t20\t30\n", string(text))
	text, err = os.ReadFile(page)
	require.NoError(t, err)
	require.Equal(t, "before\n"+totalBegins+"2 scopes, 110 states, 220 steps, at most 30 steps deep. The largest, with 100 states: "+first+".\nRan.\n"+totalEnds+"after\n", string(text))
	require.NoError(t, os.WriteFile(page, []byte("nothing\n"), 0o600))
	require.ErrorContains(t, fill(table, page, "", nil), "no place")

	// And so it is in the tree.
	text, err = os.ReadFile("scopes.tsv")
	require.NoError(t, err)
	rows := strings.Split(strings.TrimSpace(strings.TrimPrefix(string(text), tableHead)), "\n")
	body, err := os.ReadFile("../../../docs/explore.md")
	require.NoError(t, err)
	require.Contains(t, string(body), totalBegins+total(rows)+totalEnds)
}
