package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/keeper"
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
		kit.Parallel(t, name, func(t *testing.T) {
			server := redistest.Start(t)
			force := func(s *shell) {
				client := kit.Dial(t, server)
				kit.Listening(t, server, 1)
				_, err := (*waitqueue.Client)(client).Queue(lua.Fairlock, "orders", waitqueue.Terms{Lease: lease.DefaultLease}).ForceRelease(t.Context(), 0)
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
	synctest.Test(t, func(t *testing.T) {
		g := gate{make(chan struct{}), make(chan string, 2*voiceLines)}
		v := newVoice(g)
		begun := time.Now()
		for range 2 * voiceLines {
			v.say("first")
		}
		require.Equal(t, moment, time.Since(begun), "only the first waits, and not for long")
		close(g.open)
		for range voiceLines {
			require.Equal(t, "first\n", <-g.took)
		}
		v.end(patience)
		v = newVoice(failing{})
		v.say("lost")
		v.end(patience) // An error of a write is no more than that.
	})
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("closed") }

// silent is a server that answers when it connects, and not any more.
type silent struct{}

func (silent) lock(string, time.Duration) mutex { return silent{} }
func (silent) situation(string) string          { return " …" }
func (silent) hangUp()                          {}

func (silent) Lock(ctx context.Context) (*lease.Lease, error) {
	<-ctx.Done()
	return nil, fmt.Errorf("engine: %w", context.Cause(ctx))
}

func (s silent) TryLock(ctx context.Context) (*lease.Lease, error) { return s.Lock(ctx) }

// told is a server that notes for how long holds are to last.
type told struct {
	silent
	leases *[]time.Duration
}

func (x told) lock(_ string, lasts time.Duration) mutex {
	*x.leases = append(*x.leases, lasts)
	return x
}

func (told) Lock(context.Context) (*lease.Lease, error) { return nil, nil }

// Some engines are told when they connect, others with the name.
func TestEveryEngineIsToldOfTheLease(t *testing.T) {
	t.Parallel()
	var leases []time.Duration
	e := &engine{connect: func(_ where, _ string, lasts time.Duration) (server, error) {
		leases = append(leases, lasts)
		return told{leases: &leases}, nil
	}}
	x := &execution{name: "orders", where: where{engine: e}, command: []string{"true"}, lease: 7 * time.Second, wait: defaultWait}
	require.NoError(t, kit.Err(x.acquire(kit.Got(x.connect())(t))))
	require.Equal(t, []time.Duration{7 * time.Second, 7 * time.Second}, leases)
}

func TestATryEndsWhereNobodyAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := &execution{name: "orders", where: where{engine: onEtcd, url: onEtcd.fallback}, voice: newVoice(t.Output())}
		defer x.voice.end(patience)
		began := time.Now()
		_, err := x.acquire(silent{})
		require.EqualError(t, err, "etcd at http://127.0.0.1:2379: no answer within 5s")
		require.Equal(t, greeting, time.Since(began))
		require.Equal(t, exitUnavailable, kit.As[*failure](t, err).code)
	})
}

func TestAReleaseThatIsNotConfirmedIsToldAsTheEngineHasIt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		engine *engine
		least  time.Duration
		says   string
	}{
		{onRedis, time.Hour, "headwaiter: \"orders\" stays locked for --min-hold, 1h0m0s at most: no answer: release not confirmed\n"},
		{onRedis, 0, "headwaiter: \"orders\" stays locked until its lease ends, 10s at most: no answer: release not confirmed\n"},
		{onPostgres, 0, "headwaiter: \"orders\" may stay locked: its release was not confirmed, and it is free when Postgres sees the " +
			"connection end: no answer: release not confirmed\n"},
	} {
		var log bytes.Buffer
		x := &execution{name: "orders", where: where{engine: c.engine}, lease: lease.DefaultLease, voice: newVoice(&log)}
		x.choice.only.least = c.least
		held := (*lease.Lease)(keeper.New(t.Context(), keeper.Terms{
			Until:   keeper.Until{Deadline: time.Now().Add(time.Hour), Slept: keeper.Slept()},
			Release: func(context.Context) error { return fmt.Errorf("no answer: %w", lease.ErrUnconfirmed) },
		}))
		require.NoError(t, x.conclude(held, 0))
		x.voice.end(patience)
		require.Equal(t, c.says, log.String())
	}
}

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
	server := kit.Start(t)
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
	server := kit.Start(t)
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
	server := kit.Start(t)
	s := execute(t, server, "orders", under(acting(t, "pair"))...)
	var leader int
	require.NoError(t, kit.Err(fmt.Sscanf(s.await(s.stdout, "leader "), "leader %d", &leader)))
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
	server := kit.Start(t)
	s := execute(t, server, "orders", under(acting(t, "leaver"), "--lease", "3s", "--grace", "1h")...)
	s.await(s.stdout, "ready")
	server.Do("DEL", "headwaiter:lock:{orders}")
	assert.Equal(t, []string{"terminated"}, s.rest(s.stdout))
	assert.Equal(t, exitLost, s.code())
}

