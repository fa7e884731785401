package vectors_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/verify/vectors"
	"github.com/headwaiter/headwaiter/lua"
)

func TestMain(m *testing.M) { stage.Main(m) }

// ofTheServer are scripts that have no vectors, as their replies are the server's: its clock, its run, what it allows.
var ofTheServer = []string{"waitqueue/aside", "waitqueue/origin", "waitqueue/probe", "waitqueue/restart"}

// frozen are the scripts that have vectors.
func frozen() []*lua.Script {
	return slices.DeleteFunc(lua.Scripts(), func(s *lua.Script) bool {
		return slices.Contains(ofTheServer, s.Name) || strings.HasPrefix(s.Variant, "body")
	})
}

func TestEveryScriptHasVectorsAndEveryFileAScript(t *testing.T) {
	t.Parallel()
	var want, got []string
	for _, s := range frozen() {
		want = append(want, vectors.File(s.Name, s.Variant))
	}
	entries, err := os.ReadDir(vectors.Folder())
	require.NoError(t, err)
	for _, e := range entries {
		got = append(got, e.Name())
	}
	require.ElementsMatch(t, want, got)
}

// Scripts do on a server what their vectors say, to the byte.
func TestVectors(t *testing.T) {
	t.Parallel()
	server := stage.Serve(t)
	for _, s := range frozen() {
		all, err := vectors.Read(s.Name, s.Variant)
		require.NoError(t, err)
		require.NotEmpty(t, all)
		for i, v := range all {
			if err := server.Holds(v, s); err != nil {
				t.Errorf("%s, line %d: %v", vectors.File(s.Name, s.Variant), i+1, err)
			}
		}
	}
	if t.Failed() {
		t.Errorf("version %d of the wire is frozen: docs/protocol.md says what may be added to it, and how there is a version %d. "+
			"Where that is what you want: make vectors", vectors.Version, vectors.Version+1)
	}
}

// What is another by a byte is found, wherever it is.
func TestAChangeOfOneByteIsFound(t *testing.T) {
	t.Parallel()
	server := stage.Serve(t)
	s := lua.Fairlock.End
	all, err := vectors.Read(s.Name, s.Variant)
	require.NoError(t, err)
	i := slices.IndexFunc(all, func(v vectors.Vector) bool { return len(v.Messages) > 0 && v.After[v.Keys[0]] != nil })
	require.GreaterOrEqual(t, i, 0)
	for what, change := range map[string]func(v *vectors.Vector){
		"answers":   func(v *vectors.Vector) { v.Reply = fmt.Sprint(v.Reply) },
		"publishes": func(v *vectors.Vector) { v.Messages[0][1] += " " },
		"has":       func(v *vectors.Vector) { v.After[v.Keys[0]].Hash["more"] = "1" },
		"lives":     func(v *vectors.Vector) { v.After[v.Keys[0]].PTTL += 60_000 },
		"the error": func(v *vectors.Vector) { v.Error = "ERR" },
	} {
		again, err := vectors.Read(s.Name, s.Variant)
		require.NoError(t, err)
		require.NoError(t, server.Holds(again[i], s))
		change(&again[i])
		require.ErrorContains(t, server.Holds(again[i], s), what)
	}
}
