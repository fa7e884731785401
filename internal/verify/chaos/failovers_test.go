package chaos

import (
	"fmt"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/evidence"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

// rounds is how often a test shakes a deployment in each way: DEPLOY_ROUNDS, or a few times.
func rounds(few int) int {
	if n, err := strconv.Atoi(os.Getenv("DEPLOY_ROUNDS")); err == nil && n > 0 {
		return n
	}
	return few
}

// failover is one that a test made: from when on another master may have been there, and until when the old one may
// not have known that it is none any more.
type failover struct {
	how           string
	old, new      string // addresses
	began, agreed time.Time
	took          time.Duration // until everybody had held again
}

// A shaker makes failovers of a deployment under load, of several kinds in turn. replace tells who led, in their order.
type shaker struct {
	what     string
	replicas int // of a master: all must know of a hold where that is asked for
	names    []string
	start    func(t *testing.T) (option func(client int) rueidis.ClientOption, replace func(t *testing.T, tr *traffic, how string) (led []string))
	kinds    []string
}

// takeover is a failover that nobody agrees to: the old master may go on by itself, and two may hold.
const takeover = "TAKEOVER"

const killed = "master killed"

var shakers = []shaker{
	{"Sentinel", 2, []string{"a", "b", lasting}, sentinels, []string{"asked for", killed}},
	// Names of all three shards: what one does must not hold up the others.
	{"cluster", 1, []string{"a", "b", "c", "d"}, shards, []string{"with consent", "FORCE", takeover, killed}},
	{"by hand", 1, []string{"a", lasting}, halves, []string{"master cut off with half of the clients"}},
}

func sentinels(t *testing.T) (func(int) rueidis.ClientOption, func(*testing.T, *traffic, string) (led []string)) {
	s := redistest.Sentinel(t)
	replace := func(t *testing.T, tr *traffic, how string) []string {
		old := s.Master()
		if how != killed {
			return []string{old.Addr(), s.Failover().Addr()}
		}
		next := tr.kill(t, old, func() string { return s.Master().Addr() })
		s.Settle()
		return []string{old.Addr(), next, s.Master().Addr()}
	}
	return func(int) rueidis.ClientOption { return s.Option() }, replace
}

// kill kills a master, starts it again once it is replaced, and tells by whom. On a machine that stalls for a second that
// one may lose to the one that is back, before all agree.
func (tr *traffic) kill(t *testing.T, master interface {
	Addr() string
	Kill()
	Restart()
}, leads func() string) (next string) {
	t.Helper()
	master.Kill()
	kit.Eventually(t, "another master", func() bool {
		next = leads()
		return next != "" && next != master.Addr()
	})
	if tr.replicas == 0 { // Else a replica is missing until it is back.
		tr.flows(t)
	}
	master.Restart()
	return next
}

func shards(t *testing.T) (func(int) rueidis.ClientOption, func(*testing.T, *traffic, string) (led []string)) {
	s := redistest.Cluster(t)
	t.Cleanup(func() {
		for _, n := range s.Nodes() {
			if t.Failed() && n.Running() {
				t.Logf("%s sees\n%s%s", n.Addr(), n.Text("CLUSTER", "INFO"), n.Text("CLUSTER", "NODES"))
			}
		}
	})
	const key = "headwaiter:lock:{a}"
	replace := func(t *testing.T, tr *traffic, how string) []string {
		old := s.MasterOf(key)
		switch how {
		case killed:
			next := tr.kill(t, old, func() string {
				if master := s.MasterOf(key); master != nil {
					return master.Addr()
				}
				return ""
			})
			s.Settle()
			return []string{old.Addr(), next, s.MasterOf(key).Addr()}
		case "with consent":
			return []string{old.Addr(), s.Failover(old).Addr()}
		default:
			return []string{old.Addr(), s.Failover(old, how).Addr()}
		}
	}
	return func(int) rueidis.ClientOption { return s.Option() }, replace
}

// halves are a master, its replica and a spare server. A failover cuts the master and the odd clients off from the
// others: the replica is promoted and the spare follows it, while the old master knows nothing of that.
func halves(t *testing.T) (func(int) rueidis.ClientOption, func(*testing.T, *traffic, string) (led []string)) {
	set := redistest.Replicated(t, 2)
	servers := append([]*redistest.Server{set.Master()}, set.Replicas()...)
	nobody := func(s *redistest.Server) { s.Do("REPLICAOF", "127.0.0.1", "1") }
	follow := func(s, master *redistest.Server) {
		_, port, err := net.SplitHostPort(master.Addr())
		require.NoError(t, err)
		s.Do("REPLICAOF", "127.0.0.1", port)
		kit.Eventually(t, "a replica", func() bool {
			return strings.Contains(s.Text("INFO", "replication"), "master_link_status:up")
		})
	}
	set.Cut(servers[2])
	ways := [2]*way{{}, {}}
	for _, w := range ways {
		w.lead(servers[0].Addr())
	}
	option := func(client int) rueidis.ClientOption {
		o := set.Option()
		o.DialCtxFn = ways[client%2].dial
		return o
	}
	replace := func(t *testing.T, tr *traffic, _ string) []string {
		old, next, spare := servers[0], servers[1], servers[2]
		next.Do("REPLICAOF", "NO", "ONE")
		ways[0].lead(next.Addr())
		follow(spare, next)
		tr.flows(t, 0) // After the leases of the holders when it happened.
		ways[1].lead(next.Addr())
		nobody(old)
		servers = []*redistest.Server{next, spare, old}
		return []string{old.Addr(), next.Addr()}
	}
	return option, replace
}

// A page has what came of the failovers of each kind of deployment.
type page struct {
	began time.Time
	parts []*part
}

// A part is what came of one deployment.
type part struct {
	what   string
	asked  string // how many replicas had to know
	counts []*count
}

var failovers = page{began: time.Now()}

// cases make failovers while clients take turns, and judge what the holders saw: where all replicas must know of a hold and
// of its renewals, nobody holds together with a holder that was not told. Without that, and after a takeover, such overlaps are
// counted for the page.
func (p *page) cases() (all []fault) {
	for _, s := range shakers {
		for _, replicas := range []int{0, s.replicas} {
			x := &part{what: s.what, asked: "none"}
			if replicas > 0 {
				x.asked = fmt.Sprintf("all, %d", replicas)
			}
			p.parts = append(p.parts, x)
			shakes := by(func(t *testing.T) { x.counts = s.shake(t, replicas) })
			shakes.brief = s.what == "cluster" && replicas == 0 || s.what == "by hand" && replicas > 0
			all = append(all, fault{"failovers/", fmt.Sprintf("%s, %d replicas must know", s.what, replicas), shakes, nil})
		}
	}
	return all
}

// shake makes failovers of each kind in turn, and tells what came of them.
func (s shaker) shake(t *testing.T, replicas int) []*count {
	option, replace := s.start(t)
	tr := newTraffic(t, option, 4, s.names, replicas, trafficLease)
	tr.flows(t)
	var made []failover
	for i := range rounds(1) * len(s.kinds) {
		f := failover{how: s.kinds[i%len(s.kinds)], began: time.Now()}
		led := slices.Compact(replace(t, tr, f.how))
		f.agreed = time.Now()
		require.Greater(t, len(led), 1)
		tr.flows(t)
		f.took = time.Since(f.began)
		evidence.Fault(t, fmt.Sprintf("failover, %s: %s", s.what, f.how), 1)
		evidence.Recovered(t, "failover, until everybody has held again", f.took, kit.Patience)
		for i, next := range led[1:] {
			f.old, f.new = led[i], next
			made = append(made, f)
		}
	}
	return tr.judge(t, made)
}

// judge ends the traffic and fails the test where tokens fall, or holds are not what the failovers excuse.
func (tr *traffic) judge(t *testing.T, made []failover) []*count {
	t.Helper()
	holds := tr.end(t)
	rising(t, holds)
	wrong := unexcused(holds, made)
	evidence.Note(t, evidence.Line{Holds: len(holds), Wrong: wrong})
	require.Empty(t, wrong)
	counts := counted(holds, made)
	for _, c := range counts {
		t.Log(c)
		if tr.replicas > 0 && c.how != takeover {
			require.Zero(t, c.untold, "two held, and were not told: %s", c.how)
		}
	}
	return counts
}

// A count is what came of all failovers of a kind.
type count struct {
	how       string
	failovers int
	holds     int           // from the beginning of such a failover to the next one's
	lost      int           // of these, told
	untold    int           // pairs of holds that lay over each other
	longest   time.Duration // of these
	slowest   time.Duration // failover, until everybody had held again
}

func (c *count) String() string {
	return fmt.Sprintf("%d times %s: %d holds, %d told that they were lost, %d overlaps that were not told (the longest %v); everybody held again within %v",
		c.failovers, c.how, c.holds, c.lost, c.untold, c.longest, c.slowest)
}

func counted(holds []seen, made []failover) (counts []*count) {
	of := func(at time.Time) *count {
		how := made[0].how
		for _, f := range made {
			if !f.began.After(at) {
				how = f.how
			}
		}
		i := slices.IndexFunc(counts, func(c *count) bool { return c.how == how })
		if i < 0 {
			i = len(counts)
			counts = append(counts, &count{how: how})
		}
		return counts[i]
	}
	for _, f := range made {
		c := of(f.began)
		c.failovers++
		c.slowest = max(c.slowest, f.took)
	}
	for _, s := range holds {
		c := of(s.to)
		c.holds++
		if s.lost != nil {
			c.lost++
		}
	}
	for _, pair := range overlaps(holds) {
		one, two := pair[0], pair[1]
		c := of(two.from)
		c.untold++
		end := one.to
		if two.to.Before(end) {
			end = two.to
		}
		c.longest = max(c.longest, end.Sub(two.from))
	}
	return counts
}

// unexcused says what is wrong with the holds around these failovers: holds by nobody's word, or longer than certain, and
// all overlaps except of holds by the two masters of one failover.
func unexcused(holds []seen, failovers []failover) (wrong []string) {
	for _, s := range holds {
		switch {
		case s.by == "":
			wrong = append(wrong, fmt.Sprintf("%v: no server has said so", s))
		case s.to.After(s.until):
			wrong = append(wrong, fmt.Sprintf("%v: certain %v after the end of its lease", s, s.to.Sub(s.until)))
		}
	}
	for _, pair := range overlaps(holds) {
		one, two := pair[0], pair[1]
		why := "no failover from one master to the other"
		for _, f := range failovers {
			switch {
			case one.of(f.old) && two.of(f.new):
				why = f.excuses(one, two)
			case one.of(f.new) && two.of(f.old):
				why = f.excuses(two, one)
			}
			if why == "" {
				break
			}
		}
		if why != "" {
			wrong = append(wrong, fmt.Sprintf("%v and %v: %s", one, two, why))
		}
	}
	return wrong
}

// of reports whether a server has granted the hold, or renewed it last.
func (s seen) of(server string) bool { return s.by == server || s.last == server }

// excuses says why two holds that overlap must not, by the old master and by the new, or nothing.
func (f failover) excuses(old, new seen) string {
	switch {
	case new.by == f.new && new.from.Before(f.began):
		return "the new master was none yet"
	case old.called.After(f.agreed):
		return "the old master was none any more"
	case old.lost == nil && old.to.After(f.agreed):
		return "who held by the old master was not told"
	case old.to.After(f.agreed.Add(trafficLease)):
		return "who held by the old master was told after the rest of its lease"
	}
	return ""
}

// rows returns a row for each kind of failover.
func (p *page) rows() string {
	var rows strings.Builder
	for _, d := range p.parts {
		for _, c := range d.counts {
			longest := "–"
			if c.untold > 0 {
				longest = fmt.Sprintf("%.2f ms", float64(c.longest.Microseconds())/1e3)
			}
			fmt.Fprintf(&rows, "| %s, %s | %s | %d | %d | %d | %d | %s | %.1f s |\n",
				d.what, c.how, d.asked, c.failovers, c.holds, c.lost, c.untold, longest, c.slowest.Seconds())
		}
	}
	return rows.String()
}

// write puts the rows into the file that DEPLOY_PAGE names, in place of what it had for the same server.
func (p *page) write(t *testing.T) {
	file := os.Getenv("DEPLOY_PAGE")
	if file == "" || t.Failed() {
		return
	}
	info := redistest.Start(t).Text("INFO", "server")
	server := "Redis " + regexp.MustCompile(`redis_version:(\S+)`).FindStringSubmatch(info)[1]
	if v := regexp.MustCompile(`valkey_version:(\S+)`).FindStringSubmatch(info); v != nil {
		server = "Valkey " + v[1]
	}
	text := kit.Got(os.ReadFile(file))(t)
	section := fmt.Sprintf(`## %s

%s, commit %s, %d failovers of each kind, %s.

| failover | replicas that must know | failovers | holds | lost, and told | overlaps that were not told | the longest | everybody held again within |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |
%s`, server, p.began.UTC().Format("2 January 2006"), evidence.Commit(), rounds(1), time.Since(p.began).Round(time.Second), p.rows())
	head, others, _ := strings.Cut(string(text), "\n## ")
	sections := []string{strings.TrimSpace(head)}
	for other := range strings.SplitSeq(others, "\n## ") {
		if other != "" && !strings.HasPrefix(other, server+"\n") {
			sections = append(sections, "## "+strings.TrimSpace(other))
		}
	}
	sections = append(sections, strings.TrimSpace(section))
	require.NoError(t, os.WriteFile(file, []byte(strings.Join(sections, "\n\n")+"\n"), 0o644))
}
