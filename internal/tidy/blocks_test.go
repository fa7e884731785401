package tidy

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A block is code that a page shows.
type block struct {
	where    string // page:line of its first line
	language string
	body     string
}

// blocks returns the code blocks of a page.
func blocks(x text) []block {
	var found []block
	var in *block
	for i, line := range x.lines() {
		mark := strings.TrimSpace(line)
		switch {
		case in == nil && strings.HasPrefix(mark, "```"):
			in = &block{where: fmt.Sprintf("%s:%d", x.name, i+2), language: strings.TrimPrefix(mark, "```")}
		case in != nil && mark == "```":
			found, in = append(found, *in), nil
		case in != nil:
			in.body += line + "\n"
		}
	}
	return found
}

// declarations tells whether Go code stands on its own, so that a package clause makes a file of it.
var declarations = regexp.MustCompile(`(?m)^(?:package|import|func|type|var|const) ?[\w(]`)

// TestGoCodeInPagesCompiles builds the blocks of Go that are whole, and holds those that are cut from
// something against the tests, which compile.
func TestGoCodeInPagesCompiles(t *testing.T) {
	t.Parallel()
	var tested strings.Builder
	for _, x := range texts(t, "*_test.go") {
		tested.WriteString(squeezed(string(x.body)))
	}
	var whole []block
	for _, x := range texts(t, "*.md") {
		for _, b := range blocks(x) {
			switch {
			case b.language != "go":
			case strings.Contains(tested.String(), squeezed(b.body)):
			case !declarations.MatchString(b.body):
				t.Errorf("%s: these statements are cut from no test: make declarations of them, with their imports, or an Example", b.where)
			default:
				whole = append(whole, b)
			}
		}
	}
	require.NotEmpty(t, whole, "the blocks are not found")
	out, err := compile(t, whole)
	require.NoError(t, err, "%s", out)
}

func TestGoCodeThatDoesNotCompileIsFound(t *testing.T) {
	t.Parallel()
	x := text{"page.md", []byte("a\n```go\nfunc f() { return missing }\n```\n\n  ```\n  make it\n  ```\n")}
	found := blocks(x)
	require.Len(t, found, 2)
	require.Equal(t, block{"page.md:3", "go", "func f() { return missing }\n"}, found[0])
	require.Equal(t, "", found[1].language)
	out, err := compile(t, found[:1])
	require.Error(t, err)
	require.Contains(t, out, "page.md:3")
}

// compile builds each block as a package of its own, below this folder as far as the go command knows: so
// they may import what any module of the workspace may. Nothing is written there.
func compile(t *testing.T, all []block) (string, error) {
	t.Helper()
	dir := t.TempDir()
	replace := map[string]string{}
	args := []string{"build", "-overlay", filepath.Join(dir, "overlay.json")}
	for i, b := range all {
		body := b.body
		if !strings.Contains(body, "\npackage ") && !strings.HasPrefix(body, "package ") {
			// The line is told as that of the page.
			name, line, _ := strings.Cut(b.where, ":")
			body = fmt.Sprintf("package block\n\n//line %s:%s\n%s", name, line, body)
		}
		file := filepath.Join(dir, fmt.Sprintf("%d.go", i))
		require.NoError(t, os.WriteFile(file, []byte(body), 0o600))
		name := fmt.Sprintf("block%d", i)
		replace[filepath.Join(root(t), "internal", "tidy", "internal", name, "block.go")] = file
		args = append(args, "./internal/tidy/internal/"+name)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600))
	cmd := exec.Command("go", args...)
	cmd.Dir = root(t)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
