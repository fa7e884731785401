package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/cmd/headwaiter/internal/handoffs"
	"github.com/headwaiter/headwaiter/countdown"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/tty"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/semaphore"
)

// tube is a terminal whose screen a test looks at.
type tube struct {
	t     *testing.T
	cmd   *exec.Cmd
	file  *os.File
	ended chan struct{}

	mu  sync.Mutex
	all string // what was written
}

const tubeColumns = 100

// onTube starts watch on a terminal.
func onTube(t *testing.T, s *redistest.Server, rows int, args ...string) *tube {
	t.Helper()
	cmd := exec.Command(program, append([]string{"watch", "--interval", "100ms", "--redis", urlOf(s)}, args...)...)
	cmd.Env = append(os.Environ(), "TERM=xterm", "NO_COLOR=")
	file := kit.Got(pty.StartWithSize(cmd, &pty.Winsize{Rows: uint16(rows), Cols: tubeColumns}))(t)
	screen := &tube{t: t, cmd: cmd, file: file, ended: make(chan struct{})}
	go func() {
		defer close(screen.ended)
		buffer := make([]byte, 64<<10)
		for err := error(nil); err == nil; {
			var n int
			n, err = file.Read(buffer)
			screen.mu.Lock()
			screen.all += string(buffer[:n])
			screen.mu.Unlock()
		}
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-screen.ended
		file.Close()
	})
	return screen
}

// frames are the whole drawings so far.
func (s *tube) frames() (frames []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range strings.Split(s.all, "\x1b[?25l")[1:] {
		if f, _, whole := strings.Cut(f, "\x1b[J"); whole {
			frames = append(frames, f)
		}
	}
	return frames
}

var escape = regexp.MustCompile(`\x1b\[[?0-9;]*[A-Za-z]`)

// shows waits until a drawing matches a pattern.
func (s *tube) shows(pattern string) {
	s.t.Helper()
	wanted := regexp.MustCompile(pattern)
	last := ""
	defer func() {
		if s.t.Failed() {
			s.t.Logf("the last drawing:\n%s", last)
		}
	}()
	kit.Eventually(s.t, "a drawing with "+pattern, func() bool {
		if frames := s.frames(); len(frames) > 0 {
			last = strings.ReplaceAll(escape.ReplaceAllString(frames[len(frames)-1], ""), "\r", "")
		}
		return wanted.MatchString(last)
	})
}

func (s *tube) code() int {
	s.t.Helper()
	kit.Await(s.t, s.ended, "the end of watch")
	return s.cmd.ProcessState.ExitCode()
}

func TestWatchDrawsAScreen(t *testing.T) {
	s := kit.Start(t)
	a, b := kit.Dial(t, s), kit.Dial(t, s)
	l := holds(t, a, "orders")
	screen := onTube(t, s, 30, "orders")
	who := fmt.Sprintf(`test@\S+#%d`, os.Getpid())
	screen.shows(`(?m)^lock orders   redis://127\.0\.0\.1:\d+   watched for \S+$`)
	screen.shows(`(?m)^held by    ` + who + `$`)
	screen.shows(`(?m)^token      ` + fmt.Sprint(l.Token()) + `$`)
	screen.shows(`(?m)^held       since \d\d:\d\d:\d\d, for \S+$`)
	screen.shows(`(?m)^hand-offs  0\.0/s$`)
	screen.shows(`(?m)^waiting    0$`)
	waits := queued(t, b, "orders", 1)
	screen.shows(`(?m)^waiting    1$\n^  PLACE  SINCE +FOR +NAME +HOST +PROCESS +CLIENT$\n^  1 +\S+ +\S+ +test +\S+ +\d+ +` + b.ID())
	next := kit.Next(t, l, waits)
	screen.shows(`(?m)^client     ` + b.ID() + `$`)
	screen.shows(`(?m)^held by    ` + who + `$`) // After the first renewal.
	screen.shows(`(?m)^held       since \d\d:\d\d:\d\d, for \S+$`)
	screen.shows(`(?m)^hand-offs  0\.[1-9]/s$`)
	kit.Release(t, next)
	screen.shows(`(?m)^held by    nobody$`)
	require.NoError(t, kit.Err(screen.file.Write([]byte(typedInterrupt))))
	require.Zero(t, screen.code())
	require.True(t, strings.HasSuffix(screen.all, tty.ShowCursor))

	// Each drawing begins where the one before it did.
	frames := screen.frames()
	for i := 1; i < len(frames); i++ {
		require.True(t, strings.HasPrefix(frames[i], fmt.Sprintf("\x1b[%dA\r", strings.Count(frames[i-1], "\n"))), "%q", frames[i])
	}
}

