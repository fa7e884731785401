//go:build !unix

package daemon

import (
	"errors"
	"syscall"
)

// Nothing is sent where no server can be started.
const (
	pauseSignal  = syscall.SIGINT
	resumeSignal = syscall.SIGTERM
)

// allot fails: the guard is a shell, and servers are stopped by signals.
func allot(string, *syscall.SysProcAttr) error {
	return errors.New("no server can be started on this system: use the embedded one, or one that runs")
}

func setApart(*syscall.SysProcAttr) {}

// Unprivileged changes nothing.
func Unprivileged(...string) (*syscall.SysProcAttr, error) { return nil, nil }
