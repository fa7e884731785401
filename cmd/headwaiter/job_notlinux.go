//go:build unix && !linux

package main

import "syscall"

// dieTogether is for Linux: other kernels have nothing of the kind.
func dieTogether(*syscall.SysProcAttr) {}
