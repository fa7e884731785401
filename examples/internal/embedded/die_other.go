//go:build !linux

package embedded

import "os/exec"

// dieTogether is for Linux: other kernels have nothing of the kind.
func dieTogether(*exec.Cmd) {}
