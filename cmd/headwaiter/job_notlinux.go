//go:build unix && !linux

package main

import "syscall"

// dieTogether is for Linux: other kernels have nothing of the kind.
func dieTogether(*syscall.SysProcAttr) {}

// adopt is for Linux too. Elsewhere process 1 takes note of the ends of processes whose parent has gone.
func adopt() {}
