package deploy

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/kit"
	"github.com/headwaiter/headwaiter/internal/redistest"
)

// rounds is how often a test shakes a deployment: as often as the promise says in the long form, `make deploy`.
func rounds(brief, long int) int {
	if os.Getenv("DEPLOY_LONG") != "" {
		return long
	}
	return brief
}

// window is a time in which two masters may have been there.
type window struct{ from, to time.Time }

// agreement is how long after a failover a client may still ask the old master: until it has the news of it.
const agreement = 3 * time.Second

// judge fails the test where holders overlap that were not told, or tokens fall. It reports overlaps within the
// windows, where a master may have granted what its successor had not heard of.
func judge(t *testing.T, holds []seen, windows []window) {
	t.Helper()
	rising(t, holds)
	inside := 0
	for _, pair := range overlaps(holds) {
		one, two := pair[0], pair[1]
		if one.lost != nil || two.lost != nil {
			continue // Told.
		}
		excused := false
		for _, w := range windows {
			excused = excused || two.from.After(w.from) && one.from.Before(w.to)
		}
		if !excused {
			t.Errorf("%s: client %d held by token %d until %v, client %d by token %d from %v on, and nobody was told",
				one.name, one.client, one.token, one.to, two.client, two.token, two.from)
		}
		inside++
	}
	t.Logf("%d holds, %d of them lost, %d overlaps while masters changed", len(holds), lost(holds), inside)
}

func TestFailoversOfSentinelUnderLoad(t *testing.T) {
	s := redistest.Sentinel(t)
	tr := load(t, s.Option, 4, []string{"a", "b", "c"})
	tr.flows(t)
	var windows []window
	worst := time.Duration(0)
	for range rounds(5, 50) {
		began := time.Now()
		s.Failover()
		windows = append(windows, window{began, time.Now().Add(agreement)})
		tr.flows(t)
		worst = max(worst, time.Since(began))
	}
	t.Logf("longest failover until everybody had held again: %v", worst)
	judge(t, tr.end(t), windows)
}

func TestFailoversOfAShardUnderLoad(t *testing.T) {
	s := redistest.Cluster(t)
	// Names of all three shards: what one does must not hold up the others.
	tr := load(t, s.Option, 4, []string{"a", "b", "c", "d"})
	tr.flows(t)
	var windows []window
	worst := time.Duration(0)
	for i := range rounds(6, 50) {
		master := s.MasterOf("headwaiter:lock:{a}")
		began := time.Now()
		switch i % 3 {
		case 0:
			s.Failover(master) // With the master's consent: nothing is forgotten.
		case 1:
			s.Failover(master, "FORCE")
		case 2:
			s.Failover(master, "TAKEOVER")
		}
		windows = append(windows, window{began, time.Now().Add(agreement)})
		tr.flows(t)
		worst = max(worst, time.Since(began))
	}
	t.Logf("longest failover until everybody had held again: %v", worst)
	judge(t, tr.end(t), windows)
}

// A master that is killed is replaced without anybody's consent.
func TestAMasterIsKilledUnderLoad(t *testing.T) {
	t.Run("Sentinel", func(t *testing.T) {
		s := redistest.Sentinel(t)
		tr := load(t, s.Option, 4, []string{"a", "b"})
		tr.flows(t)
		old, began := s.Master(), time.Now()
		old.Kill()
		tr.flows(t)
		t.Logf("everybody had held again after %v", time.Since(began))
		require.NotEqual(t, old.Addr(), s.Master().Addr())
		judge(t, tr.end(t), []window{{began, time.Now()}})
	})
	t.Run("cluster", func(t *testing.T) {
		s := redistest.Cluster(t)
		tr := load(t, s.Option, 4, []string{"a", "b", "c", "d"})
		tr.flows(t)
		old, began := s.MasterOf("headwaiter:lock:{a}"), time.Now()
		old.Kill()
		tr.flows(t)
		t.Logf("everybody had held again after %v", time.Since(began))
		kit.Eventually(t, "another master", func() bool { return s.MasterOf("headwaiter:lock:{a}") != old })
		judge(t, tr.end(t), []window{{began, time.Now()}})
	})
}