func TestWatchFitsItsTerminal(t *testing.T) {
	s := kit.Start(t)
	name := strings.Repeat("long ", 60)
	a := kit.Dial(t, s)
	holds(t, a, name)
	for i := range 20 {
		queued(t, a, name, i+1)
	}
	const rows = 16
	screen := onTube(t, s, rows, name)
	screen.shows(`make the window larger`)
	for _, frame := range screen.frames() {
		require.Less(t, strings.Count(frame, "\n"), rows)
		for line := range strings.Lines(escape.ReplaceAllString(frame, "")) {
			require.Less(t, len(strings.TrimSpace(line)), tubeColumns)
		}
	}
	require.NoError(t, pty.Setsize(screen.file, &pty.Winsize{Rows: 60, Cols: tubeColumns}))
	screen.shows(`(?m)^  20 +\S+ +\S+ +test +.*` + a.ID())
}

func TestWatchOutlastsItsServer(t *testing.T) {
	s := kit.Start(t)
	holds(t, kit.Dial(t, s), "orders")
	screen := onTube(t, s, 30, "orders")
	screen.shows(`(?m)^held by    test@`)
	s.Kill()
	screen.shows(`(?m)^no answer, what follows is \S+ old: .*\n(.*\n)*held by    test@`)
	s.Restart()
	screen.shows(`(?m)^held by    nobody$`)
	m := fairlock.New(kit.Dial(t, s), "orders")
	screen.shows(fmt.Sprint(kit.Got(m.Lock(t.Context()))(t).Token()))
}

func TestWatchWritesLinesWhereThereIsNoTerminal(t *testing.T) {
	s := kit.Start(t)
	a, b := kit.Dial(t, s), kit.Dial(t, s)
	l := holds(t, a, "orders")
	w := start(t, "watch", "orders", "--interval", "100ms", "--redis", urlOf(s))
	const stamp = `^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}(Z|[+-]\d\d:\d\d) lock orders `
	const rate = `; hand-offs (at least )?[\d.]+/s$`
	line := func(text string) {
		t.Helper()
		require.Regexp(t, stamp+text+rate, w.await(w.stdout, "")) // Each change is one line.
	}
	line(fmt.Sprintf(`held by test@\S+ since \S+, for \S+, token %d; 0 waiting`, l.Token()))
	waits := queued(t, b, "orders", 1)
	line(fmt.Sprintf(`held by test@\S+ since \S+, for \S+, token %d; 1 waiting`, l.Token()))
	next := kit.Next(t, l, waits)
	line(fmt.Sprintf(`held by test@\S+ since \S+, for \S+, token %d; 0 waiting`, next.Token()))
	kit.Release(t, next)
	line(`free; 0 waiting`)
	w.signal(syscall.SIGTERM)
	require.Zero(t, w.code())
	require.Empty(t, w.rest(w.stderr))
	require.Empty(t, w.rest(w.stdout))
}

func TestWatchOfALatch(t *testing.T) {
	s := kit.Start(t)
	latch := countdown.New(kit.Dial(t, s), "steps")
	require.NoError(t, kit.Err(latch.TrySetCount(t.Context(), 2)))
	w := start(t, "watch", "steps", "--interval", "100ms", "--redis", urlOf(s))
	require.Regexp(t, `latch steps closed: 2 of 2 left to count; 0 waiting$`, w.await(w.stdout, ""))
	require.NoError(t, kit.Err(latch.CountDown(t.Context())))
	require.Regexp(t, `latch steps closed: 1 of 2 left to count; 0 waiting$`, w.await(w.stdout, ""))
}

// scened is a scene of a lock, and looks at it.
func scened(t *testing.T, c *headwaiter.Client, url, name string) (s *scene, heard *handoffs.Hearing, look func(at time.Time)) {
	t.Helper()
	w := watching{lookout: lookout{redisFlags: redisFlags{redis: url}}}
	first := kit.Got(w.findOne(t.Context(), c, name, "lock"))(t)
	heard = kit.Got(handoffs.Hear(c, first.Kind, name, nil))(t)
	t.Cleanup(heard.Stop)
	s = newScene(first, url, heard)
	m := fairlock.New(c, name)
	return s, heard, func(at time.Time) {
		info, err := m.Inspect(t.Context())
		s.see(info, err, at)
	}
}

