package deploy

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

// rounds is how often a test shakes a deployment: as often as the promise says in the long form, `make deploy`.
func rounds(brief, long int) int {
	if os.Getenv("DEPLOY_LONG") != "" {
		return long
	}
	return brief
}

// failover is one that a test made: from when on another master may have been there, and until when the old one may
// not have known that it is none any more.
type failover struct {
	old, new      string // addresses
	began, agreed time.Time
}

// replace makes a failover, and returns when everybody agrees and every worker has held again.
func (tr *traffic) replace(t *testing.T, old string, replace func() (new string)) failover {
	t.Helper()
	f := failover{old: old, began: time.Now()}
	f.new = replace()
	f.agreed = time.Now()
	require.NotEqual(t, f.old, f.new)
	tr.flows(t)
	tr.worst = max(tr.worst, time.Since(f.began))
	return f
}

// judge ends the traffic and fails the test where tokens fall, or holds are not what the failovers excuse.
func (tr *traffic) judge(t *testing.T, failovers []failover) {
	t.Helper()
	holds := tr.end(t)
	rising(t, holds)
	require.Empty(t, unexcused(holds, failovers))
	t.Logf("%d holds, %d of them lost, %d overlaps of two masters; longest failover until everybody had held again: %v",
		len(holds), lost(holds), len(overlaps(holds)), tr.worst)
}

// unexcused says what is wrong with holds beside these failovers: who held by nobody's word, or longer than certain,
// and all overlaps but those of holds by the two masters of one failover.
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
			case one.by == f.old && two.by == f.new:
				why = f.excuses(one, two)
			case one.by == f.new && two.by == f.old:
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

// excuses says why two holds that overlap must not, by the old master and by the new, or nothing.
func (f failover) excuses(old, new seen) string {
	switch {
	case new.from.Before(f.began):
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

func TestFailoversOfSentinelUnderLoad(t *testing.T) {
	s := redistest.Sentinel(t)
	tr := load(t, s.Option, 4, []string{"a", "b", "c"})
	tr.flows(t)
	var failovers []failover
	for range rounds(5, 50) {
		failovers = append(failovers, tr.replace(t, s.Master().Addr(), func() string { return s.Failover().Addr() }))
	}
	tr.judge(t, failovers)
}

func TestFailoversOfAShardUnderLoad(t *testing.T) {
	s := redistest.Cluster(t)
	// Names of all three shards: what one does must not hold up the others.
	tr := load(t, s.Option, 4, []string{"a", "b", "c", "d"})
	tr.flows(t)
	var failovers []failover
	for i := range rounds(6, 50) {
		master := s.MasterOf("headwaiter:lock:{a}")
		how := [][]string{
			nil, // With the master's consent: nothing is forgotten.
			{"FORCE"}, {"TAKEOVER"},
		}[i%3]
		failovers = append(failovers, tr.replace(t, master.Addr(), func() string { return s.Failover(master, how...).Addr() }))
	}
	tr.judge(t, failovers)
}

// A master that is killed is replaced without anybody's consent.
func TestAMasterIsKilledUnderLoad(t *testing.T) {
	t.Run("Sentinel", func(t *testing.T) {
		s := redistest.Sentinel(t)
		tr := load(t, s.Option, 4, []string{"a", "b"})
		tr.flows(t)
		old := s.Master()
		tr.judge(t, []failover{tr.replace(t, old.Addr(), func() string {
			old.Kill()
			tr.flows(t)
			return s.Master().Addr()
		})})
	})
	t.Run("cluster", func(t *testing.T) {
		s := redistest.Cluster(t)
		tr := load(t, s.Option, 4, []string{"a", "b", "c", "d"})
		tr.flows(t)
		old := s.MasterOf("headwaiter:lock:{a}")
		tr.judge(t, []failover{tr.replace(t, old.Addr(), func() string {
			old.Kill()
			tr.flows(t)
			kit.Eventually(t, "another master", func() bool {
				master := s.MasterOf("headwaiter:lock:{a}")
				return master != nil && master != old
			})
			return s.MasterOf("headwaiter:lock:{a}").Addr()
		})})
	})
}