var consoleAddress = regexp.MustCompile(`^http://127\.0\.0\.1:\d+`)

// visited starts a console and returns its address.
func visited(t *testing.T, args ...string) (s *shell, address string) {
	t.Helper()
	s = start(t, append([]string{"console", "--listen", "localhost:0"}, args...)...)
	address = consoleAddress.FindString(s.await(s.stdout, "http://"))
	require.NotEmpty(t, address)
	return s, address
}

func got(t *testing.T, address string) (code int, page string) {
	t.Helper()
	answer := kit.Got(http.Get(address))(t)
	defer answer.Body.Close()
	return answer.StatusCode, string(kit.Got(io.ReadAll(answer.Body))(t))
}

func TestTheConsoleShowsNoPasswordAndEndsWithASignal(t *testing.T) {
	t.Parallel()
	const password = "s3cr3t/w@rd"
	server := redistest.Start(t, redistest.WithUser("app", password, "+@all", "~*", "&*"))
	holds(t, kit.Dial(t, server), "orders")
	s, address := visited(t, "--allow-release", "--redis", "redis://app:"+url.QueryEscape(password)+"@"+server.Addr())
	read := func() (all string) {
		for _, path := range []string{"/", "/name?kind=lock&name=orders", "/circles", "/doctor", "/name?name=nobody"} {
			code, page := got(t, address+path)
			require.Contains(t, []int{200, 404, 502}, code, page)
			require.Contains(t, page, server.Addr(), "it says which server it shows")
			all += page
		}
		return all
	}
	all := read()
	require.Contains(t, all, "orders")
	require.Contains(t, all, "may release by force")

	stream := kit.Got(http.Get(address + "/name/events?kind=lock&name=orders"))(t)
	defer stream.Body.Close()
	server.Kill()
	all += read()
	require.Contains(t, all, "That did not work")
	s.signal(syscall.SIGTERM)
	require.Zero(t, s.code(), "an open page does not keep it")
	all += strings.Join(append(s.rest(s.stdout), s.rest(s.stderr)...), "\n")
	for _, secret := range []string{password, url.QueryEscape(password), url.PathEscape(password), "s3cr3t"} {
		require.NotContains(t, all, secret)
	}
}

