package compare_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/bench"
	"github.com/headwaiter/headwaiter/bench/compare"
)

// machine is what makes runs: its speed changes from round to round, and its noise from slice to slice.
type machine struct {
	*rand.Rand
	noise float64
}

func newMachine(seed uint64) machine { return machine{rand.New(rand.NewPCG(seed, 1)), 0.08} }

func (m machine) turn(speed, client, server float64) bench.Turn {
	return bench.Turn{
		Rate:   speed * (1 + m.noise*m.NormFloat64()),
		Client: client * (1 + m.noise/3*m.NormFloat64()),
		Server: server * (1 + m.noise/3*m.NormFloat64()),
	}
}

// run is a report of eight works against six locks, where the own lock takes that many times its usual CPU.
func (m machine) run(client, server float64) (r bench.Report) {
	for work := range 8 {
		for other := range 6 {
			c := bench.Compared{
				Contender: fmt.Sprint("other-", other), Work: bench.Work{ID: "W4", Clients: 2 + work, Workers: 1},
				Against: "headwaiter", AgainstWork: bench.Work{ID: "W4", Clients: 2 + work, Workers: 1},
			}
			for range 9 {
				pace := 1 + 2*m.Float64() // The machine is up to three times as fast in one round as in another.
				c.Rounds = append(c.Rounds, bench.PairRound{
					Own:   m.turn(5000*pace, 100/pace*client, 80/pace*server),
					Other: m.turn(4000*pace, 120/pace, 60/pace),
				})
			}
			r.Compared = append(r.Compared, c)
		}
	}
	return r
}

// verdicts are those of all works together, by figure.
func verdicts(rows []compare.Row) map[string]compare.Verdict {
	found := map[string]compare.Verdict{}
	for _, r := range rows {
		if r.Own == "" {
			found[r.Figure] = r.Verdict
		}
	}
	return found
}

// builds is a run of two builds of one lock, where one takes that many times the CPU of the other.
func (m machine) builds(client, server float64) (r bench.Report) {
	for clients := range 5 {
		w := bench.Work{ID: "W4", Clients: 2 + clients, Workers: 1}
		c := bench.Compared{Contender: compare.Before, Work: w, Against: "headwaiter", AgainstWork: w}
		for range 15 {
			pace := 1 + 2*m.Float64()
			c.Rounds = append(c.Rounds, bench.PairRound{
				Own: m.turn(5000*pace, 100/pace*client, 80/pace*server), Other: m.turn(5000*pace, 100/pace, 80/pace),
			})
		}
		r.Compared = append(r.Compared, c)
	}
	return r
}

func TestBuildsThatAreAlikeAreTheSameAndFivePerCentAreFound(t *testing.T) {
	for seed := range uint64(40) {
		m := newMachine(seed)
		rows := compare.Builds(m.builds(1, 1))
		require.Empty(t, compare.Worsened(rows), "seed %d", seed)
		require.Equal(t, map[string]compare.Verdict{"rate": compare.Same, "client CPU": compare.Same, "server CPU": compare.Same}, verdicts(rows))
		require.Contains(t, compare.Worsened(compare.Builds(m.builds(1.05, 1))), "client CPU", "seed %d", seed)
		require.Contains(t, compare.Worsened(compare.Builds(m.builds(1, 1.05))), "server CPU", "seed %d", seed)
		require.Equal(t, compare.Better, verdicts(compare.Builds(m.builds(0.95, 1)))["client CPU"], "seed %d", seed)
	}
	require.Empty(t, compare.Builds(bench.Report{}))
}

// Two runs of one lock are the same, whatever the machine does.
func TestRunsOfOneLockAreTheSame(t *testing.T) {
	for seed := range uint64(40) {
		m := newMachine(seed)
		rows := compare.Runs(m.run(1, 1), m.run(1, 1))
		require.Empty(t, compare.Worsened(rows), "seed %d", seed)
		require.Equal(t, map[string]compare.Verdict{"rate": compare.Same, "client CPU": compare.Same, "server CPU": compare.Same}, verdicts(rows))
	}
}

// A slow-down of a twentieth, of the client or of a script, is far below the noise of a pair, and must be found.
func TestASmallSlowDownIsFound(t *testing.T) {
	for seed := range uint64(40) {
		m := newMachine(seed)
		before := m.run(1, 1)
		rows := compare.Runs(before, m.run(1.05, 1))
		require.Contains(t, compare.Worsened(rows), "client CPU of all works by ", "seed %d", seed)
		require.Equal(t, compare.Same, verdicts(rows)["server CPU"])
		rows = compare.Runs(before, m.run(1, 1.05))
		require.Contains(t, compare.Worsened(rows), "server CPU of all works by ", "seed %d", seed)
		rows = compare.Runs(before, m.run(1, 0.95))
		require.Empty(t, compare.Worsened(rows))
		require.Equal(t, compare.Better, verdicts(rows)["server CPU"])
	}
}

// Two works are too few for a verdict on all, but not for one on each.
func TestPairsAloneAreJudgedToo(t *testing.T) {
	m := newMachine(1)
	old, new := m.run(1, 1), m.run(2, 1)
	new.Compared = new.Compared[:8]
	rows := compare.Runs(old, new)
	require.Contains(t, compare.Worsened(rows), "8 of 24 pairs")
	for _, r := range rows {
		require.Equal(t, r.Figure == "client CPU", r.Verdict == compare.Worse, "%+v", r)
	}
}

// A pair that one of them does not have, has too few rounds or no figure, is not compared.
func TestOnlyWhatBothHaveIsCompared(t *testing.T) {
	m := newMachine(1)
	old, new := m.run(1, 1), m.run(1, 1)
	old.Compared = old.Compared[:1]
	require.Len(t, compare.Runs(old, new), 3)
	for i := range old.Compared[0].Rounds {
		old.Compared[0].Rounds[i].Other.Server = 0 // Nobody knows it of this server.
	}
	require.Len(t, compare.Runs(old, new), 2)
	old.Compared[0].Rounds = old.Compared[0].Rounds[:bench.LeastRounds-1]
	require.Empty(t, compare.Runs(old, new))
}

func TestLocksWithOneWorkAreNotTakenForEachOther(t *testing.T) {
	old, now := newMachine(1).run(1, 1), newMachine(2).run(1, 1)
	slower := newMachine(3).run(2, 2).Compared
	for i := range slower {
		slower[i].Against = "headwaiter-slower"
	}
	old.Compared, now.Compared = append(old.Compared, slower...), append(slower, now.Compared...)
	require.Empty(t, compare.Worsened(compare.Runs(old, now)))
}

func TestATableCountsTheVerdicts(t *testing.T) {
	m := newMachine(1)
	old, new := m.run(1, 1), m.run(1.5, 1)
	old.Compared, new.Compared = old.Compared[:6], new.Compared[:6]
	var b strings.Builder
	require.NoError(t, compare.Write(&b, compare.Runs(old, new)))
	require.Contains(t, b.String(), "Of the figures of single pairs 12 are the same, 0 better, 6 worse.")
	require.Regexp(t, `client CPU +headwaiter W4 C=2 +6 pairs +\+\d+\.\d %`, b.String())
}
