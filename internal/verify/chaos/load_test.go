package chaos

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/conformance"
	"github.com/headwaiter/headwaiter/doctor"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/crowd"
	"github.com/headwaiter/headwaiter/internal/testenv/evidence"
	"github.com/headwaiter/headwaiter/internal/testenv/family"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/verify/check"
	"github.com/headwaiter/headwaiter/internal/verify/judge"
)

// historiesOf makes histories of holds. Who never saw that it held was certain at no moment.
func historiesOf(holds []hold, forgot []judge.Span) []*check.History {
	var all []judge.Hold
	var workers []string
	for _, h := range holds {
		if h.From == 0 {
			h.From, h.To = h.Got, h.Got
		}
		x := judge.Hold{
			Name: h.Name, Permits: int64(h.Weight), Token: h.Token, Called: time.Duration(h.Called), Got: time.Duration(h.From),
			Releasing: time.Duration(h.To), Released: judge.Never, Deadline: time.Duration(max(h.Deadline, h.To)), Lost: judge.Never,
		}
		if h.How == released {
			x.Released = time.Duration(h.Returned)
		}
		all, workers = append(all, x), append(workers, h.Worker)
	}
	return check.Collect(all, workers, limitOf, forgot)
}

// process is one process of a load.
type process struct {
	t     testing.TB
	plan  plan
	child crowd.Child
	ended chan struct{} // closed when it has ended and all it told is here

	mu      sync.Mutex // guards the fields below
	dead    bool
	workers map[string]int64 // when each held for the last time
	said    said
}

// newProcess starts one; it ends with the test.
func newProcess(t testing.TB, p plan) *process {
	t.Helper()
	text, fork := kit.Got(json.Marshal(p))(t), crowd.Fork
	if p.Index%2 == 1 {
		fork = crowd.ForkOther
	}
	c := &process{t: t, plan: p, child: fork(t, planVariable, string(text), p.Under...), ended: make(chan struct{}), workers: map[string]int64{}}
	go c.follow()
	t.Cleanup(c.end)
	return c
}

// follow takes in what the process tells until its end.
func (c *process) follow() {
	defer close(c.ended)
	for c.child.Lines.Scan() {
		var x said
		if err := json.Unmarshal(c.child.Lines.Bytes(), &x); err != nil {
			x.Refusals = []refusal{{At: evidence.Now(), Text: "a line that makes no sense: " + c.child.Lines.Text()}}
		}
		c.mu.Lock()
		for _, h := range x.Holds {
			c.workers[h.Worker] = max(c.workers[h.Worker], h.From)
		}
		c.said.add(x)
		c.mu.Unlock()
	}
	// How it ended is for the test to judge.
	_ = c.child.Cmd.Wait()
}

// kill ends it with SIGKILL, also if it is stopped, and returns when it is gone.
func (c *process) kill() {
	select {
	case <-c.ended:
	default:
		evidence.Fault(c.t, "process killed", 1)
	}
	c.end()
}

func (c *process) end() {
	c.mu.Lock()
	c.dead = true
	c.mu.Unlock()
	_ = c.child.Cmd.Process.Kill()
	<-c.ended
}

// signal sends it SIGSTOP or SIGCONT.
func (c *process) signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	require.NoError(t, c.child.Cmd.Process.Signal(s))
	if s == syscall.SIGSTOP {
		evidence.Fault(t, "process stopped", 1)
	}
}

// told returns what it has told so far.
func (c *process) told() (holds []hold, refusals []refusal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clip(c.said.Holds), slices.Clip(c.said.Refusals)
}

// alive reports whether it was not killed.
func (c *process) alive() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.dead
}

// inSince returns how many of its workers have held since a time, and which of those that are known have not.
func (c *process) inSince(at int64) (n int, missing []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for w, last := range c.workers {
		if last > at {
			n++
		} else {
			missing = append(missing, w)
		}
	}
	return n, missing
}

// line waits for a line of a kind that the process tells, and returns what else is in it.
func (c *process) line(t testing.TB, kind string) []string {
	t.Helper()
	var found []string
	kit.Eventually(t, "a line "+kind+" of a process", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		found = c.said.Lines[kind]
		return found != nil || len(c.said.Refusals) > 0
	})
	_, refusals := c.told()
	require.Empty(t, refusals)
	return found
}

