package main

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
)

// Who reads help at night has a narrow terminal, and copies the example.
func TestEveryCommandHelps(t *testing.T) {
	t.Parallel()
	commands := 0
	for _, cmd := range newRoot().Commands() {
		if cmd.Hidden {
			continue
		}
		commands++
		name := cmd.Name()
		assert.NotEmpty(t, cmd.Short, name)
		assert.NotEmpty(t, cmd.Long, name)
		for line := range strings.Lines(cmd.Long) {
			assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimRight(line, "\n")), 92, "%s: %s", name, line)
		}
	}
	assert.Greater(t, commands, 5)
	for _, cmd := range newRoot().Commands() {
		switch cmd.Name() {
		case "exec", "ls", "inspect", "watch", "release", "deadlocks", "doctor", "console":
			assert.Contains(t, cmd.Example, "headwaiter "+cmd.Name(), cmd.Name())
			assert.Contains(t, cmd.Long, "Exit codes:", cmd.Name())
		}
	}
}
