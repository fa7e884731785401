package tidy

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// maxArchitectureWords is what somebody reads at one go before the first change.
const maxArchitectureWords = 3500

// architecture returns ARCHITECTURE.md.
func architecture(t *testing.T) string {
	t.Helper()
	body, err := os.ReadFile(filepath.Join(root(t), "ARCHITECTURE.md"))
	require.NoError(t, err)
	return string(body)
}

// section returns the lines of a page below the heading that begins like this.
func section(page, heading string) []string {
	_, rest, _ := strings.Cut(page, "\n## "+heading)
	rest, _, _ = strings.Cut(rest, "\n## ")
	return strings.Split(rest, "\n")
}

// quoted returns the code in a text.
func quoted(text string) (found []string) {
	for _, span := range spans.FindAllStringSubmatch(text, -1) {
		found = append(found, span[1])
	}
	return found
}

// declared says whether a file declares a name: in Go as a type, function, variable, constant or field, in other files
// the name need only be there.
func declared(name, body, ident string) bool {
	if !strings.HasSuffix(name, ".go") {
		return regexp.MustCompile(`\b` + regexp.QuoteMeta(ident) + `\b`).MatchString(body)
	}
	file, err := parser.ParseFile(token.NewFileSet(), name, body, parser.SkipObjectResolution)
	if err != nil {
		return false
	}
	found := false
	ast.Inspect(file, func(n ast.Node) bool {
		var names []*ast.Ident
		switch n := n.(type) {
		case *ast.FuncDecl:
			names = []*ast.Ident{n.Name}
		case *ast.TypeSpec:
			names = []*ast.Ident{n.Name}
		case *ast.ValueSpec:
			names = n.Names
		case *ast.Field:
			names = n.Names
		}
		found = found || slices.ContainsFunc(names, func(i *ast.Ident) bool { return i.Name == ident })
		return !found
	})
	return found
}

// astray returns what lines quote that is not there. What has a slash, or ends like Go, is a file or folder; any other name is declared in
// the file that the line quotes before it. read returns a file, "" for a folder, and whether there is any.
func astray(lines []string, read func(name string) (body string, ok bool)) (found []string) {
	for _, l := range lines {
		file, body := "", ""
		for _, q := range quoted(l) {
			switch {
			case strings.Contains(q, "/") || strings.HasSuffix(q, ".go"):
				var ok bool
				if body, ok = read(q); !ok {
					found = append(found, "there is no "+q)
				}
				file = q
			case file == "":
				found = append(found, q+" is in no file that the line quotes before it")
			case !declared(file, body, q):
				found = append(found, fmt.Sprintf("%s does not declare %s", file, q))
			}
		}
	}
	return found
}

func TestArchitectureIsShort(t *testing.T) {
	words := len(strings.Fields(architecture(t)))
	require.LessOrEqual(t, words, maxArchitectureWords, "give the longer reasons in docs/decisions.md")
}

func TestArchitectureLeadsToTheCode(t *testing.T) {
	page, dir := architecture(t), root(t)
	read := func(name string) (string, bool) {
		if i, err := os.Stat(filepath.Join(dir, name)); err != nil || i.IsDir() {
			return "", err == nil
		}
		body, err := os.ReadFile(filepath.Join(dir, name))
		return string(body), err == nil
	}
	for _, heading := range []string{"One Lock, ", "To change …, open …"} {
		lines := section(page, heading)
		require.Greater(t, len(quoted(strings.Join(lines, "\n"))), 40, "%s: the names are not found", heading)
		none(t, astray(lines, read))
	}
}

func TestANameThatIsNotInItsFileIsFound(t *testing.T) {
	files := map[string]string{
		"a/b.go":  "package b\n\n// gone is called elsewhere.\nfunc (x *T) f() { gone() }\n\ntype T struct{ field int }\n\nconst c = 1\n",
		"a/b.lua": "function q.grant(s) end",
		"a/d":     "",
	}
	read := func(name string) (string, bool) { body, ok := files[name]; return body, ok }
	require.Empty(t, astray([]string{"`a/b.go`: `f`, `T`, `field`, `c`; `a/b.lua`: `grant`; `a/d`", "no names"}, read))
	for _, bad := range []string{"`a/gone.go`", "`a/b.go`: `gone`", "`a/b.lua`: `gran`", "`f`, `a/b.go`", "`a/d`: `f`", "`a/b.lua`, `a/b.go`: `grant`"} {
		require.Len(t, astray([]string{"`a/b.go`: `f`", bad}, read), 1, bad)
	}
	require.Equal(t, []string{"", "x", ""}, section("\n## A\ny\n## B c\nx\n\n## C", "B c"))
}

// drawn is the table of layers in a page: what each folder of the core may import.
func drawn(lines []string) map[string][]string {
	found := map[string][]string{}
	for _, l := range lines {
		cells := strings.Split(l, "|")
		if len(cells) != 6 || !strings.HasPrefix(strings.TrimSpace(cells[1]), "L") {
			continue
		}
		for _, folder := range quoted(cells[2]) {
			imports := quoted(cells[4])
			slices.Sort(imports)
			found[folder] = imports
		}
	}
	return found
}

// TestArchitectureHasTheTableOfLayers leaves out what is below internal/ for tests alone.
func TestArchitectureHasTheTableOfLayers(t *testing.T) {
	page := drawn(section(architecture(t), "Packages"))
	want := maps.Clone(layers)
	want["headwaiter"] = want["."]
	delete(want, ".")
	short := map[string]string{rueidis: "rueidis", uuid: "uuid", ".": "headwaiter"}
	for folder, imports := range want {
		if _, shown := page[folder]; !shown && strings.HasPrefix(folder, "internal/") {
			delete(want, folder)
			continue
		}
		var names []string
		for _, i := range imports {
			names = append(names, cmp.Or(short[i], i))
		}
		slices.Sort(names)
		want[folder] = names
	}
	require.Equal(t, want, page)
	require.Equal(t, map[string][]string{"a": {"c", "d"}, "b": {"c", "d"}, "e": nil},
		drawn([]string{"| L1 | `a`, `b` | its `x` | `d`, `c` |", "| L0 | `e` | | |", "| layer | folder | what | may import |", "| `f` | | `g` |"}))
}
