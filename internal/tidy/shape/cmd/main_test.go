package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/tidy/shape"
)

func TestTheTableHasBothTreesBesideTheGoals(t *testing.T) {
	t.Parallel()
	const core, conn = shape.Module + "/internal/core", shape.Module + "/internal/conn"
	before := tree{circles: map[string]int{"waitqueue": 900, "internal/conn": 70, "lua": 70}, functions: []shape.Func{{File: conn + "/a.go", Line: 1, Name: "f"}}}
	now := tree{
		Sizes:   shape.Sizes{Engine: 1, Code: 2, Tests: 3, Words: 4},
		circles: map[string]int{"waitqueue": 800, "internal/core": 90, "internal/event": 80, "lua": 60},
		functions: []shape.Func{
			{File: conn + "/a.go", Line: 1, Name: "f"}, {File: core + "/a.go", Line: 1, Name: "f"}, {File: core + "/a.go", Line: 9, Name: "*T.g"},
		},
	}
	var out strings.Builder
	table(&out, "abc", before, now)
	var rows [][]string
	for line := range strings.Lines(out.String()) {
		rows = append(rows, strings.Fields(line))
	}
	require.Equal(t, []string{"base", "abc", "now", "at", "most"}, rows[0])
	for _, want := range []string{
		"one contended Lock and Release: functions 1 3 180", "files 1 2 34", "packages 1 2 10",
		"largest circle, lines: internal/core - 90 1700", "internal/event - 80", "waitqueue 900 800 800",
		"elsewhere internal/conn 70 lua 60 base",
		"lines of the engine, without tests - 1 7000", "lines of Go, without tests - 2 74000", "lines of tests - 3 72000", "words of Markdown - 4",
	} {
		require.Contains(t, rows, strings.Fields(want))
	}
	out.Reset()
	functions(&out, now.functions)
	require.Equal(t, "internal/conn: 1 f a.go:1 internal/core: 2 f a.go:1 *T.g a.go:9", strings.Join(strings.Fields(out.String()), " "))
}

func TestACommitThatIsNotHereIsNamed(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, unpack(t.Context(), ".", "deadbeef", t.TempDir()), "commit deadbeef is not here")
}
