package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

func TestTheCommandDiesWithHeadwaiter(t *testing.T) {
	server := kit.Start(t)
	s := execute(t, server, "orders", under(acting(t, "deaf"))...)
	s.await(s.stdout, "ready")
	s.signal(syscall.SIGKILL)
	assert.Empty(t, s.rest(s.stdout)) // It ends when nobody can write any more.
	assert.Equal(t, exitSignal+int(syscall.SIGKILL), s.code())
}

// asParent runs a case with headwaiter as process 1 of a container, and as any process: either way it is left with the
// children of those that have ended, and nobody else sees to them.
func asParent(t *testing.T, run func(t *testing.T, execute func(server *redistest.Server, args ...string) *shell)) {
	for name, attr := range map[string]*syscall.SysProcAttr{"as process 1": firstProcess(t), "as any process": nil} {
		kit.Parallel(t, name, func(t *testing.T) {
			run(t, func(server *redistest.Server, args ...string) *shell {
				cmd := exec.Command(program, append([]string{"exec", "orders", "--redis", urlOf(server)}, args...)...)
				if attr != nil {
					own := *attr
					cmd.SysProcAttr = &own
				}
				return launch(t, cmd)
			})
		})
	}
}

// firstProcess makes a process number 1 of a namespace of its own. Where the kernel refuses that to all but its own
// root, only the part for any process is tested, which adopts what process 1 is given.
func firstProcess(t *testing.T) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	if os.Getuid() != 0 {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
	}
	probe := exec.Command("true")
	probe.SysProcAttr = attr
	err := probe.Run()
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) {
		t.Logf("no namespace of processes is to be had (%v): as a process that adopts, and not as process 1", err)
		return nil
	}
	require.NoError(t, err)
	return attr
}

// zombies are the children of a process whose end it has not taken note of.
func zombies(t *testing.T, pid int) (found []string) {
	t.Helper()
	stats := kit.Got(filepath.Glob("/proc/[0-9]*/stat"))(t)
	for _, name := range stats {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // It has ended.
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		if strings.HasPrefix(rest, fmt.Sprintf("Z %d ", pid)) {
			found = append(found, string(text))
		}
	}
	return found
}

func TestNoZombieStays(t *testing.T) {
	t.Parallel()
	asParent(t, func(t *testing.T, execute func(*redistest.Server, ...string) *shell) {
		server := redistest.Start(t)
		s := execute(server, under(acting(t, "orphan"))...)
		s.await(s.stdout, "ready")
		kit.Eventually(t, "the end of the last zombie", func() bool { return len(zombies(t, s.cmd.Process.Pid)) == 0 })
		s.signal(syscall.SIGTERM)
		assert.Zero(t, s.code())
	})
}

// The grace is for what does not stop; what has stopped needs none.
func TestALossTakesNoGraceWhereAllHasStopped(t *testing.T) {
	t.Parallel()
	asParent(t, func(t *testing.T, execute func(*redistest.Server, ...string) *shell) {
		server := redistest.Start(t)
		s := execute(server, under(acting(t, "orphan"), "--lease", "3s", "--grace", "1h")...)
		s.await(s.stdout, "ready")
		server.Do("DEL", "headwaiter:lock:{orders}")
		assert.Equal(t, exitLost, s.code())
		assert.Len(t, s.complaints(), 2)
	})
}
