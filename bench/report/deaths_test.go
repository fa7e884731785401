package report

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/bench"
)

func TestAKilledHolderCostsItsLeaseOrItsRestart(t *testing.T) {
	t.Parallel()
	died := func(lock, kind string, names int, ms float64, lease time.Duration) bench.Recovery {
		return bench.Recovery{
			Contender: lock, Scene: bench.Scene{Kind: kind, Names: names, Bound: 5 * time.Second}, Worst: ms * 1e3, Within: ms < 5000, Lease: lease,
		}
	}
	r := bench.Report{Recoveries: []bench.Recovery{
		died("headwaiter", bench.DeadHolder, 0, 3, 10*time.Second),
		died("postgres-advisory", bench.DeadHolder, 0, 7, 0),
		died("zookeeper-lock", bench.DeadHolder, 0, 5000, 10*time.Second),
	}}
	require.Empty(t, view{r}.deaths(), "no run with identities")
	r.Recoveries = append(r.Recoveries, died("headwaiter", bench.Restarted, 1, 6, 0), died("headwaiter", bench.Buried, 1000, 400, 0))
	text := view{r}.deaths()
	for _, row := range []string{
		"| headwaiter | 10.0 s | its death, if it has just renewed |", "| postgres-advisory | 7.00 ms | its death |",
		"| zookeeper-lock | more than 15.0 s | its death, if it has just renewed |",
		"| headwaiter, identity, one name | 6.00 ms | the next `Dial` |", "| headwaiter, witness, 1000 names | 400 ms | its death |",
	} {
		require.Contains(t, text, row)
	}
}
