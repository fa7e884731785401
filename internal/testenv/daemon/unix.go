//go:build unix

package daemon

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// How a process is stopped, and let go on.
const (
	pauseSignal  = syscall.SIGSTOP
	resumeSignal = syscall.SIGCONT
)

// allot gives a folder to the user whose processes are started so.
func allot(dir string, attr *syscall.SysProcAttr) error {
	if attr == nil || attr.Credential == nil {
		return nil
	}
	return os.Chown(dir, int(attr.Credential.Uid), int(attr.Credential.Gid))
}

// setApart puts a process into a group of its own: what a terminal sends to all is for this process, which ends the server.
func setApart(attr *syscall.SysProcAttr) { attr.Setpgid = true }

// Unprivileged lets servers that refuse to run as root run as the first of the given users that there is; where this is
// not root it is nil, which changes nothing.
func Unprivileged(names ...string) (*syscall.SysProcAttr, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range names {
		owner, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(owner.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(owner.Gid, 10, 32)
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("daemon: user %s: %w", name, err)
		}
		return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
	}
	return nil, fmt.Errorf("daemon: this is root, and there is none of %v", names)
}
