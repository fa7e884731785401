package shape

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
)

// written is a folder with some files.
func written(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, body := range files {
		name = filepath.Join(dir, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o700))
		require.NoError(t, os.WriteFile(name, []byte(body), 0o600))
	}
	return dir
}

// counted is a module whose command runs some rounds. What is called before, after, or seldom does not count.
var counted = map[string]string{
	"go.mod": "module example.test/counted\n\ngo 1.25\n",
	"a/a.go": `package a

type T struct{}

func (*T) Every() { func() { mostly() }() }

func mostly() { _ = 1 }

func Seldom() { _ = 1 }

func Before() { _ = 1 }
`,
	"a/other.go": "package a\n\nfunc After() { Never() }\n\nfunc Never() { _ = 1 }\n",
	"b/b.go":     "package b\n\nfunc Generic[T any](t T) T { return t }\n",
	"tests/t.go": "package tests\n\nfunc Help() { _ = 1 }\n",
	"main.go": `package main

import (
	"os"
	"path/filepath"
	"runtime/coverage"
	"strconv"

	"example.test/counted/a"
	"example.test/counted/b"
	"example.test/counted/tests"
)

func main() {
	for i := range 3 {
		a.Before()
		if coverage.ClearCounters() != nil {
			os.Exit(2)
		}
		tests.Help()
		if i == 1 {
			a.Seldom()
		} else {
			new(a.T).Every()
		}
		b.Generic(i)
		folder := filepath.Join(os.Args[1], strconv.Itoa(i))
		if os.Mkdir(folder, 0o700) != nil || coverage.WriteMetaDir(folder) != nil || coverage.WriteCountersDir(folder) != nil {
			os.Exit(3)
		}
		a.After()
	}
}
`,
}

func TestWhatRanInMostRoundsIsCounted(t *testing.T) {
	t.Setenv("GOWORK", "off")
	dir, data := written(t, counted), t.TempDir()
	program := filepath.Join(t.TempDir(), "counted")
	require.NoError(t, BuildCounted(t.Context(), dir, "example.test/counted", ".", program))
	require.NoError(t, exec.Command(program, data).Run())
	var rounds []string
	for i := range 3 {
		rounds = append(rounds, filepath.Join(data, strconv.Itoa(i)))
	}
	const a, b = "example.test/counted/a", "example.test/counted/b"
	every, generic := Func{a + "/a.go", 5, "*T.Every"}, Func{b + "/b.go", 3, "Generic"}
	mostly, seldom := Func{a + "/a.go", 7, "mostly"}, Func{a + "/a.go", 9, "Seldom"}
	without := []string{"example.test/counted/tests/", "example.test/counted/main.go"}
	require.Equal(t, []Func{every, mostly, generic}, kit.Got(Ran(t.Context(), rounds, without...))(t))
	require.Equal(t, []Func{seldom, generic}, kit.Got(Ran(t.Context(), rounds[1:2], without...))(t))
	require.Contains(t, kit.Got(Ran(t.Context(), rounds))(t), Func{"example.test/counted/tests/t.go", 3, "Help"})
	require.Equal(t, b, generic.Package())
	require.Error(t, kit.Err(Ran(t.Context(), []string{filepath.Join(data, "nowhere")})))
}

func TestLinesAndWordsAreThoseOfTheTree(t *testing.T) {
	t.Parallel()
	dir := written(t, map[string]string{
		".gitignore":               "# what is built\n/out/\n*.gen.go\n",
		"waitqueue/a.go":           "// Package waitqueue waits.\npackage waitqueue\n",
		"waitqueue/a_test.go":      "package waitqueue\n\n\n\n",
		"waitqueue/a.gen.go":       "package waitqueue\n",
		"internal/core/deep/a.go":  "package deep\n",
		"internal/corelike/a.go":   "package corelike\n\n\n",
		"internal/core/reply.lua":  "return 1\n",
		"page.md":                  "# Two words\n",
		"docs/page.md":             "three more words\n",
		"out/page.md":              "not of the tree\n",
		"waitqueue/testdata/x.bin": "package x\n",
	})
	require.Equal(t, Sizes{Engine: 3, Code: 6, Tests: 4, Words: 6}, kit.Got(SizesOf(dir))(t))
	require.Error(t, kit.Err(SizesOf(filepath.Join(dir, "docs"))), "a folder that is not the root of a tree")
}
