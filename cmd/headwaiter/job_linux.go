package main

import "syscall"

// dieTogether has the kernel kill the command when headwaiter dies, even by SIGKILL: nobody else would
// stop it when the lease runs out.
func dieTogether(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
