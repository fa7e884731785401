package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
)

// program is the binary under test, built once.
var program string

// actVariable has this test binary act as a command that exec runs; see act.
const actVariable = "HEADWAITER_TEST_ACT"

func TestMain(m *testing.M) {
	if part := os.Getenv(actVariable); part != "" {
		act(part)
	}
	kit.HangUps()
	os.Exit(build(m))
}

// build makes the program and runs the tests.
func build(m *testing.M) int {
	dir, err := os.MkdirTemp("", "headwaiter-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "headwaiter")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}
