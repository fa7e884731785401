package embedded

import (
	"os/exec"
	"syscall"
)

// dieTogether has the kernel kill the process when this one dies: one that is stopped does not see the end of its input.
func dieTogether(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
