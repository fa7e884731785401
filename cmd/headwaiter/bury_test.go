//go:build linux

package main

import (
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
)

// mortalExec runs exec with an identity and a lease that no test waits for, and returns when its command runs. Its command dies with it.
func mortalExec(t *testing.T, run func(flags ...string) *shell) *shell {
	s := run(under([]string{"sh", "-c", "echo ready; exec sleep 60"}, "--identity", "unit@host", "--lease", "1h")...)
	s.await(s.stdout, "ready")
	return s
}

// exec that was killed together with its command holds for its lease: its next call ends that, and holds.
func TestExecWithAnIdentityEndsWhatItsLastCallHeld(t *testing.T) {
	server := kit.Start(t)
	run := func(flags ...string) *shell { return execute(t, server, "orders", flags...) }
	killed := mortalExec(t, run)
	killed.signal(syscall.SIGKILL)
	killed.code()
	taken(t, server, true)
	next := mortalExec(t, run)
	next.signal(syscall.SIGTERM)
	next.code()
	taken(t, server, false)
}

// A witness frees the lock at once, and says what it has ended. One that comes late, when another run holds, ends nothing.
func TestBuryEndsWhatTheDeadHold(t *testing.T) {
	server := kit.Start(t)
	killed := mortalExec(t, func(flags ...string) *shell { return execute(t, server, "orders", flags...) })
	killed.signal(syscall.SIGKILL)
	killed.code()
	code, out, complaint := said(t, server, "bury", "--invocation", "of another run", "unit@host")
	assert.Equal(t, exitNoSuch, code)
	assert.Empty(t, out)
	assert.Contains(t, complaint, "unit@host")
	taken(t, server, true)
	require.Equal(t, "ended 1 of lock orders", shows(t, server, "bury", "unit@host"))
	taken(t, server, false)
	require.Equal(t, "it held nothing", shows(t, server, "bury", "--invocation", "", "unit@host"))
	for _, wrong := range [][]string{{"bury"}, {"bury", "a", "b"}, {"bury", strings.Repeat("a", 257)}} {
		code, _, complaint := said(t, server, wrong...)
		assert.Equal(t, exitUsage, code, complaint)
	}
}
