package chaos

import (
	"context"
	_ "embed"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/redlock"
	"github.com/headwaiter/headwaiter/waitqueue"
)

//go:embed warp/warp.c
var warpSource []byte

// A warp sets the clocks of a process of this machine, and of no other.
type warp struct {
	program, file string
}

// newWarp compiles the program that does it, for which a C compiler is needed: cc, or what CC names.
func newWarp(t testing.TB) *warp {
	t.Helper()
	dir := t.TempDir()
	w := &warp{filepath.Join(dir, "warp"), filepath.Join(dir, "shift")}
	source := filepath.Join(dir, "warp.c")
	require.NoError(t, os.WriteFile(source, warpSource, 0o600))
	compiler := os.Getenv("CC")
	if compiler == "" {
		compiler = "cc"
	}
	out, err := exec.Command(compiler, "-O2", "-o", w.program, source).CombinedOutput()
	require.NoError(t, err, "a C compiler is needed to set the clock of a process: %s", out)
	w.set(t, 0, 0)
	return w
}

// set says how far the wall clock is ahead, and the clock that goes on in a suspended machine.
func (w *warp) set(t testing.TB, wall, boot time.Duration) {
	t.Helper()
	file := kit.Got(os.OpenFile(w.file, os.O_WRONLY|os.O_CREATE, 0o600))(t) // In place: it is mapped.
	defer file.Close()
	text := binary.NativeEndian.AppendUint64(nil, uint64(wall.Microseconds()))
	text = binary.NativeEndian.AppendUint64(text, uint64(boot.Microseconds()))
	require.NoError(t, kit.Err(file.WriteAt(text, 0)))
}

// clocked starts a process whose clocks can be set, which holds one lock and waits clockedWait in vain for another.
func (r *run) clocked(w *warp, lasts time.Duration) *process {
	r.Helper()
	return newProcess(r, plan{
		Role: clocked, Addrs: []string{r.server.Addr()}, Names: []string{"clocked", "clocked:busy"}, Lease: lasts,
		Under: []string{w.program, w.file},
	})
}

// warped are the rows that need a warp.
var warped = []fault{
	{"clients/C9", "the clock of a client jumps", under(theClockOfAClientJumps), []string{"conn.TestTheBoundsOfTheServersClockHold"}},
	{"clients/C10", "the machine of a client is suspended", under(theMachineOfAClientIsSuspended), []string{"keeper.TestTheTimeThatTheMachineSleptCounts", "timers.TestAfterASuspensionEverythingIsLookedAt"}},
	{"clients/C10", "a machine is suspended while it waits for a Redlock", by(aMachineIsSuspendedWhileItWaitsForARedlock), []string{"redlock.TestWhatWasSleptBeforeAVoteDoesNotShortenTheHold"}},
}

func theClockOfAClientJumps(t *testing.T, r *run) {
	w, busy := newWarp(t), granted(t, fairlock.New(r.dial(), "clocked:busy"))
	const lasts = 2 * time.Second
	a := r.clocked(w, lasts)
	a.line(t, "K")
	first := r.until("clocked")
	for i, jump := range []time.Duration{time.Hour, -time.Hour, 20 * 365 * 24 * time.Hour, -24 * time.Hour} {
		w.set(t, jump, 0)
		since := r.until("clocked")
		kit.Eventually(t, "a renewal after the jump", func() bool { return r.until("clocked") > since })
		if i == 0 { // The process sees the jump: else the case shows nothing.
			ahead := a.wall(t)
			require.InDelta(t, jump.Hours(), ahead.Hours(), 0.1)
		}
	}
	kit.Eventually(t, "renewals over two leases", func() bool { return r.until("clocked") > first+(2*lasts).Microseconds() })
	wait := a.line(t, "T")
	require.Contains(t, wait[0], context.DeadlineExceeded.Error())
	waited := kit.Got(time.ParseDuration(wait[1]))(t)
	require.GreaterOrEqual(t, waited, clockedWait, "a wait became shorter")
	require.Less(t, waited, clockedWait+5*time.Second, "a wait became longer")
	told, refusals := a.told()
	require.Empty(t, told, "a hold was lost")
	require.Empty(t, refusals)
	info := kit.Got(fairlock.New(r.dial(), "clocked").Inspect(t.Context()))(t)
	require.Less(t, info.Holder.Left, lasts+time.Millisecond, "a lease became longer")
	a.kill()
	kit.Release(t, busy)
}

// The server's clock goes on while a machine is suspended, and the one by which Go measures does not.
func theMachineOfAClientIsSuspended(t *testing.T, r *run) {
	busy := granted(t, fairlock.New(r.dial(), "clocked:busy"))
	m := fairlock.New(r.dial(), "clocked")
	for range either(1, 5) {
		w := newWarp(t)
		a := r.clocked(w, 10*time.Second)
		a.line(t, "K")
		next := queued(t, m, 1)
		w.set(t, time.Hour, time.Hour)
		since := time.Now()
		kit.Eventually(t, "the holder to see that its lease is long over", func() bool {
			told, _ := a.told()
			return len(told) == 1
		})
		told, _ := a.told()
		t.Logf("seen after %v: %s", time.Since(since), told[0].How)
		require.Less(t, time.Since(since), 3*time.Second, "it waited for its timers")
		require.Equal(t, "expired", told[0].How)
		l := next.Value(t)
		require.Less(t, time.Since(since), 5*time.Second, "what was lost was not given back")
		require.Greater(t, l.Token(), told[0].Token)
		kit.Release(t, l)
		a.kill()
	}
	kit.Release(t, busy)
}

// A vote counts from when it was asked for, whatever the machine has slept since the call began.
func aMachineIsSuspendedWhileItWaitsForARedlock(t *testing.T) {
	server := redistest.Start(t)
	client := kit.Dial(t, server)
	busy := kit.Lock(t.Context(), redlock.New([]*headwaiter.Client{client}, "dozer", redlock.WithoutSafeRestart()).Lock).Value(t)
	w := newWarp(t)
	a := newProcess(t, plan{Role: dozer, Addrs: []string{server.Addr()}, Names: []string{"dozer"}, Under: []string{w.program, w.file}})
	q := (*waitqueue.Client)(client).Queue(lua.Redlock, "dozer", waitqueue.Terms{Lease: lease.DefaultLease})
	kit.Waiting(t, 1, func(ctx context.Context) (lease.Info, error) { return q.Inspect(ctx) })
	w.set(t, time.Hour, time.Hour)
	kit.Release(t, busy)
	require.Equal(t, []string{"<nil>"}, a.line(t, "D"), "a hold that ended as it began")
}

// wall asks the process how far its wall clock is ahead.
func (c *process) wall(t testing.TB) time.Duration {
	t.Helper()
	return kit.Got(time.ParseDuration(c.line(t, "C")[0]))(t)
}
