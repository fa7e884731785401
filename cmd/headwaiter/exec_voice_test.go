package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// orderly is a command that needs a moment to stop at TERM, and says that it had it. It has no errors to tell: a
// shell complains of a child that TERM ended.
var orderly = []string{"sh", "-c", `exec 2>/dev/null; trap 'sleep 0.3; echo stopped; exit 3' TERM; echo ready; while :; do sleep 0.05; done`}

// stubborn is one that TERM does not stop.
var stubborn = []string{"sh", "-c", `exec 2>/dev/null; trap 'echo heard' TERM; echo ready; while :; do sleep 0.05; done`}

// full is the end of a pipe that takes nothing more, as nobody reads at the other end.
func full(t *testing.T) *os.File {
	t.Helper()
	unread, file, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { unread.Close() })
	for _, size := range []int{4096, 1} {
		require.NoError(t, file.SetWriteDeadline(time.Now().Add(100*time.Millisecond)))
		for err = nil; err == nil; {
			_, err = file.Write(bytes.Repeat([]byte("x"), size))
		}
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	}
	return file
}

// closed is the end of a pipe whose other end is closed.
func closed(t *testing.T) *os.File {
	t.Helper()
	reading, file, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, reading.Close())
	return file
}

// launchMute starts exec with errors that go to a file.
func launchMute(t *testing.T, server *redistest.Server, errs *os.File, args ...string) *shell {
	t.Helper()
	defer errs.Close()
	s := launchWith(t, exec.Command(program, append([]string{"exec", "orders", "--redis", urlOf(server)}, args...)...), errs)
	s.await(s.stdout, "ready")
	return s
}

// A command whose lock is lost is stopped even where nothing can be said of it.
func TestAForcedReleaseStopsTheCommandWhereNothingCanBeSaid(t *testing.T) {
	t.Parallel()
	for name, errs := range map[string]func(*testing.T) *os.File{"a full pipe": full, "a closed pipe": closed} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			force := func(s *shell) {
				client := kit.Dial(t, server)
				kit.Listening(t, server, 1)
				_, err := client.Queue(lua.Fairlock, "orders", waitqueue.Terms{Lease: lease.DefaultLease}).ForceRelease(t.Context(), 0)
				require.NoError(t, err)
			}
			s := launchMute(t, server, errs(t), under(orderly, "--lease", "1h", "--grace", "1h")...)
			force(s)
			assert.Equal(t, []string{"stopped"}, s.rest(s.stdout))
			assert.Equal(t, exitLost, s.code())

			s = launchMute(t, server, errs(t), under(stubborn, "--lease", "1h", "--grace", "500ms")...)
			force(s)
			assert.Equal(t, []string{"heard"}, s.rest(s.stdout))
			assert.Equal(t, exitLost, s.code())
		})
	}
}

// gate is a file that takes nothing until it is opened.
type gate struct {
	open chan struct{}
	took chan string
}

func (g gate) Write(b []byte) (int, error) {
	<-g.open
	g.took <- string(b)
	return len(b), nil
}

func TestAVoiceIsHeldUpOnceAndKeepsItsOrder(t *testing.T) {
	t.Parallel()
	g := gate{make(chan struct{}), make(chan string, 2*voiceLines)}
	v := newVoice(g)
	begun := time.Now()
	for range 2 * voiceLines {
		v.say("first")
	}
	require.Less(t, time.Since(begun), 4*moment, "only the first waits, and not for long")
	close(g.open)
	for range voiceLines {
		require.Equal(t, "first\n", <-g.took)
	}
	v.end(patience)
	v = newVoice(failing{})
	v.say("lost")
	v.end(patience) // An error of a write is no more than that.
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("closed") }
