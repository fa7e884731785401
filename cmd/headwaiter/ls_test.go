package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/barrier"
	"github.com/headwaiter/headwaiter/countdown"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/rwlock"
	"github.com/headwaiter/headwaiter/semaphore"
)

// said runs a command to its end.
func said(t *testing.T, server redistest.Backend, args ...string) (code int, out, complaint string) {
	t.Helper()
	s := start(t, append(args, "--redis", "redis://"+server.Option().InitAddress[0])...)
	out = strings.Join(s.rest(s.stdout), "\n")
	complaint = strings.Join(s.rest(s.stderr), "\n")
	return s.code(), out, complaint
}

// shows runs a command that has nothing to complain of, and returns what it prints.
func shows(t *testing.T, server redistest.Backend, args ...string) string {
	t.Helper()
	code, out, complaint := said(t, server, args...)
	require.Zero(t, code, complaint)
	require.Empty(t, complaint)
	return out
}

// decoded reads what a command prints as JSON.
func decoded[T any](t *testing.T, text string) (v T) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(&v), text)
	return v
}

// holds takes a lock until the end of the test.
func holds(t *testing.T, c *headwaiter.Client, name string) *lease.Lease {
	t.Helper()
	return kit.Got(fairlock.New(c, name).Lock(t.Context()))(t)
}

// queued waits for a lock, and returns when the server knows that.
func queued(t *testing.T, c *headwaiter.Client, name string, waiting int) *kit.Call[*lease.Lease] {
	t.Helper()
	m := fairlock.New(c, name)
	return kit.Joins(t, waiting, m.Lock, m.Inspect)
}

func TestLsTellsWhoHolds(t *testing.T) {
	s := kit.Start(t)
	require.Empty(t, shows(t, s, "ls"))
	a, b := kit.Dial(t, s), kit.Dial(t, s)
	holds(t, a, "orders:1")
	queued(t, b, "orders:1", 1)
	kit.Release(t, holds(t, a, "orders:2"))
	require.NoError(t, kit.Err(semaphore.New(a, "pool", 5).Acquire(t.Context(), 2)))
	require.NoError(t, kit.Err(rwlock.New(b, "tree").RLock(t.Context())))
	require.NoError(t, kit.Err(rwlock.New(a, "tree").RLock(t.Context())))
	require.NoError(t, kit.Err(rwlock.New(a, "leaf").Lock(t.Context())))
	require.NoError(t, kit.Err(countdown.New(a, "steps").TrySetCount(t.Context(), 3)))
	s.Do("SET", "headwaiter:lock:{taken}", "by another")

	who := `test@\S+#\d+`
	out := strings.Split(shows(t, s, "ls"), "\n")
	for i, line := range []string{
		`KIND +NAME +WAITING +HELD SINCE +FOR +HOLDER`,
		`rwlock +leaf +0 +\d\d:\d\d:\d\d +[\d.]+m?s +writes: ` + who,
		`lock +orders:1 +1 +\d\d:\d\d:\d\d +[\d.]+m?s +` + who,
		`lock +orders:2 +0 +-`,
		`semaphore +pool +0 +\d\d:\d\d:\d\d +[\d.]+m?s +2 of 5 held, ` + who,
		`latch +steps +0 +closed: 3 of 3 left to count`,
		`lock +taken +0 +\? a key of another kind has the lock's name.*`,
		`rwlock +tree +0 +\d\d:\d\d:\d\d +[\d.]+m?s +2 read, ` + who,
	} {
		assert.Regexp(t, "^"+line+"$", out[i])
	}
	require.Len(t, out, 8)

	require.Regexp(t, `^KIND.*\nlock +orders:1 .*\nlock +orders:2 .*$`, shows(t, s, "ls", "orders:*"))
	const unread = `lock +taken .*` // Whether it is held, and waited for, is not known.
	require.Regexp(t, `^KIND.*\nlock +orders:1 .*\n`+unread+`$`, shows(t, s, "ls", "--waiting"))
	require.Regexp(t, `^KIND.*\nlock +orders:1 .*\n`+unread+`$`, shows(t, s, "ls", "--held", "--kind", "lock"))
	code, some, complaint := said(t, s, "ls", "--limit", "3")
	require.Zero(t, code)
	require.Len(t, strings.Split(some, "\n"), 4)
	require.Equal(t, "headwaiter: there are more than 3: see --limit", complaint)

	names := decoded[[]nameJSON](t, shows(t, s, "ls", "--json", "--kind", "lock"))
	require.Len(t, names, 3)
	require.Equal(t, "orders:1", names[0].Name)
	require.Equal(t, a.ID(), names[0].Holders[0].Client)
	require.Equal(t, 1, names[0].Waiting)
	require.Contains(t, names[2].Error, "WRONGTYPE")
	require.Equal(t, "[]", shows(t, s, "ls", "nothing", "--json"))
}

