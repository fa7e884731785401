package search

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	most   = flag.Int("search.most", 1_000_000, "states to reach in each scope")
	deeper = flag.Uint("search.deeper", 0, "how many more messages are late, and faults happen, than usual")
	walks  = flag.Int("search.walks", 5_000, "random walks in each wide scope")
	first  = flag.Uint64("search.seed", 0, "seed of the first walk")
	update = flag.Bool("search.update", false, "write the traces in testdata anew")
)

func named(t *testing.T, name string) *Scope {
	t.Helper()
	for _, x := range Scopes() {
		if x.Name == name {
			return x
		}
	}
	require.Fail(t, "no such scope", name)
	return nil
}

func TestWithAllRulesNothingGoesWrong(t *testing.T) {
	for _, x := range Scopes() {
		t.Run(x.Name, func(t *testing.T) {
			t.Parallel()
			x.Late += uint8(*deeper)
			x.Faults += uint8(*deeper)
			r := Search(x, All, *most/slower)
			t.Logf("%v", &r)
			require.Equal(t, Nothing, r.Kind, "%s\n%s", r.Why, strings.Join(r.Trace, "\n"))
			require.Zero(t, r.Cut, "a state has too little room for this scope")
			if x.Whole && slower == 1 && *deeper == 0 && *most >= 1_000_000 {
				require.True(t, r.Complete, "this scope has grown: it was gone through before")
			}
		})
	}
}

// broken are the searches that must find something: what is left out, where, and what is found first.
var broken = []struct {
	rule  Rule
	scope string
	kind  Kind
}{
	{R1, "two clients and a fault", Phantom},
	{R2, "two clients that come back", Overtaken},
	{R3, "three clients", Stranded},
	{R4, "a listener at a replica", Believers},
	{R5, "a listener at a replica", Stranded},
	{R6, "three clients", Overtaken},
	{R7, "two clients and a fault", Phantom},
	{R8, "two calls at a time", Believers},
	{R9, "two clients and a fault", Phantom},
	{R10, "two calls at a time", Eats},
	{EndWhenAnswered, "two clients and a fault", Phantom},
	{LapseForgets, "two clients and a fault", Phantom},
	{MateAsksLater, "a cohort and a stranger", Overtaken},
	{MateIsForgotten, "a cohort and a stranger", Stranded},
}

// TestEachRuleIsNeeded shows what goes wrong without each rule, and with each slip: the shortest way there.
func TestEachRuleIsNeeded(t *testing.T) {
	for _, b := range broken {
		t.Run(b.rule.String(), func(t *testing.T) {
			t.Parallel()
			x := named(t, b.scope)
			r := Search(x, All.Change(b.rule), 1_000_000)
			t.Logf("%v: %v", b.rule, &r)
			require.Equal(t, b.kind, r.Kind)
			golden(t, b.rule, fmt.Sprintf("%v: %s\nSearched: %s\nFound: %v, %s\n\n%s\n",
				b.rule, without[b.rule], b.scope, r.Kind, r.Why, strings.Join(r.Trace, "\n")))
		})
	}
}

// golden compares a trace with that in testdata.
func golden(t *testing.T, rule Rule, text string) {
	t.Helper()
	name := filepath.Join("testdata", rule.String()+".txt")
	if *update {
		require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
	}
	want, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Equal(t, string(want), text, "run with -search.update if this is meant")
}

func TestRandomWalksFindNothing(t *testing.T) {
	for _, x := range Wide() {
		t.Run(x.Name, func(t *testing.T) {
			t.Parallel()
			var sum Result
			for seed := *first; seed < *first+uint64(max(*walks/slower, 1)); seed++ {
				r := Walk(x, All, seed, 200)
				require.Equal(t, Nothing, r.Kind, "again: go test ./internal/verify/search -run '%s$' -search.walks=1 -search.seed=%d\n%s\n%s",
					t.Name(), seed, r.Why, strings.Join(r.Trace, "\n"))
				sum.Moves += r.Moves
				sum.Cut += r.Cut
				sum.Slowest = max(sum.Slowest, r.Slowest)
			}
			t.Logf("%d walks, %d moves, everybody in within %d ticks, %d left off", *walks/slower, sum.Moves, sum.Slowest, sum.Cut)
			require.Less(t, sum.Cut, max(*walks/slower/100, 2), "too many walks need more room than a state has")
		})
	}
}

// TestSlipsThatOnlyWalksFind makes the walks that have found them.
func TestSlipsThatOnlyWalksFind(t *testing.T) {
	for _, b := range []struct {
		slip Rule
		wide int
		seed uint64
		kind Kind
	}{
		{LateArrivalStays, 2, 5928, Overtaken},
		{StaleProof, 1, 20670, Eats},
	} {
		r := Walk(Wide()[b.wide], All.Change(b.slip), b.seed, 200)
		t.Logf("%v: %v, %s, %d lines", b.slip, r.Kind, r.Why, len(r.Trace))
		require.Equal(t, b.kind, r.Kind)
		require.Equal(t, Nothing, Walk(Wide()[b.wide], All, b.seed, 200).Kind)
	}
}
