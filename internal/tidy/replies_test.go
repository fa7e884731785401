package tidy

import (
	"go/types"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// ofKinds are the words of a tuple that mean something else in each kind of reply. The kinds are made in package lua, and
// the models of the scripts write tuples; everything else reads a reply as what it is.
var ofKinds = map[string]bool{"Token": true, "Until": true, "Place": true, "Waiting": true, "Arrival": true}

// rawReads returns where a package reads such a word of a tuple of the package with that path.
func rawReads(p checkedPackage, path string) (found []string) {
	words := map[types.Object]bool{}
	for _, from := range append(p.types.Imports(), p.types) {
		tuple := from.Scope().Lookup("Tuple")
		if from.Path() != path || tuple == nil {
			continue
		}
		fields := tuple.Type().Underlying().(*types.Struct)
		for i := range fields.NumFields() {
			words[fields.Field(i)] = ofKinds[fields.Field(i).Name()]
		}
	}
	for id, of := range p.info.Uses {
		if words[of] {
			found = append(found, p.files.Position(id.Pos()).String()+" reads "+id.Name)
		}
	}
	return found
}

func TestAReplyIsReadAsOneOfItsKind(t *testing.T) {
	t.Parallel()
	seen := false
	for _, p := range checked(t) {
		if p.folder == "lua" {
			seen = rawReads(p, module+"/lua") != nil
		}
		if p.folder != "lua" && !strings.HasPrefix(p.folder, "internal/verify/model") {
			require.Empty(t, rawReads(p, module+"/lua"), "Decode it as a reply of its kind: see lua/replies.go.")
		}
	}
	require.True(t, seen, "no kind is made of tuples")
}

func TestARawReadIsFound(t *testing.T) {
	t.Parallel()
	found := rawReads(checkedSource(t, `package x
type Tuple struct{ Now, Place int }
func f(t Tuple) int { return t.Now + t.Place }`), "x")
	require.Equal(t, []string{"x.go:3:40 reads Place"}, found)
}