const (
	manyLocks = 10_000
	otherKeys = 100_000
	// stepKeys is how many keys one step may go over.
	stepKeys = 1000
)

// Others are served between any two steps: so what counts is how many steps there are, and how much work is in one.
func TestLsOfTenThousandLocksGoesInSmallSteps(t *testing.T) {
	s := redistest.Start(t)
	c := kit.Dial(t, s)
	var work sync.WaitGroup
	for part := range 50 {
		work.Go(func() {
			for i := part; i < manyLocks; i += 50 {
				_, err := fairlock.New(c, fmt.Sprint("lock:", i), headwaiter.WithLease(time.Hour)).Lock(context.Background())
				assert.NoError(t, err)
			}
		})
	}
	kit.All(t, &work)
	for i := range 20 {
		queued(t, c, fmt.Sprint("lock:", i), 1)
	}
	s.Do("DEBUG", "POPULATE", strconv.Itoa(otherKeys), "other")
	keys := s.Int("DBSIZE")
	require.Greater(t, keys, int64(manyLocks+otherKeys))
	s.Do("CONFIG", "RESETSTAT")

	run := start(t, "ls", "--redis", urlOf(s))
	require.Len(t, run.rest(run.stdout), 1+manyLocks)
	require.Zero(t, run.code())
	stats := s.CommandStats()
	t.Logf("%d keys: %d scans, %d scripts", keys, stats["scan"], stats["evalsha"])
	require.Zero(t, stats["keys"])
	require.LessOrEqual(t, stats["eval"], int64(2), "the one of Dial, which finds out whether the user may, and the first look at many names")
	require.Zero(t, stats["fcall"]+stats["exec"])
	require.GreaterOrEqual(t, stats["scan"], keys/stepKeys, "steps that go over too many keys at once")
	require.GreaterOrEqual(t, stats["evalsha"], int64(manyLocks), "scripts that look at more than one name")
	// The holds go on meanwhile: waiters look after their place.
	require.LessOrEqual(t, stats["evalsha"], int64(manyLocks+manyLocks/10), "scripts for what is not there")
}

func TestLsOfACluster(t *testing.T) {
	t.Parallel()
	s := redistest.ClusterOf(t, 3, 0)
	c := kit.Dial(t, s)
	for i := range 30 {
		holds(t, c, fmt.Sprintf("lock%02d", i))
	}
	require.NoError(t, kit.Err(barrier.New(c, "meet", 2).Broken(t.Context())))
	out := shows(t, s.Nodes()[0], "ls", "--json")
	names := decoded[[]nameJSON](t, out)
	require.Len(t, names, 30)
	require.True(t, slices.IsSortedFunc(names, func(a, b nameJSON) int { return strings.Compare(a.Name, b.Name) }))
	require.Contains(t, shows(t, s.Nodes()[1], "inspect", "lock07"), "test on host")
	require.Contains(t, shows(t, s.Nodes()[2], "release", "--force", "lock07", "--yes"), "released")
	require.Equal(t, "lock05\n:4", strings.Join(slices.DeleteFunc(
		strings.Split(completed(t, s.Nodes()[1], "inspect", "lock05"), "\n"),
		func(line string) bool { return line == "" }), "\n"))
}

// completed is what a shell is offered.
func completed(t *testing.T, server redistest.Backend, args ...string) string {
	t.Helper()
	s := start(t, append([]string{"__complete", args[0], "--redis", "redis://" + server.Option().InitAddress[0]}, args[1:]...)...)
	out := s.rest(s.stdout)
	s.rest(s.stderr)
	require.Zero(t, s.code())
	return strings.Join(out, "\n")
}

