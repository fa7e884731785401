package tidy

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
)

var (
	// link is the target of [text](target) and of ![picture](target), without a title after it.
	link = regexp.MustCompile(`\]\(([^()\s]+(?:\([^()\s]*\)[^()\s]*)*)(?:\s+"[^"]*")?\)`)
	// heading is a heading of a page, and anchor a place that HTML names.
	heading = regexp.MustCompile(`^#{1,6}\s+(.+?)\s*#*$`)
	anchor  = regexp.MustCompile(`<a\s+(?:id|name)="([^"]+)"`)
	// inline is what a heading's text loses: links keep their text, the rest its marks.
	inline = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
	code   = regexp.MustCompile("`[^`]*`")
)

// prose returns the lines of a page; those of code blocks are empty.
func prose(x text) []string {
	lines := x.lines()
	fence := ""
	for i, line := range lines {
		mark := strings.TrimLeft(line, " ")
		switch {
		case fence == "" && strings.HasPrefix(mark, "```"):
			fence, lines[i] = "```", ""
		case fence != "" && strings.HasPrefix(mark, fence):
			fence, lines[i] = "", ""
		case fence != "":
			lines[i] = ""
		}
	}
	return lines
}

// slug is the anchor that GitHub gives a heading: small letters, digits, - and _; blanks become -, and all
// else goes.
func slug(heading string) string {
	heading = inline.ReplaceAllString(heading, "$1")
	var b strings.Builder
	for _, r := range strings.ToLower(heading) {
		switch {
		case unicode.IsLetter(r), unicode.IsNumber(r), r == '-', r == '_':
			b.WriteRune(r)
		case r == ' ':
			b.WriteRune('-')
		}
	}
	return b.String()
}

// anchors returns what a link into a page may name. A heading that is there again gets a number.
func anchors(x text) map[string]bool {
	found, times := map[string]bool{}, map[string]int{}
	for _, line := range prose(x) {
		for _, a := range anchor.FindAllStringSubmatch(line, -1) {
			found[a[1]] = true
		}
		h := heading.FindStringSubmatch(line)
		if h == nil {
			continue
		}
		s := slug(h[1])
		if n := times[s]; n > 0 {
			found[s+"-"+strconv.Itoa(n)] = true
		} else {
			found[s] = true
		}
		times[s]++
	}
	return found
}

// broken returns the links of a page that lead nowhere in the repository, or out of it by anything else than
// https.
func broken(x text, repo fs.FS, pages map[string]map[string]bool) []string {
	var found []string
	for i, line := range prose(x) {
		for _, l := range link.FindAllStringSubmatch(code.ReplaceAllString(line, ""), -1) {
			if why := lost(x.name, l[1], repo, pages); why != "" {
				found = append(found, x.name+":"+strconv.Itoa(i+1)+": "+l[1]+": "+why)
			}
		}
	}
	return found
}

func lost(from, target string, repo fs.FS, pages map[string]map[string]bool) string {
	u, err := url.Parse(target)
	switch {
	case err != nil:
		return err.Error()
	case u.Scheme == "mailto":
		return ""
	case u.Scheme != "" || u.Host != "":
		if u.Scheme != "https" || !strings.Contains(u.Host, ".") {
			return "not an https address"
		}
		return ""
	}
	name := from
	if u.Path != "" {
		name = path.Join(path.Dir(from), u.Path)
	}
	if strings.HasPrefix(u.Path, "/") || strings.HasPrefix(name, "..") {
		return "leads out of the repository"
	}
	if _, err := fs.Stat(repo, name); err != nil {
		return "there is no such file"
	}
	if u.Fragment != "" && !pages[name][u.Fragment] {
		return "there is no such heading"
	}
	return ""
}

func TestLinksLeadSomewhere(t *testing.T) {
	repo := os.DirFS(root(t))
	all := texts(t, "*.md")
	pages := map[string]map[string]bool{}
	for _, x := range all {
		pages[x.name] = anchors(x)
	}
	links := 0
	for _, x := range all {
		links += strings.Count(string(x.body), "](")
		none(t, broken(x, repo, pages))
	}
	require.Greater(t, links, 50, "the links are not found")
}

