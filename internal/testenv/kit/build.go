package kit

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Build makes the programs of some packages for the tests of one, and runs these: found is told the folder. It returns
// the exit code.
func Build(m *testing.M, packages string, found func(dir string)) int {
	dir, err := os.MkdirTemp("", "headwaiter-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if out, err := exec.Command("go", "build", "-o", dir+string(filepath.Separator), packages).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 1
	}
	found(dir)
	return m.Run()
}
