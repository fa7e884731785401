package tidy

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// goBlock is a block of Go code in a page.
var goBlock = regexp.MustCompile("(?s)```go\n(.*?)```")

// TestReadmeCodeIsCutFromTests holds the README's Go code against the tests: whoever copies it copies
// something that ran.
func TestReadmeCodeIsCutFromTests(t *testing.T) {
	root := root(t)
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	require.NoError(t, err)
	blocks := goBlock.FindAllStringSubmatch(string(readme), -1)
	require.NotEmpty(t, blocks)

	var tested strings.Builder
	for _, x := range texts(t, "*_test.go", "main.go") {
		if x.name == "examples/lock/main.go" || strings.HasSuffix(x.name, "_test.go") { // A test runs that program.
			tested.WriteString(squeezed(string(x.body)))
		}
	}
	for _, b := range blocks {
		require.True(t, strings.Contains(tested.String(), squeezed(b[1])), "README.md: this code is in no test:\n%s", b[1])
	}
}

// squeezed is code without its indentation.
func squeezed(code string) string {
	lines := strings.Split(code, "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines, "\n")
}