func TestALinkThatLeadsNowhereIsFound(t *testing.T) {
	page := func(body string) text { return text{"docs/page.md", []byte(body)} }
	x := page("# A `b`, c_d\n## Two\n### Two\n<a id=\"here\"></a>\n```\n# no heading, [no link](nowhere.md)\n```\n")
	require.Equal(t, map[string]bool{"a-b-c_d": true, "two": true, "two-1": true, "here": true}, anchors(x))

	repo := os.DirFS(root(t))
	pages := map[string]map[string]bool{"docs/page.md": anchors(x), "README.md": {"a-start": true}}
	look := func(body string) []string {
		_, in, ok := strings.Cut(body, "](")
		require.True(t, ok)
		if why := lost("docs/page.md", strings.TrimSuffix(in, ")"), repo, pages); why != "" {
			return []string{why}
		}
		return nil
	}
	for _, good := range []string{"[a](../README.md#a-start)", "[a](https://go.dev/x)", "![p](../LICENSE)", "[a](../README.md)"} {
		require.Empty(t, look(good), good)
	}
	for _, bad := range []string{"[a](nowhere.md)", "[a](#three)", "[a](../README.md#b)", "[a](http://go.dev)", "[a](../../x)", "[a](https://go)"} {
		require.Len(t, look(bad), 1, bad)
	}
	require.Len(t, broken(page("[a](x.md), `[b](y.md)`\n![c](z.svg \"title\")\n"), repo, pages), 2)
}

// maxArchitectureWords is what somebody reads at one go before the first change.
const maxArchitectureWords = 3000

// architecture returns ARCHITECTURE.md.
func architecture(t *testing.T) string {
	t.Helper()
	body := kit.Got(os.ReadFile(filepath.Join(root(t), "ARCHITECTURE.md")))(t)
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

// drawn is the table of layers in a page: the layer of each folder of the core.
func drawn(lines []string) map[string]string {
	found := map[string]string{}
	for _, l := range lines {
		cells := strings.Split(l, "|")
		if len(cells) != 5 || !strings.HasPrefix(strings.TrimSpace(cells[1]), "L") {
			continue
		}
		for _, folder := range quoted(cells[2]) {
			found[folder] = strings.TrimSpace(cells[1])
		}
	}
	return found
}

// upward returns the imports that lead from a layer to a higher one, and the folders of the page that are no layer.
func upward(page map[string]string, layers map[string][]string) (found []string) {
	for folder, layer := range page {
		imports, listed := layers[folder]
		if !listed {
			found = append(found, folder+" is in no layer")
		}
		for _, i := range imports {
			if page[i] > layer {
				found = append(found, folder+" imports "+i+", which is above it")
			}
		}
	}
	return found
}

// TestArchitectureHasTheTableOfLayers leaves out what is below internal/ for tests alone.
func TestArchitectureHasTheTableOfLayers(t *testing.T) {
	page := drawn(section(architecture(t), "Packages"))
	page["."] = page["headwaiter"]
	delete(page, "headwaiter")
	none(t, upward(page, layers))
	for folder := range layers {
		if !strings.HasPrefix(folder, "internal/") {
			require.NotEmpty(t, page[folder], "%s is in no layer of the page", folder)
		}
	}
	require.Equal(t, map[string]string{"a": "L1", "b": "L1", "e": "L0"}, drawn([]string{"| L1 | `a`, `b` | its `x` |", "| L0 | `e` | |", "| layer | folder | what |", "| `f` | `g` |"}))
	two := map[string]string{"a": "L1", "e": "L0"}
	require.Empty(t, upward(two, map[string][]string{"a": {"e", "other.org/x"}, "e": nil}))
	require.Len(t, upward(two, map[string][]string{"e": {"a"}}), 2)
}
