package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
)

// The checker is not needed here: make spec runs it.
func TestThePageIsThatOfThisSpecification(t *testing.T) {
	page := kit.Got(os.ReadFile("../../../spec/README.md"))(t)
	of := kit.Got(sum("../../../spec"))(t)
	require.Contains(t, string(page), "<!-- "+of+" -->", "run make spec")
}

func TestEachRuleIsSwitchedOffAndMissed(t *testing.T) {
	text := kit.Got(os.ReadFile("../../../spec/Headwaiter.tla"))(t)
	rules := regexp.MustCompile(`(?m)^(R\d+) == `).FindAllStringSubmatch(string(text), -1)
	require.NotEmpty(t, rules)
	for i, rule := range rules {
		require.Equal(t, fmt.Sprintf("R%d", i+1), rule[1], "the rules have their numbers in a row")
		require.True(t, slices.ContainsFunc(runs, func(r Run) bool { return r.Off == rule[1] && r.Finds != "" }), rule[1])
	}
	for _, r := range runs {
		require.Equal(t, r.Off != "", without[r.Off] != "", r.Name)
	}
}

func TestWhatIsFoundIsToldInEnglish(t *testing.T) {
	id := []any{21., 1.}
	r := Result{Steps: [][]any{{"asks", id}, {"run", "ask", []any{id}, "look", false}, {"receive", "end", []any{id}, "freed", []any{[]any{[]any{11., 0.}, 3.}}}, nil, {"cut", 2., true}, nil,
		{"hands over", []any{11., 0.}}, {"moves to", []any{11., 50.}, 2.}, nil}}
	require.Equal(t, strings.Join([]string{
		"B1/2 asks",
		"    the server runs the ask of B1/2, late (look)",
		"    B receives the reply to the end of B1/2 (freed), A1 has token 3",
		"B gives up its connection; what was on it may still run",
		"A1 hands its hold over",
		"    the hold belongs to A1 in transit, token 2", "",
	}, "\n"), r.way())
}
