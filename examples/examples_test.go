package examples_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/postgres"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

// programs is the folder with the examples, built once.
var programs string

func TestMain(m *testing.M) {
	kit.HangUps()
	os.Exit(build(m))
}

func build(m *testing.M) int {
	dir, err := os.MkdirTemp("", "headwaiter-examples-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	programs = dir
	if out, err := exec.Command("go", "build", "-o", dir+string(filepath.Separator), "./...").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// run runs an example to its end and returns what it printed. It must succeed and have no complaints.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(programs, name), args...)
	complaints := &strings.Builder{}
	cmd.Stderr = complaints
	said, err := cmd.Output()
	t.Logf("%s", said)
	require.NoError(t, err, complaints)
	require.Empty(t, complaints.String())
	return string(said)
}

// each runs an example as it is without flags, and on a redis-server.
func each(t *testing.T, name string, check func(t *testing.T, said string)) {
	t.Parallel()
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		check(t, run(t, name))
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		check(t, run(t, name, "--redis", "redis://"+redistest.Start(t).Addr()))
	})
}

// numbers returns those in the place of each # of the pattern, which is otherwise what must be there.
func numbers(t *testing.T, said, pattern string) []int {
	t.Helper()
	words := strings.Fields(regexp.QuoteMeta(pattern))
	expression := strings.ReplaceAll(strings.Join(words, `\s+`), "#", `(\d+)`)
	found := regexp.MustCompile(expression).FindStringSubmatch(said)
	require.NotNil(t, found, "%q is not in\n%s", pattern, said)
	var all []int
	for _, text := range found[1:] {
		n, err := strconv.Atoi(text)
		require.NoError(t, err)
		all = append(all, n)
	}
	return all
}

// inOrder requires that each of the patterns has a match behind that of the one before.
func inOrder(t *testing.T, said string, patterns ...string) {
	t.Helper()
	rest := said
	for _, p := range patterns {
		at := regexp.MustCompile(p).FindStringIndex(rest)
		require.NotNil(t, at, "%q is missing, or too early, in\n%s", p, said)
		rest = rest[at[1]:]
	}
}

func TestACacheIsFilledOnce(t *testing.T) {
	each(t, "cachefill", func(t *testing.T, said string) {
		free := numbers(t, said, "without a lock: loads #, values #, errors #")
		require.Greater(t, free[0], 1, "no stampede: the example shows nothing")
		require.Equal(t, []int{50, 0}, free[1:])
		require.Equal(t, []int{1, 50, 0}, numbers(t, said, "with the lock: loads #, values #, errors #"))
		require.Equal(t, []int{2, 49, 1}, numbers(t, said, "the first load fails: loads #, values #, errors #"))
	})
}

func TestWorkersStayWithinTheLimit(t *testing.T) {
	each(t, "workers", func(t *testing.T, said string) {
		free := numbers(t, said, "without permits: # at a time, # served, # refused")
		require.Greater(t, free[0], 3, "the workers are too slow: the example shows nothing")
		require.NotZero(t, free[2])
		require.Equal(t, []int{3, 60, 0}, numbers(t, said, "with permits: # at a time, # served, # refused"))
	})
}

func TestAJobIsDoneOnceATick(t *testing.T) {
	each(t, "cron", func(t *testing.T, said string) {
		inOrder(t, said,
			`\w  begins the job: `, `\w  has done the job: `, `E  finds it done: `, // With its clock that is behind.
			`\w  begins the job: `, `\w  begins the job: `, `\w  has done the job: `,
			`begun 1, done 1, found done 4\n`, `begun 2, done 1, found done 3; \w was killed in the middle\n`)
	})
}

func TestALateLeaderIsRefused(t *testing.T) {
	t.Parallel()
	check := func(t *testing.T, said string) {
		inOrder(t, said, `A  leads`, `A  writes: tea costs 410`, `A  is paused`, `B  leads`, `B  writes: tea costs 420`,
			`A  runs again, and its context says: lease lost: .+: expired`, `A  is refused: .*stale fencing token`,
			`the row: tea costs 420, written by B with token`)
		first, second := numbers(t, said, "A leads, with token #")[0], numbers(t, said, "B leads, with token #")[0]
		require.Greater(t, second, first)
		require.Equal(t, []int{first, second}, numbers(t, said, "stale fencing token: #, where # was seen"))
		require.Equal(t, []int{second}, numbers(t, said, "written by B with token #"))
	}
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		check(t, run(t, "leader"))
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		server, err := postgres.Start()
		require.NoError(t, err)
		t.Cleanup(server.Stop)
		check(t, run(t, "leader", "--redis", "redis://"+redistest.Start(t).Addr(), "--postgres", server.URL("postgres")))
	})
}