func TestTheConsoleListensOnLoopbackAlone(t *testing.T) {
	t.Parallel()
	for listen, advice := range map[string]string{
		"0.0.0.0:7420":      "say --listen 127.0.0.1:7420",
		":7420":             "say --listen 127.0.0.1:7420",
		"[::]:80":           "say --listen 127.0.0.1:80",
		"10.0.0.5:7420":     "put a reverse proxy before it",
		"evil.example:7420": "other machines could reach that",
		"7420":              "need an address and a port, as in --listen 127.0.0.1:7420",
		"127.0.0.1":         "need an address and a port",
	} {
		s := start(t, "console", "--listen", listen, "--redis", "redis://127.0.0.1:1")
		complaint := s.rest(s.stderr)
		require.Len(t, complaint, 1, listen)
		assert.Contains(t, complaint[0], advice, listen)
		assert.Equal(t, exitUsage, s.code(), listen)
	}
	server := redistest.Start(t)
	taken := kit.Got(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer taken.Close()
	s := start(t, "console", "--listen", taken.Addr().String(), "--redis", urlOf(server))
	assert.Regexp(t, `cannot listen at 127\.0\.0\.1:\d+: .*in use; say another port by --listen`, strings.Join(s.rest(s.stderr), "\n"))
	assert.Equal(t, exitUnavailable, s.code())
}

func TestTheConsoleSaysWhyItCannotUseRedis(t *testing.T) {
	server := kit.Start(t, redistest.WithUser("app", "right", "+@all", "~*", "&*"))
	s := start(t, "console", "--listen", "127.0.0.1:0", "--redis", "redis://app:wrongword@"+server.Addr())
	complaint := strings.Join(s.rest(s.stderr), "\n")
	require.Contains(t, complaint, "check user name and password")
	require.NotContains(t, complaint, "wrongword")
	require.Equal(t, exitUnavailable, s.code())
	require.Empty(t, s.rest(s.stdout))
}

// What the doctor's page says is what doctor says.
func TestTheConsoleSaysWhatTheDoctorSays(t *testing.T) {
	server := kit.Start(t)
	server.Do("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	server.Do("CONFIG", "SET", "maxmemory", "100mb")
	_, address := visited(t, "--redis", urlOf(server))
	_, page := got(t, address+"/doctor")
	code, text, _ := said(t, server, "doctor")
	require.Equal(t, exitFindings, code)
	_, result, _ := strings.Cut(text, "result: ")
	require.Contains(t, page, `<p class="bad">`+strings.TrimSpace(result)+"</p>")
	require.Contains(t, page, `<span class="badge">danger</span> maxmemory-policy: allkeys-lru`)
	require.Contains(t, page, "  memory       maxmemory 104857600, maxmemory-policy allkeys-lru\n")
	require.Contains(t, page, "read only")
}

// terminal starts the program on a terminal of its own. What is on the screen comes over stdout, what is
// typed goes to stdin.
func terminal(t *testing.T, args ...string) *shell {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "TERM=xterm")
	screen := kit.Got(pty.StartWithSize(cmd, &pty.Winsize{Rows: 30, Cols: 100}))(t)
	s := &shell{t: t, cmd: cmd, stdin: screen, stdout: lines(screen)}
	ended := make(chan struct{})
	s.ended = ended
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	return s
}

// What the keyboard's keys send.
const (
	typedInterrupt = "\x03" // ^C
	typedQuit      = "\x1c" // ^\
)

func TestTheKeyboardsSignalsReachTheCommandOnce(t *testing.T) {
	server := kit.Start(t)
	args := append([]string{"exec", "orders", "--redis", urlOf(server)}, under(acting(t, "signals"))...)
	s := terminal(t, args...)
	s.await(s.stdout, "ready")
	const times = 10 // Two signals in quick succession may count as one.
	for range times {
		for typed, signal := range map[string]os.Signal{typedInterrupt: syscall.SIGINT, typedQuit: syscall.SIGQUIT} {
			require.NoError(t, kit.Err(s.stdin.Write([]byte(typed))))
			require.Contains(t, s.await(s.stdout, ""), signal.String())
		}
	}
	s.signal(syscall.SIGTERM) // This one is passed on, after whatever else would have been.
	rest := strings.Join(s.rest(s.stdout), "\n")
	// The terminal shows what was typed when the signal is sent already, so that may come after the command's word.
	rest = strings.NewReplacer("^C", "", "^\\", "").Replace(rest)
	assert.Equal(t, syscall.SIGTERM.String(), rest)
	assert.Equal(t, int(syscall.SIGTERM), s.code())
}

func TestTheKeyboardEndsAWait(t *testing.T) {
	server := kit.Start(t)
	tokenOf(t, execute(t, server, "orders", under(holding)...))
	s := terminal(t, "exec", "orders", "--redis", urlOf(server), "--", "true")
	s.await(s.stdout, "waiting")
	require.NoError(t, kit.Err(s.stdin.Write([]byte(typedInterrupt))))
	assert.Equal(t, exitSignal+int(syscall.SIGINT), s.code())
}

func TestTheCommandReadsTheTerminal(t *testing.T) {
	server := kit.Start(t)
	s := terminal(t, "exec", "orders", "--redis", urlOf(server), "--", "sh", "-c", "echo ready; read x; echo got $x")
	s.await(s.stdout, "ready")
	require.NoError(t, kit.Err(s.stdin.Write([]byte("this\n"))))
	s.await(s.stdout, "got this")
	assert.Zero(t, s.code())
}
