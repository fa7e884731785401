package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

// benchOf runs bench by itself.
func benchOf(t *testing.T, args ...string) (string, error) {
	t.Helper()
	root := &cobra.Command{Use: "headwaiter", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(newBench())
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(t.Output())
	root.SetArgs(append([]string{"bench"}, args...))
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

func TestBenchMeasuresAServerAndLeavesNothingButWhatExpires(t *testing.T) {
	s := redistest.Start(t)
	folder := filepath.Join(t.TempDir(), "results")
	out, err := benchOf(t, "--redis", "redis://"+s.Addr(), "--work", "W1,W4", "--clients", "2", "--slice", "30ms", "--rounds", "1",
		"--arrival", "200", "--out", folder)
	require.NoError(t, err)
	require.Contains(t, out, "W4 C=2 200/s")
	for _, name := range []string{"results.jsonl", "report.html", "report.md"} {
		info, err := os.Stat(filepath.Join(folder, name))
		require.NoError(t, err)
		require.NotZero(t, info.Size(), name)
	}
	page, err := os.ReadFile(filepath.Join(folder, "report.md"))
	require.NoError(t, err)
	require.Contains(t, string(page), "Written by `headwaiter bench`")
	require.NotContains(t, string(page), "make bench")
	require.NotContains(t, string(page), "](../", "nothing that is beside the page of the repository alone")
	for _, key := range s.Keys() {
		require.True(t, strings.HasPrefix(key, benchPrefix), key)
		require.Positive(t, s.Int("PTTL", key), "%s does not expire", key)
	}
}

func TestBenchRefusesWhatWouldHarmAServer(t *testing.T) {
	for _, args := range [][]string{
		{"--clients", "1000"}, {"--clients", "1"}, {"--slice", "1h"}, {"--hold", "1m"}, {"--rounds", "0"}, {"--arrival", "often"},
		{"--arrival", "-1"}, {"--arrival", "0"}, {"--arrival", "inf"}, {"--arrival", "nan"}, {"--arrival", "1e300"},
		{"--work", "W5"}, {"--work", "W7"},
	} {
		_, err := benchOf(t, append(args, "--redis", "redis://127.0.0.1:1")...)
		var f *failure
		require.ErrorAs(t, err, &f, args)
		require.Equal(t, exitUsage, f.code, err)
		require.ErrorContains(t, err, "headwaiter bench --help")
	}
}

func TestBenchTellsThatNobodyIsThere(t *testing.T) {
	_, err := benchOf(t, "--redis", "redis://:secret@127.0.0.1:1")
	var f *failure
	require.ErrorAs(t, err, &f)
	require.Equal(t, exitUnavailable, f.code)
	require.NotContains(t, err.Error(), "secret")
}
