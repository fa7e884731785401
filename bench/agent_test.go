package bench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/must"
)

// agentVariable makes the test's program an agent on a server, of a lock that is broken where a ! is in front.
const agentVariable = "HEADWAITER_BENCH_TEST_AGENT"

// agentLease outlasts a scene in which nobody dies.
const agentLease = 5 * time.Second

func TestMain(m *testing.M) {
	addr := os.Getenv(agentVariable)
	if addr == "" {
		os.Exit(m.Run())
	}
	plain, broken := strings.CutPrefix(addr, "!")
	d := setnx{redis: rueidis.ClientOption{InitAddress: []string{plain}}, broken: broken, lease: agentLease}
	if err := ServeAgent(context.Background(), d, os.Stdin, os.Stdout); err != nil {
		os.Exit(1)
	}
}

// elsewhere is the reference driver in processes of its own.
func elsewhere(redis rueidis.ClientOption, broken bool) Contender {
	addr := redis.InitAddress[0]
	if broken {
		addr = "!" + addr
	}
	return Contender{
		Name: "setnx", OnRedis: true, Lease: agentLease, Driver: setnx{redis: redis, lease: agentLease},
		Command: func() *exec.Cmd {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), agentVariable+"="+addr)
			return cmd
		},
		Queue: func(string) []string { return []string{"DBSIZE"} },
		Keys:  func(name string) []string { return []string{name} },
	}
}

func TestClientsInProcessesOfTheirOwnAreMeasuredAlike(t *testing.T) {
	redis := startRedisFor(t)
	o := must.Got(newObserver(redis))(t)
	defer o.close()
	c, err := newCrew(t.Context(), &runner{observer: o}, elsewhere(redis, false), Work{ID: "W4", Clients: 3, Workers: 1, Processes: 3}, "test")
	require.NoError(t, err)
	f := must.Got(c.measure(t.Context(), 100*time.Millisecond))(t)
	require.False(t, f.Cycles == 0 || f.Server.Scripts < 0.5 || f.CPU <= 0 || f.Overlaps+f.Backward > 0, "%+v", f)
	require.NoError(t, c.close(t.Context()))
}

func TestALockThatIsNoneIsConvictedByTheRecordsOfOthers(t *testing.T) {
	redis := startRedisFor(t)
	report, err := Run(t.Context(), Config{
		Contenders: []Contender{elsewhere(redis, true)}, Redis: redis, Rounds: 1, Slice: 100 * time.Millisecond, Log: t.Logf,
		Works: []Work{{ID: "W4", Clients: 3, Workers: 1, Processes: 3, Hold: pause}},
	})
	require.NoError(t, err)
	require.ErrorContains(t, report.Fault(), "overlapped")
}

// A SET NX is gone after its lease, whoever waits tries every millisecond, and nobody is in a queue.
func TestScenesArePlayed(t *testing.T) {
	redis := startRedisFor(t)
	c := elsewhere(redis, false)
	c.Queue = nil
	report, err := Run(t.Context(), Config{
		Contenders: []Contender{c}, Redis: redis, Rounds: 1, Slice: time.Millisecond, Log: t.Logf,
		Scenes: []Scene{
			{Kind: DeadWaiters, Waiters: 2, Bound: 20 * time.Second, Times: 1},
			{Kind: GivesUp, Bound: 20 * time.Second, Times: 2},
			{Kind: DeadHolder, Bound: 20 * time.Second, Times: 1},
			{Kind: Deafened, Bound: 20 * time.Second, Times: 1},
		},
	})
	require.NoError(t, err)
	require.Len(t, report.Recoveries, 3, "the last is not played, as nothing listens")
	require.Empty(t, report.Missing)
	for _, r := range report.Recoveries {
		require.False(t, !r.Within || r.Worst <= 0 && r.Kind != DeadHolder, "%+v", r)
	}
}

// unready is what becomes of a scene whose bound ends before it has come to what it is about.
func unready(t *testing.T, c Contender, redis rueidis.ClientOption, s Scene) {
	t.Helper()
	o := must.Got(newObserver(redis))(t)
	defer o.close()
	r := &runner{Config: Config{Contenders: []Contender{c}}, observer: o, report: &Report{}, prefix: "test"}
	require.NoError(t, r.scene(t.Context(), s))
	require.Empty(t, r.report.Recoveries)
	missing := r.report.Missing
	require.Len(t, missing, 1)
	require.Equal(t, s.String(), missing[0].What)
	require.Contains(t, missing[0].Reason, errUnready.Error())
}

// Only the call that a scene is about can exceed its bound. Whatever held up those before it, the lock is not accused.
func TestASlowStartIsNoVerdictOnTheLock(t *testing.T) {
	redis := startRedisFor(t)
	client := must.Got(rueidis.NewClient(redis))(t)
	defer client.Close()
	// The first holder has to wait.
	taken := client.B().Set().Key("test:setnx:gives-up:0:0").Value("somebody").Build()
	require.NoError(t, client.Do(t.Context(), taken).Error())
	unready(t, elsewhere(redis, false), redis, Scene{Kind: GivesUp, Bound: 100 * time.Millisecond, Times: 3})
}

