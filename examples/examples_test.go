package examples_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

// programs is the folder with the examples, built once.
var programs string

func TestMain(m *testing.M) {
	kit.HangUps()
	os.Exit(kit.Build(m, "./...", func(dir string) { programs = dir }))
}

// mark is a line: when it is read, all that was written before has been read.
const mark = "\a"

// A scene is processes of one example on one redis-server. All write to one pipe, so a line stands after another if
// it was written later, whichever processes wrote them.
type scene struct {
	*testing.T
	name        string
	dir         string   // where they run
	environment []string // what they get in addition to the URL
	server      *redistest.Server
	pipe        *os.File
	read        chan struct{} // hands over when a mark was read; closes after the last line

	mu    sync.Mutex // guards lines
	lines []string
}

func begin(t *testing.T, name string) *scene {
	t.Helper()
	from, to, err := os.Pipe()
	require.NoError(t, err)
	s := &scene{T: t, name: name, dir: t.TempDir(), server: redistest.Start(t), pipe: to, read: make(chan struct{})}
	go func() {
		defer close(s.read)
		for in := bufio.NewScanner(from); in.Scan(); {
			if in.Text() == mark {
				s.read <- struct{}{}
				continue
			}
			s.mu.Lock()
			s.lines = append(s.lines, in.Text())
			s.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		to.Close()
		<-s.read // After the last process, which has ended by now.
		from.Close()
		t.Log(strings.Join(s.lines, "\n"))
	})
	return s
}

// client is one more client of the server, in this process.
func (s *scene) client() *headwaiter.Client { return kit.Dial(s, s.server) }

// start starts a process. What it says as errors is said too.
func (s *scene) start(args ...string) *exec.Cmd {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
	cmd := exec.CommandContext(ctx, filepath.Join(programs, s.name), args...)
	cmd.Env = append(append(os.Environ(), s.environment...), "REDIS_URL=redis://"+s.server.Addr())
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, s.pipe, s.pipe
	require.NoError(s, cmd.Start())
	s.Cleanup(func() {
		cancel()
		if cmd.ProcessState == nil {
			_ = cmd.Wait()
		}
	})
	return cmd
}

// run runs processes to their ends, which must be good.
func (s *scene) run(processes ...*exec.Cmd) {
	s.Helper()
	for _, cmd := range processes {
		require.NoError(s, cmd.Wait(), cmd.Args)
	}
}

// signal sends a signal to processes.
func (s *scene) signal(to os.Signal, processes ...*exec.Cmd) {
	s.Helper()
	for _, cmd := range processes {
		require.NoError(s, cmd.Process.Signal(to))
	}
}

// said is those lines up to now that match the pattern, or of each what its group matches.
func (s *scene) said(pattern string) (found []string) {
	s.Helper()
	require.NoError(s, kit.Err(fmt.Fprintln(s.pipe, mark)))
	<-s.read
	s.mu.Lock()
	defer s.mu.Unlock()
	expression := regexp.MustCompile(pattern)
	for _, line := range s.lines {
		if m := expression.FindStringSubmatch(line); m != nil {
			found = append(found, m[len(m)-1])
		}
	}
	return found
}

// await waits until n lines match the pattern, and returns their last groups.
func (s *scene) await(n int, pattern string) (found []string) {
	s.Helper()
	kit.Eventually(s, fmt.Sprintf("%d of %q", n, pattern), func() bool {
		found = s.said(pattern)
		return len(found) >= n
	})
	return found
}

// most says how many were between a line that begins something and one that ends it, at most.
func (s *scene) most(begins, ends string) (most int) {
	s.Helper()
	now := 0
	for _, line := range s.said(begins + "|" + ends) {
		if regexp.MustCompile(begins).MatchString(line) {
			now++
		} else {
			now--
		}
		most = max(most, now)
	}
	return most
}

// inOrder requires that each pattern matches a later line than the pattern before.
func (s *scene) inOrder(patterns ...string) {
	s.Helper()
	all := s.said(".*")
	rest := all
	for _, p := range patterns {
		at := slices.IndexFunc(rest, regexp.MustCompile(p).MatchString)
		require.NotEqual(s, -1, at, "%q is missing, or too early, in\n%s", p, strings.Join(all, "\n"))
		rest = rest[at+1:]
	}
}

// Each is short enough to be read at a glance.
func TestEachProgramIsShort(t *testing.T) {
	t.Parallel()
	found := kit.Got(filepath.Glob("*/main.go"))(t)
	found = slices.DeleteFunc(found, func(name string) bool { return strings.HasPrefix(name, "demo/") })
	require.Len(t, found, 15)
	for _, name := range found {
		require.Less(t, strings.Count(string(kit.Got(os.ReadFile(name))(t)), "\n"), 60, name)
	}
}

func TestWhatIsMissingIsSaid(t *testing.T) {
	t.Parallel()
	found := kit.Got(filepath.Glob("*/main.go"))(t)
	for _, name := range found {
		name = filepath.Dir(name)
		if name == "demo" {
			continue
		}
		cmd := exec.CommandContext(t.Context(), filepath.Join(programs, name))
		cmd.Env = append(cmd.Environ(), "REDIS_URL=redis://127.0.0.1:1")
		out, err := cmd.CombinedOutput()
		require.Error(t, err)
		require.Contains(t, string(out), "refused", name)
	}
}

// terminate is how an orchestrator ends a process.
const terminate = syscall.SIGTERM