func TestRequestsOfACustomerRunOneAfterTheOther(t *testing.T) {
	each(t, "http", func(t *testing.T, said string) {
		free := numbers(t, said, "without a lock: ada has # points; payments at a time: # of one customer")
		require.Less(t, free[0], 12, "no point was lost: the example shows nothing")
		require.Greater(t, free[1], 1)
		require.Equal(t, []int{12, 1}, numbers(t, said, "with the lock: ben has # points; payments at a time: # of one customer"))
		// Side by side are requests of different customers alone.
		require.Equal(t, []int{12, 1, 2}, numbers(t, said, "cyd has # points; payments at a time: # of one customer, # of all"))
		require.Equal(t, []int{12, 1, 2}, numbers(t, said, "dan has # points; payments at a time: # of one customer, # of all"))
		inOrder(t, said, `a client gives up: of 2 requests that waited for eve, 1 waits\n`,
			`served are the other two: points 1 and 2\n`)
	})
}

func TestABatchIsInWhenItsLatchOpens(t *testing.T) {
	each(t, "batchimport", func(t *testing.T, said string) {
		require.Equal(t, []int{6, 621}, numbers(t, said, "the latch is open: # parts are in, # rows"))
		require.Equal(t, []int{7}, numbers(t, said, "imports begun: #, one of them by"))
		killed := regexp.MustCompile(`by (\w), which was killed in the middle`).FindStringSubmatch(said)
		require.NotNil(t, killed)
		inOrder(t, said, killed[1]+`  imports part 3\n`, `\w  imports part 3\n`,
			`\w  has imported part 3\n`, `\w  finds all parts in\n`, `\w  finds all parts in\n`)
		require.NotContains(t, said, killed[1]+"  has imported part 3")
	})
}

func TestWhatIsMissingIsSaid(t *testing.T) {
	t.Parallel()
	fails := func(status int, says string, environment []string, name string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), filepath.Join(programs, name), args...)
		cmd.Env = append(cmd.Environ(), environment...)
		out, err := cmd.CombinedOutput()
		require.Error(t, err)
		require.Equal(t, status, cmd.ProcessState.ExitCode(), "%s", out)
		require.Contains(t, string(out), says)
	}
	for _, name := range []string{"batchimport", "cachefill", "cron", "http", "workers"} {
		fails(1, "refused", nil, name, "--redis", "redis://127.0.0.1:1")
	}
	fails(1, "postgres: ", []string{"HEADWAITER_POSTGRES_BIN=" + t.TempDir()}, "leader")
	fails(1, "refused", nil, "leader", "--postgres", "postgres://127.0.0.1:1/shop")
	fails(2, `"redis://127.0.0.1" is no flag`, nil, "workers", "redis://127.0.0.1")
}

// An example that is told to end takes its processes along, also the one that is stopped, and its Postgres.
func TestAnInterruptedExampleLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	dir := temporary(t)
	leader := untilPaused(t, dir)
	require.NoError(t, leader.Process.Signal(syscall.SIGTERM))
	require.Error(t, leader.Wait())
	require.Equal(t, 1, leader.ProcessState.ExitCode())
	require.Equal(t, syscall.ESRCH, syscall.Kill(-leader.Process.Pid, 0), "a process is left")
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

// temporary is a folder that Postgres can enter, which runs as somebody else if this is root.
func temporary(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o777))
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
	return dir
}

// untilPaused starts the example leader in a session of its own, with a folder for temporary files, and returns when
// its first process is paused.
func untilPaused(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(programs, "leader"))
	cmd.Env = append(cmd.Environ(), "TMPDIR="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	said, buffer := "", make([]byte, 4096)
	for !strings.Contains(said, "A  is paused") {
		n, err := out.Read(buffer)
		require.NoError(t, err, said)
		said += string(buffer[:n])
	}
	return cmd
}

func TestTheProgramOfTheReadmeRuns(t *testing.T) {
	t.Setenv("REDIS_URL", "redis://"+redistest.Start(t).Addr())
	require.Regexp(t, `^shipped, with token \d+\n$`, run(t, "start"))
}