// Nobody holds what rests, and it may rest for days. Permits that rest are some of several.
func TestWhatRestsIsNotCalledHeld(t *testing.T) {
	server := kit.Start(t)
	c, url := kit.Dial(t, server), urlOf(server)
	const day = 24 * time.Hour
	kit.Release(t, kit.Got(fairlock.New(c, "orders", headwaiter.WithMinHold(30*day), fairlock.WithHistory(3)).Lock(t.Context()))(t))
	kit.Release(t, kit.Got(semaphore.New(c, "slots", 3, headwaiter.WithMinHold(time.Hour)).Acquire(t.Context(), 1))(t))
	s, _, look := scened(t, c, url, "orders")
	look(time.Now())
	until := time.Now().Add(30 * day).Format(time.DateOnly)
	require.Regexp(t, `^taken until `+until+` \d\d:\d\d:\d\d, released, token \d+; 0 waiting$`, s.state(time.Now()))
	log := start(t, "log", "orders", "--redis", url)
	require.Regexp(t, `(?s) rests .* released `, strings.Join(log.rest(log.stdout), " "))
	ls := start(t, "ls", "slots", "--redis", url)
	require.Regexp(t, `1 of 3 held, until \d\d:\d\d:\d\d, released`, strings.Join(ls.rest(ls.stdout), " "))
	require.ErrorContains(t, kit.Err(fairlock.New(c, "orders").TryLock(t.Context())), "busy: until "+until)
}

// What is heard is every hand-off there is, however fast.
func TestWatchCountsEveryHandOff(t *testing.T) {
	server := kit.Start(t)
	clients := []*headwaiter.Client{kit.Dial(t, server), kit.Dial(t, server), kit.Dial(t, server)}
	l := holds(t, clients[0], "orders")
	s, heard, look := scened(t, clients[0], urlOf(server), "orders")
	kit.Eventually(t, "the subscription", heard.Live)
	begun := time.Now()
	look(begun)
	handOffs := func() (n uint64) {
		for _, c := range clients {
			n += c.Stats().HandOffs
		}
		return n
	}
	var work sync.WaitGroup
	for i, c := range clients[1:] {
		m := fairlock.New(c, "orders")
		work.Go(func() {
			for handOffs() < 200 { // Where one does not run for a while, the other hands on to nobody.
				held, err := m.Lock(t.Context())
				if !assert.NoError(t, err) {
					return
				}
				assert.NoError(t, held.Release(t.Context()))
			}
		})
		kit.Waiting(t, i+1, m.Inspect)
	}
	kit.Release(t, l)
	kit.AllMoving(t, &work, func() int64 { return int64(handOffs()) })
	kit.Eventually(t, "the last message", func() bool { return heard.Count() == int64(handOffs()) })
	look(begun.Add(time.Second))
	perSecond, atLeast := s.handOffs.Rate()
	require.InDelta(t, handOffs(), perSecond, 1e-6)
	require.False(t, atLeast)
}

// Without the right to listen by a pattern, and where a client hands on to itself, looks count.
func TestWatchSaysAtLeastWhereItCannotHear(t *testing.T) {
	server := kit.Start(t, redistest.WithUser("app", "secret", "+@all", "-psubscribe", "~*", "&*"))
	c := kit.Dial(t, server)
	first := holds(t, c, "orders")
	s, heard, look := scened(t, c, "redis://app:secret@"+server.Addr(), "orders")
	look(time.Now())
	waits := queued(t, c, "orders", 1)
	next := kit.Next(t, first, waits)
	look(time.Now())
	require.False(t, heard.Live())
	perSecond, atLeast := s.handOffs.Rate()
	require.Positive(t, perSecond)
	require.True(t, atLeast)
	require.Contains(t, s.handOffs.String(), "at least ")
	kit.Release(t, next)
	look(time.Now())
	s.see(lease.Info{}, errors.New("away\nand gone"), time.Now())
	require.Equal(t, "away; and gone", s.trouble)
	require.Equal(t, next.Token(), s.info.Token, "what was seen last stays")
}
