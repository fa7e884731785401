package main

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// dieTogether has the kernel kill the command when headwaiter dies, even by SIGKILL: nobody else would
// stop it when the lease runs out.
func dieTogether(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// adopt makes this process the parent of processes that outlive the command. Process 1 of a container may not look after
// it, and a process whose end nobody takes note of stays in its group for ever.
func adopt() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }
