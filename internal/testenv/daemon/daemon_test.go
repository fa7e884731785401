package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/headwaiter/headwaiter/internal/testenv/must"
)

// part makes this test binary a server: its value is what kind of, and where it listens.
const part = "HEADWAITER_DAEMON_PART"

func TestMain(m *testing.M) {
	if kind, address, ok := strings.Cut(os.Getenv(part), " "); ok {
		if err := serve(kind, address); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// serve is the server: it answers whoever connects with one word.
func serve(kind, address string) error {
	if kind == "stubborn" {
		signal.Ignore(syscall.SIGQUIT)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Println("this server listens on", address)
	for i := 0; ; i++ {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		switch {
		case kind == "mute", kind == "shy" && i == 0:
			defer conn.Close() // Never, that is: it accepts, and says nothing.
		case kind == "mortal":
			return errors.New("this server has had enough")
		default:
			_, _ = conn.Write([]byte("welcome"))
			_ = conn.Close()
		}
	}
}

// server is one of a kind, down, that ends with the test. The changes are made to its options.
func server(t *testing.T, kind string, changes ...func(o *Options, s func() *Server)) *Server {
	t.Helper()
	var s *Server
	o := Options{Name: kind, Ports: 1}
	o.Command = func() (*exec.Cmd, error) {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), part+"="+kind+" "+s.Address(0))
		return cmd, nil
	}
	o.Ready = func(ctx context.Context) bool { return welcomes(ctx, s) }
	for _, change := range changes {
		change(&o, func() *Server { return s })
	}
	s = must.Got(New(o))(t)
	t.Cleanup(s.Stop)
	return s
}

func welcomes(ctx context.Context, s *Server) bool {
	answer, err := Ask(ctx, s.Address(0), "")
	return err == nil && answer == "welcome"
}

// limited sets how long a start may take.
func limited(limit time.Duration) func(*Options, func() *Server) {
	return func(o *Options, _ func() *Server) { o.Limit = limit }
}

func TestAServerThatIsSilentToItsFirstQuestionIsAskedAgain(t *testing.T) {
	t.Parallel()
	s := server(t, "shy")
	begun := time.Now()
	require.NoError(t, s.Start())
	// A look that waited for the answer to the first would use up the minute.
	require.Less(t, time.Since(begun), StartLimit/2)
	require.True(t, s.Running())
}

func TestAServerThatIsSlowGetsMoreTimeWithEachLook(t *testing.T) {
	t.Parallel()
	var bounds []time.Duration
	s := server(t, "kind", func(o *Options, s func() *Server) {
		o.Ready = func(ctx context.Context) bool {
			end, _ := ctx.Deadline()
			bounds = append(bounds, time.Until(end))
			if len(bounds) == 3 {
				return true
			}
			<-ctx.Done()
			return false
		}
	})
	require.NoError(t, s.Start())
	require.Len(t, bounds, 3)
	require.Greater(t, bounds[1], bounds[0])
	require.Greater(t, bounds[2], bounds[1])
}

func TestAServerThatNeverAnswersIsGivenUpAndNamedWithItsLog(t *testing.T) {
	t.Parallel()
	s := server(t, "mute", limited(time.Second))
	must.Fails(t, s.Start(), "start mute: it does not answer within 1s", "this server listens on "+s.Address(0))
	require.False(t, s.Running())
	require.Empty(t, s.Log(), "it is down")
}

func TestTheEndOfAServerAtItsStartIsToldAtOnceWithItsLog(t *testing.T) {
	t.Parallel()
	s := server(t, "mortal")
	begun := time.Now()
	err := s.Start()
	require.Less(t, time.Since(begun), StartLimit/2)
	must.Fails(t, err, "start mortal: it ended at its start", "this server has had enough")
	require.NotErrorIs(t, err, ErrPortTaken)
}

func TestAServerMayTellByItsLogThatItIsReady(t *testing.T) {
	t.Parallel()
	byLog := func(o *Options, _ func() *Server) { o.Ready, o.Texts = nil, []string{"unheard", "server listens"} }
	s := server(t, "kind", byLog)
	require.NoError(t, s.Start())
	require.True(t, welcomes(t.Context(), s))
	require.Contains(t, s.Log(), "this server listens on")

	other := func(o *Options, _ func() *Server) { o.Ready, o.Texts = nil, []string{"unheard"} }
	require.ErrorContains(t, server(t, "kind", other, limited(time.Second)).Start(), "it does not answer")
}

func TestAPortThatSomebodyElseTakesIsReplacedByAnother(t *testing.T) {
	t.Parallel()
	var places []string
	s := server(t, "kind", func(o *Options, s func() *Server) {
		o.Place = func() error {
			places = append(places, s().Address(0))
			if len(places) > 2 {
				return nil
			}
			// Between the look for a free port and the server's own bind.
			thief, err := net.Listen("tcp", s().Address(0))
			if err == nil {
				t.Cleanup(func() { _ = thief.Close() })
			}
			return err
		}
	})
	require.NoError(t, s.Start())
	require.Len(t, places, 3)
	require.Equal(t, places[2], s.Address(0))
	require.NotEqual(t, places[0], places[2])
}

func TestARestartKeepsPortAndFolder(t *testing.T) {
	t.Parallel()
	placed := 0
	s := server(t, "kind", func(o *Options, _ func() *Server) { o.Place = func() error { placed++; return nil } })
	require.NoError(t, s.Start())
	address, file := s.Address(0), filepath.Join(s.Dir(), "data")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.ErrorContains(t, s.Start(), "it runs already")
	require.True(t, s.Running(), "that was not for it to end")

	s.Kill()
	require.False(t, s.Running())
	require.False(t, welcomes(t.Context(), s))
	require.ErrorContains(t, s.Freeze(), "for a server that is down")
	thief := must.Got(net.Listen("tcp", address))(t)
	require.ErrorIs(t, s.Start(), ErrPortTaken, "who restarts it wants it where it was")
	require.NoError(t, thief.Close())

	require.NoError(t, s.Start())
	require.Equal(t, address, s.Address(0))
	require.FileExists(t, file)
	require.Equal(t, 1, placed)
	s.Stop()
	require.NoDirExists(t, s.Dir())
}

func TestAFrozenServerIsSilentUntilItIsThawed(t *testing.T) {
	t.Parallel()
	s := server(t, "kind")
	require.NoError(t, s.Start())
	require.NoError(t, s.Freeze())
	require.False(t, s.Running())
	require.False(t, welcomes(must.Within(t, frozenTime), s))
	require.NoError(t, s.Thaw())
	require.True(t, s.Running())
	require.True(t, welcomes(t.Context(), s))
}

func TestAServerIsKilledIfItDoesNotEndWhenItIsTold(t *testing.T) {
	t.Parallel()
	quit := func(o *Options, _ func() *Server) { o.Quit = syscall.SIGQUIT }
	for _, kind := range []string{"kind", "stubborn"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := server(t, kind, quit)
			require.NoError(t, s.Start())
			require.NoError(t, s.Freeze())
			s.Kill() // Which returns when it is gone.
			require.False(t, welcomes(t.Context(), s))
		})
	}
}

func TestServersThatStartTogetherHavePortsBeforeAnyIsStartedAndFailTogether(t *testing.T) {
	t.Parallel()
	var a, b *Server
	both := func(o *Options, _ func() *Server) {
		o.Ready = func(ctx context.Context) bool { return welcomes(ctx, a) && welcomes(ctx, b) }
	}
	a, b = server(t, "kind", both), server(t, "kind", both)
	require.NoError(t, StartAll(a, b))
	require.NotEqual(t, a.Port(0), b.Port(0))

	a.Kill()
	b.Kill()
	mortal, mute := server(t, "mortal"), server(t, "mute")
	begun := time.Now()
	require.ErrorContains(t, StartAll(mute, mortal), "start mortal")
	require.Less(t, time.Since(begun), StartLimit/2, "the other need not be waited for")
	require.False(t, mute.Running())
}

// TestTheGuardEndsWhatIsLeftBehind runs this test binary once more, as a process that starts servers and ends without
// stopping them.
func TestTheGuardEndsWhatIsLeftBehind(t *testing.T) {
	const abandon = "HEADWAITER_DAEMON_ABANDON"
	if file := os.Getenv(abandon); file != "" {
		up, down, frozen := server(t, "kind"), server(t, "kind"), server(t, "kind")
		require.NoError(t, StartAll(up, down, frozen))
		down.Kill()
		require.NoError(t, frozen.Freeze())
		said := fmt.Sprintln(up.Address(0), up.Dir(), down.Dir(), frozen.Dir())
		require.NoError(t, os.WriteFile(file, []byte(said), 0o600))
		os.Exit(0)
	}
	t.Parallel()
	file := filepath.Join(t.TempDir(), "said")
	child := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	child.Env = append(os.Environ(), abandon+"="+file)
	out, err := child.CombinedOutput()
	require.NoError(t, err, "%s", out)
	said := must.Got(os.ReadFile(file))(t)
	words := strings.Fields(string(said))
	require.Len(t, words, 4)
	for _, dir := range words[1:] {
		gone := func() bool {
			_, err := os.Stat(dir)
			return errors.Is(err, os.ErrNotExist)
		}
		require.Eventually(t, gone, 30*time.Second, 5*time.Millisecond)
	}
	require.ErrorIs(t, must.Err(Ask(t.Context(), words[0], "")), syscall.ECONNREFUSED)
}
