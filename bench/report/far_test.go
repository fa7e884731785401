package report

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/bench"
	"github.com/headwaiter/headwaiter/internal/testenv/must"
)

// measuredAs is a run where all is as it is to be, with round figures.
func measuredAs() bench.Report {
	rounds := func(own float64) (all []bench.PairRound) {
		for range bench.LeastRounds {
			all = append(all, bench.PairRound{Own: bench.Turn{Rate: own}, Other: bench.Turn{Rate: 1000}})
		}
		return all
	}
	a, b := bench.Both(10_000, 100, 50, 0)
	handOff := func(w bench.Work) bench.Result {
		return bench.Result{Contender: Own, Work: w, Figures: bench.Figures{Rate: 5000, Passed: 5000, CPU: 50, Server: bench.Server{CPUMicros: 50}}}
	}
	cost := func(us float64) bench.Operation { return bench.Operation{Server: us} }
	ratios := make([]float64, bench.LeastRounds)
	for i := range ratios {
		ratios[i] = 1
	}
	return bench.Report{
		Compared: []bench.Compared{{Contender: Own, Work: b, Against: Own, AgainstWork: a, Rounds: rounds(900)}},
		Results:  []bench.Result{handOff(bench.Work{ID: "W4", Clients: 8, Workers: 1}), handOff(bench.Work{ID: "W4", Clients: 64, Workers: 1, Locks: 16})},
		Crowds: []bench.Crowd{
			{Gathering: bench.Gathering{Waiting: 100_000}, Server: 100, Client: 10_000, ServerCPU: 10},
			{Gathering: bench.Gathering{Waiting: 1000, Clients: 1000}, All: 50_000, Client: 400_000, ServerCPU: 100, Connections: 3000},
		},
		Holds: []bench.Holds{
			{Keeping: bench.Keeping{Leases: 1_000_000, Lease: 10 * time.Minute}, Server: 300, Client: 2500},
			{Keeping: bench.Keeping{Leases: 20_000}, Seconds: 10, Done: 60_000, RedisCPU: 0.03},
			{Keeping: bench.Keeping{Leases: 20_000, Clients: 64}, Lock: cost(20), Release: cost(10), Refused: cost(15)},
			{Keeping: bench.Keeping{Leases: 1000, Clients: 1000}, Seconds: 10, Done: 3000, RedisCPU: 0.112},
		},
		Shards: []bench.Shards{{Masters: 6, Ratios: ratios}},
	}
}

func TestWhatIsNotAsItIsToBeIsSaid(t *testing.T) {
	require.NoError(t, CheckFar(measuredAs()))
	for want, plant := range map[string]func(r *bench.Report){
		"W4 C=10000 has 0.7 ": func(r *bench.Report) {
			for i := range r.Compared[0].Rounds {
				r.Compared[0].Rounds[i].Own.Rate = 700
			}
		},
		"W8 n=20000: 1 keys outlast 1m15s": func(r *bench.Report) { r.Holds[1].Kept = 1 },
		"W8 n=20000: 2 leases were lost":   func(r *bench.Report) { r.Holds[1].Lost = 2 },
		"6 masters take 1.5 ": func(r *bench.Report) {
			for i := range r.Shards[0].Ratios {
				r.Shards[0].Ratios[i] = 1.5
			}
		},
		"headwaiter W7: too long": func(r *bench.Report) {
			r.Missing = []bench.Missing{{Contender: Own, What: "W7", Reason: "too long"}}
		},
	} {
		r := measuredAs()
		plant(&r)
		require.ErrorContains(t, CheckFar(r), want)
	}
}

func TestAPlanIsTheSumOfItsParts(t *testing.T) {
	n := Usual()
	n.Clients, n.Waiters, n.Holds, n.Names = 1000, 2000, 3000, 100_000
	n.HandOffs, n.Cycles, n.Tries = 2000, 10_000, 4000
	p := must.Got(NewPlan(measuredAs(), n))(t)
	// 2,000 hand-offs, 10,000 cycles, 4,000 tries, 900 renewals of clients that hold several, 1,000 clients, 2,000 waiters.
	require.InDelta(t, 0.1+0.3+0.06+0.0045+0.1+0.02, p.Cores, 1e-9)
	require.Equal(t, 1, p.Masters)
	require.Equal(t, 3000, p.PerMaster)
	require.InDelta(t, 1000*50_000+2000*100+100_000*300, p.ServerMemory, 1)
	require.InDelta(t, 1000*400_000+2000*10_000+3000*2500, p.ClientMemory, 1)
	require.Equal(t, "one core of a master", p.Walls[0].What)

	n.Holds = 1000 // One each: 300 a second at 40 µs, in addition to what the connections of these clients take.
	p = must.Got(NewPlan(measuredAs(), n))(t)
	require.InDelta(t, 0.1+0.3+0.06+0.012+0.1+0.02, p.Cores, 1e-9)
}

func TestTheNearestWallIsNamed(t *testing.T) {
	for want, set := range map[string]func(n *Needs){
		"hand-offs of one name":   func(n *Needs) { n.HandOffs = 20_000 },
		"connections of a master": func(n *Needs) { n.Clients = 5000 },
		"memory of a master":      func(n *Needs) { n.Names, n.Memory = 1_000_000, 301e6 },
		"one core of a master":    func(n *Needs) { n.Cycles, n.Names = 50_000, 1000 },
	} {
		n := Usual()
		set(&n)
		p := must.Got(NewPlan(measuredAs(), n))(t)
		require.Equal(t, want, p.Walls[0].What)
		var b strings.Builder
		require.NoError(t, p.Write(&b))
		if !p.Walls[0].Shards {
			require.Contains(t, b.String(), ". Too much: ")
		}
	}
	n := Usual()
	n.Cycles = 1e6 // 30 cores; each master may use 0.6.
	require.Equal(t, 50, must.Got(NewPlan(measuredAs(), n))(t).Masters)
	require.ErrorContains(t, must.Err(NewPlan(bench.Report{}, n)), "does not have all figures")
}