// Each mistake is one line and an exit code.
func TestWhatGoesWrongIsSaidInOneLine(t *testing.T) {
	s := kit.Start(t, redistest.WithPassword("secret"))
	good := "redis://:secret@" + s.Addr()
	c := kit.Dial(t, s)
	holds(t, c, "both")
	require.NoError(t, kit.Err(semaphore.New(c, "both", 2).Acquire(t.Context(), 1)))
	for _, kind := range []string{"lock", "semaphore"} {
		s.Do("SET", "headwaiter:"+kind+":{broken}", "x")
	}
	holds(t, c, "half")
	s.Do("SET", "headwaiter:semaphore:{half}", "x")
	closed := "redis://127.0.0.1:1"
	for _, x := range []struct {
		args string // with the server at its end
		code int
		says string
	}{
		{"COMMAND redis://:guess@" + s.Addr(), exitUnavailable, "cannot use Redis at redis://:xxxxx@" + s.Addr() + ": connect to"},
		{"COMMAND redis://" + s.Addr(), exitUnavailable, "set a password"},
		{"COMMAND " + closed, exitUnavailable, "connection refused"},
		{"COMMAND http://x", exitUsage, `cannot use "http://x" as the address of a Redis`},
		{"COMMAND --prefix {} " + good, exitUsage, "prefix"},
		{"COMMAND --nothing " + good, exitUsage, "unknown flag: --nothing"},
		{"ls [a " + good, exitUsage, `list "[a": invalid argument`},
		{"ls a b " + good, exitUsage, "2 patterns"},
		{"ls --limit 0 " + good, exitUsage, "--limit 0"},
		{"inspect " + good, exitUsage, "0 names, need one"},
		{"inspect nobody " + good, exitNoSuch, `no lock "nobody" at redis://:xxxxx@` + s.Addr()},
		{"inspect broken " + good, exitUnavailable, "WRONGTYPE"},
		{"release --force broken --yes " + good, exitUnavailable, "WRONGTYPE"},
		{"release --force half --yes " + good, exitUsage, `"half" is the name of several`},
		{"inspect both --kind latch " + good, exitNoSuch, `no latch "both"`},
		// Before anybody is dialled.
		{"COMMAND --kind mutex " + closed, exitUsage, `"mutex" for "--kind" flag: there is lock, reentrant`},
		{"inspect " + strings.Repeat("x", 600) + " " + good, exitUsage, "too large"},
		{"watch nobody " + good, exitNoSuch, `no lock "nobody"`},
		{"watch both " + good, exitUsage, `"both" is the name of several: say --kind lock or --kind semaphore`},
		{"watch both --interval 1ms " + good, exitUsage, "--interval 1ms"},
		{"release both --yes " + good, exitUsage, "say --force"},
		{"release --force both " + good, exitUsage, "there is no terminal to ask on: say --yes"},
		{"release --force nobody --yes " + good, exitNoSuch, `no lock "nobody"`},
		{"release --force both --yes " + good, exitUsage, `"both" is the name of several`},
		{"resize both " + good, exitUsage, "1 arguments, need a name and a number"},
		{"resize both 0 " + good, exitUsage, `"0" permits: must be a number from 1 to 9007199254740991`},
		{"resize nobody 3 " + good, exitNoSuch, `no semaphore "nobody"`},
		{"deadlocks --for -1s " + good, exitUsage, "--for -1s"},
		{"deadlocks x " + good, exitUsage, `unknown command "x"`},
	} {
		for _, command := range []string{"ls", "inspect both", "watch both", "release --force --yes both", "deadlocks"} {
			text, all := strings.CutPrefix(x.args, "COMMAND ")
			if all {
				text = command + " " + text
			}
			if command == "deadlocks" && strings.Contains(text, "--kind") {
				continue // It looks at all kinds.
			}
			args := strings.Fields(text)
			url := args[len(args)-1]
			run := start(t, append(args[:len(args)-1], "--redis", url)...)
			assert.Empty(t, run.rest(run.stdout), text)
			complaint := run.rest(run.stderr)
			if assert.Len(t, complaint, 1, text) {
				assert.Contains(t, complaint[0], x.says, text)
				assert.NotContains(t, complaint[0], "guess")
			}
			assert.Equal(t, x.code, run.code(), text)
			if !all {
				break
			}
		}
	}
}

func TestNamesAreCompletedFromTheServer(t *testing.T) {
	s := kit.Start(t)
	c := kit.Dial(t, s)
	for _, name := range []string{"orders:1", "orders:2", "or*", "bill", "with space", "$(touch x)"} {
		holds(t, c, name)
	}
	offered := func(args ...string) []string {
		lines := strings.Split(completed(t, s, args...), "\n")
		require.Equal(t, ":4", lines[len(lines)-1], "the shell offers no files")
		slices.Sort(lines)
		return lines[1:]
	}
	for _, command := range []string{"inspect", "watch", "release", "resize", "ls", "exec"} {
		require.Equal(t, []string{"orders:1", "orders:2"}, offered(command, "orders:"), command)
	}
	require.Equal(t, []string{"bill", "or*", "orders:1", "orders:2"}, offered("inspect", ""))
	require.Equal(t, []string{"or*"}, offered("inspect", "or*"))
	require.Empty(t, offered("inspect", "bill", "or"))
	require.Contains(t, offered("inspect", "--kind", ""), "semaphore")
	holds(t, kit.Dial(t, s, func(o *headwaiter.Options) { o.Prefix = "shop" }), "till")
	require.Equal(t, []string{"till"}, offered("exec", "--prefix", "shop", ""))

	for i := range 2 * completions {
		holds(t, c, "many"+strconv.Itoa(i))
	}
	require.Len(t, offered("inspect", "many"), completions)
	s.Stop()
	defer s.Cont()
	begun := time.Now()
	require.Empty(t, offered("inspect", ""))
	require.Less(t, time.Since(begun), 4*completionTime, "2 s is what a server gets otherwise")
}