// A scene is played as often as it wants, but only once when the time of the run is over.
func TestARunWhoseTimeIsOverTriesOnce(t *testing.T) {
	redis := startRedisFor(t)
	for within, want := range map[time.Duration]int{0: 3, time.Nanosecond: 1, time.Hour: 3} {
		r := &runner{Config: Config{Contenders: []Contender{elsewhere(redis, false)}, Within: within}, begun: time.Now(), report: &Report{}, prefix: "test"}
		require.NoError(t, r.scene(t.Context(), Scene{Kind: GivesUp, Bound: 20 * time.Second, Times: 3}))
		require.Len(t, r.report.Recoveries, 1)
		require.Equal(t, want, r.report.Recoveries[0].Times, within)
	}
}

func TestWaitersThatAreNotInTheQueueAreNotKilled(t *testing.T) {
	redis := startRedisFor(t)
	c := elsewhere(redis, false)
	c.Queue = func(string) []string { return []string{"LLEN", "nobody"} }
	unready(t, c, redis, Scene{Kind: DeadWaiters, Waiters: 2, Bound: 300 * time.Millisecond, Times: 1})
}

// Who does not hold within the bound is told of, and no more tries are made.
func TestABoundThatIsExceededIsTold(t *testing.T) {
	c := elsewhere(startRedisFor(t), false)
	c.Lease = 0 // Then a dead holder's lock should be free at once, and is not.
	r := &runner{Config: Config{Contenders: []Contender{c}}, report: &Report{}, prefix: "test"}
	require.NoError(t, r.scene(t.Context(), Scene{Kind: DeadHolder, Bound: 100 * time.Millisecond, Times: 3}))
	found := r.report.Recoveries
	require.False(t, len(found) != 1 || found[0].Within || found[0].Worst != 100_000, "%+v, want the bound of 100 ms", found)
}

// An agent whose clients cannot be made says why, and one that has ended is an error, not a wait.
func TestAnAgentThatFailsIsAnError(t *testing.T) {
	c := elsewhere(rueidis.ClientOption{InitAddress: []string{"127.0.0.1:1"}}, false)
	_, err := newRemoteBand(t.Context(), &idle{}, c, Work{ID: "W4", Clients: 2, Workers: 1}, "test", 2)
	require.ErrorContains(t, err, "refused")
	a := must.Got(StartAgent(t.Context(), c))(t)
	a.Kill()
	require.Error(t, must.Err(a.do(t.Context(), "memory")), "an agent that was killed answers")
}

// lasting makes holds of the sham that tell until when they last.
type lasting struct {
	sham
	lease time.Duration
	lost  *atomic.Int64
}

func (d lasting) NewClient(context.Context) (Client, error) { return d, nil }
func (d lasting) Mutex(string) Mutex                        { s := newSham(); return lasting{s, d.lease, d.lost} }

func (d lasting) Lock(ctx context.Context) (Hold, error) {
	h, err := d.sham.Lock(ctx)
	if err != nil {
		return nil, err
	}
	held, cancel := context.WithCancel(context.Background())
	if d.lost.Add(-1) == 0 {
		cancel()
	}
	return lastingHold{h, held, cancel, time.Now().Add(d.lease)}, nil
}

type lastingHold struct {
	Hold
	ctx context.Context
	end context.CancelFunc
	by  time.Time
}

func (h lastingHold) Deadline() time.Time      { return h.by }
func (h lastingHold) Context() context.Context { return h.ctx }

func (h lastingHold) Release(ctx context.Context) error {
	h.end()
	return h.Hold.Release(ctx)
}

func TestManyLeasesAreWatched(t *testing.T) {
	redis := startRedisFor(t)
	o := must.Got(newObserver(redis))(t)
	defer o.close()
	d := lasting{newSham(), time.Minute, &atomic.Int64{}}
	d.lost.Store(3) // The third hold is lost.
	c := Contender{Name: "sham", Driver: d, OnRedis: true, Lease: 60 * time.Second}
	r := &runner{Config: Config{Contenders: []Contender{c}}, observer: o, report: &Report{}}
	require.NoError(t, r.holds(t.Context(), Keeping{Leases: 50, For: 200 * time.Millisecond, Load: 100 * time.Millisecond}))
	require.Len(t, r.report.Holds, 1, r.report.Missing)
	h := r.report.Holds[0]
	require.False(t, h.Lost != 1 || h.PerSecond <= 0 || h.Left > 60_000 || h.Left < 50_000 || h.Due != 0.5, "%+v", h)
}

// What takes long to warm up does its next work in the same process, with other clients; anything else ends.
func TestAnAgentThatIsWarmIsKept(t *testing.T) {
	c := elsewhere(startRedisFor(t), false)
	r := &runner{idle: idle{agents: map[string][]*Agent{}}}
	defer r.idle.end()
	w := Work{ID: "W4", Clients: 2, Workers: 1, Processes: 2}
	processes := func(warm time.Duration) (pids []int) {
		c.Warm = warm
		for i := range 2 {
			crew := must.Got(newCrew(t.Context(), r, c, w, fmt.Sprint("test:", i)))(t)
			if f, err := crew.measure(t.Context(), 50*time.Millisecond); err != nil || f.Cycles == 0 {
				t.Errorf("%d cycles: %v", f.Cycles, err)
			}
			for _, a := range crew.band.(*remoteBand).agents {
				pids = append(pids, a.cmd.Process.Pid)
			}
			require.NoError(t, crew.close(t.Context()))
		}
		slices.Sort(pids)
		return slices.Compact(pids)
	}
	require.Len(t, processes(time.Second), 2)
	r.idle.end()
	require.Len(t, processes(0), 4)
}