// workersOf is how many workers a plan has.
func (p plan) workersOf() int { return p.Clients * len(p.Names) * len(p.kinds()) }

// finish makes it end in good order, and returns what is left.
func (c *process) finish(t testing.TB) remainder {
	t.Helper()
	require.NoError(t, kit.Err(io.WriteString(c.child.Input, "stop\n")))
	kit.Eventually(t, "a process to tell what is left of it", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.said.Left != nil
	})
	return *c.said.Left
}

// load is the processes that work while a fault happens.
type load []*process

// newLoad starts n processes.
func newLoad(t testing.TB, n int, p plan) load {
	t.Helper()
	var l load
	for i := range n {
		p.Index = i
		l = append(l, newProcess(t, p))
	}
	return l
}

// count is how many holds there were so far.
func (l load) count() int {
	n := 0
	for _, c := range l {
		holds, _ := c.told()
		n += len(holds)
	}
	return n
}

// allIn waits until every worker that lives has held since a time.
func (l load) allIn(t testing.TB, at int64, limit time.Duration) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(limit); ; <-tick.C {
		var missing []string
		for _, c := range l {
			if !c.alive() {
				continue
			}
			n, absent := c.inSince(at)
			if n < c.plan.workersOf() {
				missing = append(missing, fmt.Sprintf("%d of process %d, such as %v", c.plan.workersOf()-n, c.plan.Index, absent))
			}
		}
		if len(missing) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not all workers got in within %v: %v; refused: %v", limit, missing, l.lastRefusals())
		}
	}
}

func (l load) lastRefusals() []refusal {
	var all []refusal
	for _, c := range l {
		_, refusals := c.told()
		all = append(all, refusals[max(0, len(refusals)-3):]...)
	}
	return all
}

// Every primitive, on every deployment, in every version of the protocol that it speaks; in the short form on some.
func conformsEverywhere(t *testing.T) {
	for _, d := range redistest.Deployments() {
		if testing.Short() && !slices.Contains([]string{"single", "RESP2 only", "Sentinel", "cluster"}, d.Name) {
			continue
		}
		kit.Parallel(t, d.Name, func(t *testing.T) {
			s := d.Start(t)
			versions := map[string]bool{"RESP2": true}
			if d.RESP3 {
				versions["RESP3"] = false
			}
			for version, always := range versions {
				t.Run(version, func(t *testing.T) {
					option := func() rueidis.ClientOption {
						o := s.Option()
						o.AlwaysRESP2 = always
						return o
					}
					conform(t, d, option, family.Patient)
				})
			}
			if d.Cluster {
				t.Run("without subscriptions", func(t *testing.T) { conform(t, d, s.Option, family.Polling) })
			}
		})
	}
}

// conform runs all cases. Where the channels of a cluster are not sharded, or nothing is subscribed to, nobody can count
// who listens, so a latch does not tell how many wait.
func conform(t *testing.T, d redistest.Deployment, option func() rueidis.ClientOption, change func(*headwaiter.Options)) {
	t.Helper()
	engine := family.Engine(option, change)
	var o headwaiter.Options
	change(&o)
	if d.Cluster && !d.Sharded || o.WithoutSubscribe {
		engine = family.Uncounted(engine)
	}
	require.Empty(t, conformance.Run(t, engine))
}

// A server that knows no RESP3 is found out, without being told.
func conformsWithoutRESP3(t *testing.T) {
	s := redistest.Start(t, redistest.WithoutRESP3())
	require.Empty(t, conformance.Run(t, family.Engine(s.Option, family.Patient)))
}

var (
	line  = regexp.MustCompile(`(?m)^ACL SETUSER headwaiter on >secret (.*)$`)
	added = regexp.MustCompile("(?m)^\\| ([^|]+) \\| `(\\+[^`]+)` \\|$")
)

// rights reads the ACL line of the page, with what it adds for some uses.
func rights(t *testing.T, uses ...string) []string {
	t.Helper()
	page := kit.Got(os.ReadFile("../../../docs/deploy.md"))(t)
	found := line.FindStringSubmatch(string(page))
	require.NotNil(t, found)
	rules := strings.Fields(found[1])
	more := map[string]string{}
	for _, a := range added.FindAllStringSubmatch(strings.ReplaceAll(string(page), `\|`, "!"), -1) {
		more[a[1]] = strings.ReplaceAll(a[2], "!", "|")
	}
	for _, use := range uses {
		require.Contains(t, more, use, "the page does not say what it adds")
		rules = append(rules, strings.Fields(more[use])...)
	}
	return rules
}

