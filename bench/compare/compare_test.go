package compare_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/bench"
	"github.com/headwaiter/headwaiter/bench/compare"
)

var contended = bench.Work{ID: "W4", Clients: 8, Workers: 1}

// run is a report with one work, whose rounds have the given hand-offs a second beside a floor in µs.
func run(work bench.Work, floor float64, rates ...float64) bench.Report {
	var r bench.Report
	for _, rate := range rates {
		f := bench.Figures{Rate: rate, Passed: rate, HandOff: bench.Quantiles{P50: 1e6 / rate, Count: 100}}
		r.Slices = append(r.Slices, bench.Slice{
			Contender: "lock", Work: work, Round: bench.Round{Floors: map[string]float64{work.MainFloor(): floor}, Figures: f},
		})
	}
	return r
}

func verdict(t *testing.T, old, new bench.Report) compare.Row {
	t.Helper()
	rows := compare.Runs(old, new, compare.Defaults)
	require.Len(t, rows, 1)
	return rows[0]
}

func TestVerdictsKnowNoise(t *testing.T) {
	quiet := []float64{8000, 8100, 7900, 8050, 7950}
	for _, c := range []struct {
		name     string
		old, new bench.Report
		want     compare.Verdict
		why      string
	}{
		{"the same figures", run(contended, 100, quiet...), run(contended, 100, quiet...), compare.Same, "chance"},
		{"a little more each", run(contended, 100, quiet...), run(contended, 100, 8600, 8700, 8500, 8650, 8550), compare.Same, "15 %"},
		{"a third more", run(contended, 100, quiet...), run(contended, 100, 10600, 10700, 10500, 10650, 10550), compare.Better, ""},
		{"half", run(contended, 100, quiet...), run(contended, 100, 4000, 4100, 3900, 4050, 3950), compare.Worse, ""},
		{"noise as wide as the change", run(contended, 100, 6000, 8000, 9000, 12000, 5000), run(contended, 100, 8000, 10000, 11500, 12500, 7500), compare.Same, "chance"},
		{"some of one among the other", run(contended, 100, 8000, 8100, 7900, 8050, 9500), run(contended, 100, 10600, 10700, 10500, 10650, 9000), compare.Same, "overlap"},
		{"restless, and no further apart than among themselves", run(contended, 100, 6900, 8400, 7200, 9000, 7700), run(contended, 100, 6200, 6500, 6400, 6000, 6300), compare.Same, "one run differ"},
		{"the floor halved, and the lock stayed", run(contended, 100, quiet...), run(contended, 50, quiet...), compare.Same, "floor"},
		{"both became twice as slow: the machine", run(contended, 100, quiet...), run(contended, 200, 4000, 4100, 3900, 4050, 3950), compare.Same, ""},
		{"three rounds", run(contended, 100, 8000, 8100, 7900), run(contended, 100, 4000, 4100, 3900), compare.Unclear, "rounds"},
	} {
		t.Run(c.name, func(t *testing.T) {
			row := verdict(t, c.old, c.new)
			require.Equal(t, c.want, row.Verdict, row.Why)
			require.Contains(t, row.Why, c.why)
		})
	}
}

// A floor that became slower makes a lock that became slower too look better: whatever is worth a word, both must have
// moved the same way.
func TestABareFigureThatMovedTheOtherWayIsNoWitness(t *testing.T) {
	quiet := []float64{8000, 8010, 7990, 8005, 7995}
	slower := []float64{7520, 7530, 7510, 7525, 7515}
	fine := compare.Options{Alpha: 0.05, Least: 0.05}
	// 6 % fewer hand-offs, by a floor that takes 13 % longer: 6 % more.
	rows := compare.Runs(run(contended, 100, quiet...), run(contended, 113, slower...), fine)
	require.InDelta(t, 0.06, rows[0].Change, 0.005)
	require.Equal(t, compare.Same, rows[0].Verdict)
	require.Contains(t, rows[0].Why, "floor")
	// And the other way round.
	rows = compare.Runs(run(contended, 113, slower...), run(contended, 100, quiet...), fine)
	require.Equal(t, compare.Same, rows[0].Verdict)
}

func TestOfGapsLessIsBetter(t *testing.T) {
	paced := contended
	paced.Hold = 5e6
	row := verdict(t, run(paced, 100, 8000, 8100, 7900, 8050, 7950), run(paced, 100, 4000, 4100, 3900, 4050, 3950))
	require.Equal(t, compare.Worse, row.Verdict, row.Why)
	require.Equal(t, "gap / paced", row.Figure)
}

func TestARateThatIsGivenIsNotCompared(t *testing.T) {
	arriving := bench.Work{ID: "W1", Clients: 1, Workers: 1, Arrival: 200}
	row := verdict(t, run(arriving, 100, 200, 199, 201, 200), run(arriving, 50, 200, 199, 201, 200))
	require.Equal(t, compare.Unclear, row.Verdict)
	require.Contains(t, row.Why, "no floor")
}

func TestRoundsThatDoNotCountAreLeftOut(t *testing.T) {
	old := run(contended, 100, 8000, 8100, 7900, 8050)
	new := run(contended, 100, 8000, 8100, 7900, 8050, 100)
	new.Slices[4].Moved = "message floor moved"
	row := verdict(t, old, new)
	require.Equal(t, compare.Same, row.Verdict)
	require.InDelta(t, row.Old.Center, row.New.Center, 1e-9)
}

func TestOnlyWhatBothHaveIsCompared(t *testing.T) {
	other := bench.Work{ID: "W1", Clients: 1, Workers: 1}
	require.Empty(t, compare.Runs(run(contended, 100, 1, 2, 3, 4), run(other, 100, 1, 2, 3, 4), compare.Defaults))
}

func TestATableCountsTheVerdicts(t *testing.T) {
	quiet := []float64{8000, 8100, 7900, 8050, 7950}
	var b strings.Builder
	require.NoError(t, compare.Write(&b, []compare.Row{
		verdict(t, run(contended, 100, quiet...), run(contended, 100, quiet...)),
		verdict(t, run(contended, 100, quiet...), run(contended, 100, 4000, 4100, 3900, 4050, 3950)),
	}))
	require.Contains(t, b.String(), "1 the same, 0 better, 1 worse, 0 unclear")
	require.Contains(t, b.String(), "-50.0 %")
}
