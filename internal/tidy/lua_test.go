package tidy

import (
	"fmt"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// headerless returns what is missing in the header of lua/<package>/<name>.lua. Those in lua/lib are not
// scripts of their own and need the first line only.
func headerless(x text) []string {
	folder, name := path.Base(path.Dir(x.name)), strings.TrimSuffix(path.Base(x.name), ".lua")
	lines := x.lines()
	var found []string
	first := fmt.Sprintf("-- %s/%s: ", folder, name)
	if about, ok := strings.CutPrefix(lines[0], first); !ok || about == "" {
		found = append(found, fmt.Sprintf("%s:1: must begin with %q and say what it does", x.name, first))
	}
	if folder == "lib" {
		return found
	}
	blocks := map[string]bool{}
	for _, line := range lines {
		rest, ok := strings.CutPrefix(line, "-- ")
		if !ok && line != "--" {
			break
		}
		block, about, _ := strings.Cut(rest, " ")
		blocks[block] = blocks[block] || strings.TrimSpace(about) != ""
	}
	for _, block := range []string{"KEYS", "ARGV", "REPLY", "RETRY"} {
		if !blocks[block] {
			found = append(found, fmt.Sprintf("%s: its header does not tell %s", x.name, block))
		}
	}
	return found
}

func TestLuaScriptsTellWhatTheyTakeAndAnswer(t *testing.T) {
	for _, x := range texts(t, "*.lua") {
		none(t, headerless(x))
	}
}

func TestAnIncompleteHeaderIsFound(t *testing.T) {
	header := "-- p/s: does it.\n--\n-- KEYS  k  hash\n-- ARGV  none\n-- REPLY {n}\n-- RETRY safe\nreturn 1\n"
	script := func(name, body string) text { return text{name, []byte(body)} }
	require.Empty(t, headerless(script("lua/p/s.lua", header)))
	require.Len(t, headerless(script("lua/p/other.lua", header)), 1)
	require.Len(t, headerless(script("lua/p/s.lua", strings.Replace(header, "-- KEYS", "return\n-- KEYS", 1))), 4)
	require.Len(t, headerless(script("lua/p/s.lua", strings.Replace(header, "-- RETRY safe", "-- RETRY", 1))), 1)
	require.Empty(t, headerless(script("lua/lib/s.lua", "-- lib/s: shared.\n")))
}

var called = regexp.MustCompile(`redis\.p?call\('([A-Z]+)'(?:, '([A-Z]+)')?`)

// What a script calls, a user must be allowed to, and the probe must ask for.
func TestTheProbeAsksForEveryCommandOfTheScripts(t *testing.T) {
	var probe, rights string
	calls := map[string]string{}
	for _, x := range texts(t, "*.lua") {
		if strings.HasSuffix(x.name, "waitqueue/restart.lua") {
			continue // For an option alone, which tells of what it lacks.
		}
		if strings.HasSuffix(x.name, "lib/history.lua") {
			continue // The same.
		}
		if strings.HasSuffix(x.name, "fence/admit.lua") {
			continue // For those who write, not for those who lock; it says what they need, and has a test of that.
		}
		if strings.HasSuffix(x.name, "waitqueue/probe.lua") {
			probe = string(x.body)
			continue // What it tries beside that, it can do without.
		}
		for _, call := range called.FindAllStringSubmatch(string(x.body), -1) {
			command := call[1]
			if command == "PUBSUB" {
				command += "', '" + call[2]
			}
			calls[command] = x.name
		}
	}
	for _, x := range texts(t, "*.go") {
		if strings.HasSuffix(x.name, "internal/conn/probe.go") {
			rights = string(x.body)
		}
	}
	require.Greater(t, len(calls), 15, "the scripts are not found")
	for command, file := range calls {
		require.Contains(t, probe, "'"+command+"'", "%s runs it, and the probe does not ask for it", file)
		right := "+" + strings.ToLower(strings.ReplaceAll(command, "', '", "|"))
		require.Regexp(t, regexp.QuoteMeta(right)+`[ "]`, rights, "%s runs it, and the ACL line does not have it", file)
	}
}
