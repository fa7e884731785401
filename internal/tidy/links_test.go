package tidy

import (
	"io/fs"
	"net/url"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

var (
	// link is the target of [text](target) and of ![picture](target), without a title behind it.
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
