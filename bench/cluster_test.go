package bench

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
)

// A work on a cluster is compared with the same work on a single server, and with nothing else.
func TestAClusterIsComparedWithASingleServer(t *testing.T) {
	cluster, err := StartCluster(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Stop)
	if n := len(cluster.Addrs()); n != 6 {
		t.Fatalf("%d nodes", n)
	}
	option := rueidis.ClientOption{InitAddress: cluster.Addrs()}
	report, err := Run(t.Context(), Config{
		Contenders: []Contender{NewContender(setnx{redis: option, tokens: &atomic.Uint64{}})},
		Beside:     setnx{redis: startRedisFor(t), tokens: &atomic.Uint64{}},
		Redis:      option, Works: []Work{{ID: "W4", Clients: 2, Workers: 1, Beside: true}},
		Rounds: 1, Slice: 40 * time.Millisecond, Restless: true, Log: t.Logf,
	})
	if err != nil {
		t.Fatal(err)
	}
	r := report.Results[0]
	if len(r.Ratios) != 1 || r.Ratios[floorBeside] <= 0 {
		t.Errorf("ratios %v, want one to %q", r.Ratios, floorBeside)
	}
	if r.Figures.Server.Scripts < 0.5 {
		t.Errorf("%.2f scripts a cycle: the masters are not counted", r.Figures.Server.Scripts)
	}
}
