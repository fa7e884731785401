package tidy

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// unlinked says what a program that imports a package must not get with it.
var unlinked = map[string][]string{
	"contrib/etcdlock": {rueidis, module + "/lua", module + "/waitqueue"},
	"contrib/zklock":   {rueidis, module + "/lua", module + "/waitqueue"},
	"contrib/sqllock":  {rueidis, module + "/lua", module + "/waitqueue"},
	"lease":            {rueidis, module},
	"observe":          {rueidis, module},
	// What the demo and the benchmark want is theirs.
	"cmd/headwaiter": {miniredis, "github.com/yuin/gopher-lua", "github.com/go-echarts", "github.com/chromedp"},
}

// linked returns those of the unwanted packages, and of what lies in them, that a package needs.
func linked(t *testing.T, folder string, unwanted []string) (found []string) {
	t.Helper()
	list := exec.Command("go", "list", "-deps", "./"+folder)
	list.Dir = root(t)
	out, err := list.Output()
	require.NoError(t, err)
	for dep := range strings.FieldsSeq(string(out)) {
		for _, u := range unwanted {
			if dep != module+"/"+folder && (dep == u || strings.HasPrefix(dep, u+"/")) {
				found = append(found, dep)
			}
		}
	}
	return found
}

func TestNobodyLinksWhatTheyDoNotUse(t *testing.T) {
	for folder, unwanted := range unlinked {
		require.Empty(t, linked(t, folder, unwanted), folder)
	}
}

func TestALinkToTheDriverIsFound(t *testing.T) {
	require.NotEmpty(t, linked(t, "fairlock", unlinked["contrib/etcdlock"]))
	require.NotEmpty(t, linked(t, "contrib/certmagic", []string{rueidis}))
	require.NotEmpty(t, linked(t, "internal/names", unlinked["lease"]))
	require.Subset(t, linked(t, "examples/demo", unlinked["cmd/headwaiter"]), unlinked["cmd/headwaiter"][:2])
}