// The rights that the page names are enough on every deployment, and nothing else is asked for.
func conformsWithTheRightsOfThePage(t *testing.T) {
	for _, d := range redistest.Deployments() {
		kit.Parallel(t, d.Name, func(t *testing.T) {
			var uses []string
			switch {
			case d.Cluster:
				uses = append(uses, ofACluster())
			case d.Name == "Sentinel":
				uses = append(uses, "Sentinel")
			}
			s := d.Start(t, redistest.WithUser("headwaiter", "secret", rights(t, uses...)...))
			conform(t, d, s.Option, family.Patient)
		})
	}
}

// ofACluster is the row of the page for a cluster of the redis-server.
func ofACluster() string {
	if redistest.Before7() {
		return "a cluster before Redis 7"
	}
	return "a cluster"
}

// Each right that the page adds is needed: without it Dial says so, and names it.
func eachRightOfAClusterIsNeeded(t *testing.T) {
	all := rights(t, ofACluster())
	s := redistest.Cluster(t, redistest.WithUser("headwaiter", "secret", all...))
	needed := []string{"spublish", "ssubscribe", "pubsub|shardnumsub", "cluster|slots", "asking"}
	if redistest.Before7() {
		needed = []string{"cluster"} // A right to a subcommand cannot be taken away by itself.
	}
	for _, right := range needed {
		require.Contains(t, strings.Join(all, " "), "+"+right)
		for _, n := range s.Nodes() {
			n.Do("ACL", "SETUSER", "headwaiter", "-"+right)
		}
		_, err := headwaiter.Dial(headwaiter.Options{Redis: s.Option()})
		require.Error(t, err, right)
		require.Contains(t, strings.ToLower(err.Error()), "+"+right, "it does not say what is missing")
		for _, n := range s.Nodes() {
			n.Do(append([]string{"ACL", "SETUSER", "headwaiter"}, all...)...)
		}
	}
	require.NoError(t, kit.Got(headwaiter.Dial(headwaiter.Options{Redis: s.Option()}))(t).Shutdown(t.Context()))
}

// Where channels are plain the subscribers at one of several nodes are not all, so nobody is skipped for having none.
func onlyWhoCanBeCountedIsCounted(t *testing.T) {
	for _, d := range redistest.Deployments() {
		kit.Parallel(t, d.Name, func(t *testing.T) {
			c := kit.Got(headwaiter.Dial(headwaiter.Options{Redis: d.Start(t).Option()}))(t)
			require.Equal(t, !d.Cluster || d.Sharded, kit.Got(doctor.Diagnose(t.Context(), c))(t).Skips)
			require.NoError(t, c.Shutdown(t.Context()))
		})
	}
}

// The two options that ask for more than the protocol need what the page adds for them, and say so without it.
func theRightsOfTheOptions(t *testing.T) {
	for use, option := range map[string]fairlock.Option{
		"`WithReplicas`": headwaiter.WithReplicas(1, time.Second),
		"`WithSafeRestart`, `redlock`, and to notice [two masters behind one address](#two-masters-behind-one-address)": headwaiter.WithSafeRestart(),
	} {
		kit.Parallel(t, use, func(t *testing.T) {
			user := redistest.WithUser("headwaiter", "secret", rights(t, use)...)
			s := redistest.Replicated(t, 1, user).Master()
			old(t, s, restartLease)
			m := fairlock.New(kit.Dial(t, s), kit.Name(t), headwaiter.WithLease(restartLease), option)
			kit.Release(t, kit.Got(m.Lock(t.Context()))(t))
			s.Do(append([]string{"ACL", "SETUSER", "headwaiter", "reset", "on", ">secret"}, rights(t)...)...)
			_, err := fairlock.New(kit.Dial(t, s), kit.Name(t), headwaiter.WithLease(restartLease), option).Lock(t.Context())
			kit.Fails(t, err, "the user lacks a right", "docs/deploy.md")
		})
	}
}
