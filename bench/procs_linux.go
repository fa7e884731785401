package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// serverMicros is the CPU, in µs, that a process and all that descend from it have used, of those that live.
func serverMicros(pid int) (us float64) {
	if pid == 0 {
		return 0
	}
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid)) // The pattern is a good one.
	for _, task := range tasks {
		// It may have ended since.
		if text, err := os.ReadFile(filepath.Join(task, "schedstat")); err == nil {
			ns, _, _ := strings.Cut(string(text), " ")
			us += number(ns) / 1e3
		}
		if text, err := os.ReadFile(filepath.Join(task, "children")); err == nil {
			for _, child := range strings.Fields(string(text)) {
				us += serverMicros(int(number(child)))
			}
		}
	}
	return us
}
