package main

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

// taken fails unless somebody holds the lock, as another shell sees it.
func taken(t *testing.T, server *redistest.Server, want bool) {
	t.Helper()
	next := execute(t, server, "orders", under([]string{"echo", "ran"}, "--wait", "0")...)
	ran, code := []string{"ran"}, 0
	if want {
		ran, code = nil, exitNotAcquired
	}
	require.Equal(t, code, next.code())
	require.Equal(t, ran, next.rest(next.stdout))
}

func TestSignalsReachAllThatTheCommandStarted(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := execute(t, server, "orders", under(acting(t, "pair"))...)
	s.await(s.stdout, "leader ")
	s.await(s.stdout, "ready")
	s.signal(syscall.SIGHUP)
	assert.ElementsMatch(t, []string{"hangup", "leader hangup"}, []string{s.await(s.stdout, "hangup"), s.await(s.stdout, "hangup")})
	s.signal(syscall.SIGTERM)
	assert.ElementsMatch(t, []string{"terminated", "leader terminated"}, s.rest(s.stdout))
	assert.Zero(t, s.code())
}

func TestTheLockIsHeldUntilAllThatTheCommandStartedHasEnded(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := execute(t, server, "orders", under(acting(t, "leaver"))...)
	s.await(s.stdout, "ready")
	s.await(s.stderr, `something that it started has not: "orders" is held until that ends`)
	taken(t, server, true)
	s.signal(syscall.SIGTERM)
	assert.Equal(t, []string{"terminated"}, s.rest(s.stdout))
	assert.Equal(t, 3, s.code(), "the command's own")
	taken(t, server, false)
}

// A command that is killed can stop nothing that it started.
func TestTheLockOutlastsACommandThatIsKilledBeforeItsChildren(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := execute(t, server, "orders", under(acting(t, "pair"))...)
	var leader int
	_, err := fmt.Sscanf(s.await(s.stdout, "leader "), "leader %d", &leader)
	require.NoError(t, err)
	s.await(s.stdout, "ready")
	require.NoError(t, syscall.Kill(leader, syscall.SIGKILL))
	s.await(s.stderr, `"orders" is held until that ends`)
	taken(t, server, true)
	s.signal(syscall.SIGTERM)
	assert.Equal(t, []string{"terminated"}, s.rest(s.stdout))
	assert.Equal(t, exitSignal+int(syscall.SIGKILL), s.code())
	taken(t, server, false)
}

// What outlives a command under a lock is stopped when that is lost, as the command would have been.
func TestALossStopsWhatACommandHasLeftBehind(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := execute(t, server, "orders", under(acting(t, "leaver"), "--lease", "500ms", "--grace", "1h")...)
	s.await(s.stdout, "ready")
	server.Do("DEL", "headwaiter:lock:{orders}")
	assert.Equal(t, []string{"terminated"}, s.rest(s.stdout))
	assert.Equal(t, exitLost, s.code())
}
