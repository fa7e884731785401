//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package daemon

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// lock takes the lock file of a port, whose lock ends with the process in whatever way that does. The files stay: one
// that was removed could be locked by two. A file that cannot be opened, say because another user keeps the folder to
// himself, keeps nobody from the port.
func lock(port int) (release func(), ok bool) {
	file, err := lockFile(port)
	if err != nil {
		return func() {}, true
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		return nil, false
	}
	return func() { _ = file.Close() }, true
}

// lockFile opens the file of a port, which may be another user's: then it can only be read.
func lockFile(port int) (*os.File, error) {
	folder := filepath.Join(os.TempDir(), "headwaiter-ports")
	name := filepath.Join(folder, strconv.Itoa(port))
	file, err := os.Open(name)
	if !errors.Is(err, fs.ErrNotExist) {
		return file, err
	}
	if os.Mkdir(folder, 0o777) == nil {
		_ = os.Chmod(folder, 0o777) // For all users, whatever this one takes from its files.
	}
	file, err = os.OpenFile(name, os.O_RDONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) { // Another process was first.
		return os.Open(name)
	}
	return file, err
}
