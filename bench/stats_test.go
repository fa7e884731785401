package bench

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/must"
)

func TestMedianIsTheMiddleWhateverTheOrder(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{[]float64{7}, 7},
		{[]float64{3, 1}, 2},
		{[]float64{9, 1, 4}, 4},
		{[]float64{4, 100, 2, 1}, 3},
	} {
		require.EqualValues(t, c.want, Median(c.values), c.values)
	}
	require.True(t, math.IsNaN(Median(nil)))
}

func TestMedianLeavesItsArgumentInOrder(t *testing.T) {
	values := []float64{3, 1, 2}
	Median(values)
	require.Equal(t, []float64{3, 1, 2}, values)
}

func TestFloorHasMovedWhenItDiffersByMoreThanAThird(t *testing.T) {
	for _, c := range []struct {
		before, after float64
		want          bool
	}{
		{90, 90, false},
		{90, 119, false},
		{90, 120, false}, // a third, not more
		{90, 121, true},
		{121, 90, true},
		{120, 90, false},
		{90, 180, true},
		{0, 90, true}, // could not be measured
		{90, 0, true},
		{math.NaN(), 90, true},
	} {
		require.EqualValues(t, c.want, moved(c.before, c.after), fmt.Sprint(c.before, c.after))
	}
}

func TestTimesKeepWhatIsOutOfRange(t *testing.T) {
	times := newTimes()
	for _, ns := range []int64{-5, 0, 1_000_000, int64(2 * longest)} {
		times.record(ns)
	}
	q := times.quantiles()
	require.EqualValues(t, 4, q.Count)
	require.True(t, near(q.Max, micros(int64(longest))), "the largest is %v µs, want about %v", q.Max, micros(int64(longest)))
}

func TestQuantilesOfRoundsAreMediansAndTheLargestOfAll(t *testing.T) {
	rounds := []Quantiles{{P50: 10, P99: 30, Max: 40, Count: 5}, {P50: 12, P99: 90, Max: 900, Count: 6}, {P50: 11, P99: 31, Max: 50, Count: 7}}
	got := medianQuantiles(rounds, func(q Quantiles) Quantiles { return q })
	require.Equal(t, Quantiles{P50: 11, P99: 31, Max: 900, Count: 18}, got)
}

// near allows for the error of the histogram.
func near(got, want float64) bool { return math.Abs(got-want) <= want/500 }

const ms = int64(time.Millisecond)

// served is a call that began at start and got the lock at acquired, both in ms, and held it for 1 ms.
func served(start, acquired int64) event {
	return event{due: start * ms, start: start * ms, acquired: acquired * ms, releasing: (acquired + 1) * ms, released: (acquired + 2) * ms}
}

func TestInversionsOfAColdStartDoNotCount(t *testing.T) {
	events := []event{served(0, 70), served(10, 60), served(20, 50), served(30, 40)}
	for i := range events {
		events[i].worker = i
	}
	f := figures(events, window{15 * ms, 100 * ms}, true)
	require.Zero(t, f.Inversions)
	// Who starves from the start is overtaken all the same.
	late := served(150, 160)
	late.worker = 9
	events[0].acquired = 200 * ms
	f = figures(append(events, late), window{15 * ms, 300 * ms}, true)
	require.EqualValues(t, 1, f.Inversions, "the call that came 150 ms after the first and was served before it")
}

// hold is one hold: when Lock was called and returned and when Release was called, all in ms.
func hold(token uint64, start, acquired, releasing int64) event {
	return event{token: token, worker: int(acquired), due: start * ms, start: start * ms, acquired: acquired * ms, releasing: releasing * ms, released: (releasing + 1) * ms}
}

func TestHandOffIsFromReleaseToTheNextTokensReturn(t *testing.T) {
	events := []event{ // not in order: each worker has a log of its own
		hold(900, 5, 42, 50),  // 2 after the release before
		hold(100, 0, 10, 20),  // the first: nobody before
		hold(101, 1, 23, 40),  // 3 after
		hold(2000, 60, 61, 1), // 11 after, and had not called yet
	}
	spans, passed := handOffs(events, window{0, 1000 * ms})
	q := spans.quantiles()
	require.True(t, passed == 3 && q.Count == 3 && near(q.P50, 3000) && near(q.Max, 11000), "%+v", q)
}

// With calls that arrive at a rate a lock may be free for a while: that is nobody's delay.
func TestALockThatNobodyHadCalledForIsNotHandedOff(t *testing.T) {
	events := []event{hold(1, 0, 10, 20), hold(2, 1, 23, 40), hold(3, 60, 61, 70), hold(4, 65, 72, 80)}
	for i := range events {
		events[i].arrived = true
	}
	f := figures(events, window{0, 100 * ms}, true)
	require.False(t, f.HandOff.Count != 2 || !near(f.HandOff.Max, 3000), "hand-offs %+v, want those of 3 and 2 ms", f.HandOff)
	require.EqualValues(t, 30, f.Passed)
}

func TestHandOffWithoutTokensGoesByTime(t *testing.T) {
	events := []event{hold(0, 0, 23, 40), hold(0, 0, 10, 20), hold(0, 0, 42, 50)}
	spans, _ := handOffs(events, window{0, 1000 * ms})
	q := spans.quantiles()
	require.True(t, q.Count == 2 && near(q.Max, 3000), "%+v", q)
}

func TestAHoldAfterAnOwnOneIsNoHandOff(t *testing.T) {
	events := []event{hold(1, 0, 10, 20), hold(2, 21, 22, 40), hold(3, 0, 42, 50)}
	events[1].worker = events[0].worker
	f := figures(events, window{0, 100 * ms}, true)
	require.True(t, f.HandOff.Count == 1 && f.Passed == 10 && f.Rate == 30, "%+v", f)
}

func TestHandOffsStayWithinALock(t *testing.T) {
	events := []event{hold(1, 0, 10, 20), hold(2, 0, 25, 30)}
	events[1].lock = 1
	spans, _ := handOffs(events, window{0, 1000 * ms})
	require.Zero(t, spans.quantiles().Count)
}

func TestOnlyWhatIsAcquiredInTheWindowCounts(t *testing.T) {
	events := []event{hold(1, 0, 99, 110), hold(2, 0, 111, 150), hold(3, 0, 153, 160), hold(4, 0, 200, 210)}
	f := figures(events, window{100 * ms, 200 * ms}, true)
	require.True(t, f.Cycles == 2 && f.Acquire.Count == 2 && f.Release.Count == 2 && f.HandOff.Count == 2, "%+v", f)
	require.True(t, f.Seconds == 0.1 && f.Rate == 20, "%+v", f)
}

// What is wrong with the holds of a lock is for package judge to find.
func TestHoldsAreJudgedLockByLock(t *testing.T) {
	events := []event{hold(2, 0, 10, 40), hold(1, 6, 20, 40), hold(4, 3, 50, 60), hold(3, 9, 45, 48)}
	for limit, want := range map[int]int{1: 1, 2: 0} {
		got, _ := overlaps(events, limit)
		require.EqualValues(t, want, got, "where %d may hold", limit)
	}
	pairs, calls := overtaken(events, slack, 0)
	require.True(t, pairs == 1 && calls == 1, "%d pairs, %d calls, want one each", pairs, calls)
	_, backward := overlaps([]event{hold(2, 0, 10, 20), hold(2, 0, 31, 40)}, 1)
	require.EqualValues(t, 1, backward, "tokens that do not rise")
	events[0].lock, events[2].lock = 1, 1
	got, backward := overlaps(events, 1)
	require.Zero(t, got+backward, "overlaps and tokens between two locks")
	pairs, _ = overtaken(events, slack, 0)
	require.Zero(t, pairs, "inversions between two locks")
}

const infoBefore = "# Stats\r\ntotal_net_input_bytes:1000\r\ntotal_net_output_bytes:2000\r\n# CPU\r\nused_cpu_sys:1.5\r\nused_cpu_user:2.5\r\n" +
	"used_cpu_sys_children:9\r\n# Commandstats\r\ncmdstat_evalsha:calls=10,usec=300,usec_per_call=30.00,rejected_calls=0,failed_calls=0\r\n" +
	"cmdstat_client|setinfo:calls=4,usec=4,usec_per_call=1.00\r\ncmdstat_info:calls=1,usec=50,usec_per_call=50.00\r\n"

const infoAfter = "# Stats\r\ntotal_net_input_bytes:9000\r\ntotal_net_output_bytes:9000\r\n# CPU\r\nused_cpu_sys:1.6\r\nused_cpu_user:2.6\r\n" +
	"used_cpu_sys_children:9\r\n# Commandstats\r\ncmdstat_evalsha:calls=210,usec=4300,usec_per_call=20.47,rejected_calls=0,failed_calls=0\r\n" +
	"cmdstat_publish:calls=100,usec=200,usec_per_call=2.00\r\ncmdstat_client|setinfo:calls=4,usec=4,usec_per_call=1.00\r\n" +
	"cmdstat_info:calls=2,usec=90,usec_per_call=45.00\r\n"

func TestServerFiguresAreDifferencesForACycle(t *testing.T) {
	before := parseInfo(infoBefore)
	s := serverFigures(before, parseInfo(infoAfter), 100)
	require.True(t, s.Scripts == 2 && s.Others == 1 && s.ScriptMicros == 20, "%+v", s)
	require.True(t, near(s.CPUMicros, 2000), "%v µs of CPU, want 2000", s.CPUMicros)
	wantIn, wantOut := float64(8000-len(infoRequest))/100, float64(7000-before.reply)/100 // Without the asking itself.
	require.True(t, near(s.BytesIn, wantIn) && near(s.BytesOut, wantOut), "%+v, want %v and %v bytes", s, wantIn, wantOut)
}

func TestServerFiguresOfNoCycleAreZero(t *testing.T) {
	s := serverFigures(parseInfo(infoBefore), parseInfo(infoAfter), 0)
	require.True(t, s.Scripts == 0 && s.BytesIn == 0, "%+v", s)
}

func TestReplySizeIsThatOnTheWire(t *testing.T) {
	require.Equal(t, len("$10\r\na:1\r\nb:2\r\n\r\n"), parseInfo("a:1\r\nb:2\r\n").reply)
}

func TestRatiosCompareWhatWasMeasuredTogether(t *testing.T) {
	w := Work{ID: "W4", Clients: 8, Workers: 1}
	round := func(rate, cycle, message float64) Round {
		return Round{
			Floors:  map[string]float64{floorCycle: cycle, floorMessage: message},
			Figures: Figures{Rate: rate, Cycles: 10, Inversions: 1, HandOff: Quantiles{P50: 90, Count: 10}},
		}
	}
	// 100 µs are 10,000 a second. The second round was slow together with its floors.
	result := summarize(w, []Round{round(9000, 100, 80), round(4500, 200, 160), round(8000, 100, 80)}, 2)
	require.InEpsilon(t, 0.9, result.Ratios[floorCycle], 0.002)
	require.InEpsilon(t, 0.72, result.Ratios[floorMessage], 0.002)
	f := result.Figures
	require.True(t, f.Rate == 8000 && result.Floors[floorCycle] == 100, "%+v, want the medians 8000 and 100", result)
	require.True(t, f.Cycles == 30 && f.Inversions == 3 && result.Rounds == 3 && result.Again == 2, "%+v, want sums of counts", result)
}

func TestGapIsComparedAsATime(t *testing.T) {
	w := Work{ID: "W4h", Clients: 2, Workers: 1, Hold: pause}
	require.Equal(t, 1.25, ratio(w, 60, Figures{Rate: 190, HandOff: Quantiles{P50: 75}}))
}

func TestTableHasARowForEachWorkAndSaysWhatWasRunAgain(t *testing.T) {
	rounds := []Round{{Floors: map[string]float64{floorCycle: 100}, Figures: Figures{Rate: 8500}}}
	report := Report{
		Environment: Environment{Rounds: 3},
		Results: []Result{
			summarize(Work{ID: "W1", Clients: 1, Workers: 1}, rounds, 4),
			summarize(Work{ID: "W4", Clients: 8, Workers: 1}, nil, 9),
		},
	}
	var text strings.Builder
	require.NoError(t, report.WriteTable(&text))
	lines := strings.Split(text.String(), "\n")
	row := func(start string) []string {
		for _, line := range lines {
			if strings.HasPrefix(strings.TrimSpace(line), start) {
				return strings.Fields(line)
			}
		}
		t.Fatalf("no row of %s in\n%s", start, text.String())
		return nil
	}
	w1, w4 := row("W1"), row("W4 C=8")
	require.Equal(t, []string{"W1", "0.85", "-", "-", "8500", "4"}, append(w1[:5:5], w1[len(w1)-1]))
	require.Equal(t, []string{"W4", "C=8", "-", "-", "-", "9"}, append(w4[:5:5], w4[len(w4)-1]), "no ratios")
	require.Contains(t, text.String(), "only 0 rounds count")
}

func TestFaultNamesTheWorkThatWasNotExclusive(t *testing.T) {
	good := Result{Work: Work{ID: "W1", Clients: 1}}
	require.NoError(t, Report{Results: []Result{good}}.Fault())
	bad := Result{Work: Work{ID: "W4", Clients: 8}, Figures: Figures{Overlaps: 2}}
	require.ErrorContains(t, Report{Results: []Result{good, bad}}.Fault(), "W4 C=8: 2 holds")
}

func TestSelectKeepsTheOrderAndRefusesTheUnknown(t *testing.T) {
	works := Standard([]int{2, 8})
	selected := must.Got(Select(works, []string{"W4", "W1"}))(t)
	var names []string
	for _, w := range selected {
		names = append(names, w.String())
	}
	require.Equal(t, []string{"W1", "W4 C=2", "W4 C=8"}, names)
	require.ErrorContains(t, must.Err(Select(works, []string{"W9"})), "W1, W2, W3, W4, W4h", "what there is")
}

func TestTheTimesOfScriptsAreTold(t *testing.T) {
	redis := startRedisFor(t)
	client := must.Got(rueidis.NewClient(redis))(t)
	t.Cleanup(client.Close)
	settings := func() (found []string) {
		for _, name := range []string{"slowlog-log-slower-than", "slowlog-max-len"} {
			value := must.Got(client.Do(t.Context(), client.B().ConfigGet().Parameter(name).Build()).AsStrMap())(t)
			found = append(found, value[name])
		}
		return found
	}
	before := settings()
	var lines, table bytes.Buffer
	report, err := Run(t.Context(), Config{
		Contenders: []Contender{NewContender(setnx{redis: redis})}, Redis: redis, Works: []Work{{ID: "W1", Clients: 1, Workers: 1}}, Rounds: 1,
		Slice: 40 * time.Millisecond, Restless: true, Lines: &lines, ScriptName: func(string) string { return "ours" },
	})
	require.NoError(t, err)
	require.Len(t, report.Scripts, 1)
	s := report.Scripts[0]
	require.True(t, s.Name == "ours" && s.Of == "W1" && s.Mean > 0 && s.Share == 1, "%+v, want all of the time", s)
	require.Greater(t, s.Calls, report.Results[0].Figures.Cycles, "of these not all were counted")
	require.NoError(t, report.WriteTable(&table))
	require.Contains(t, table.String(), "ours")
	require.Contains(t, lines.String(), `"script":"ours"`)
	require.Equal(t, settings(), before)
}

func TestScriptTimesAreSortedByWhatTheyTook(t *testing.T) {
	runs := []scriptRun{{"aaaaaaaaaa", 1}, {"bbbbbbbbbb", 30}, {"aaaaaaaaaa", 3}, {"aaaaaaaaaa", 2}, {"cc", 4}}
	got := scriptTimes("W1", runs, func(sha string) string { return map[string]string{"aaaaaaaaaa": "ask"}[sha] })
	want := []ScriptTimes{
		{Of: "W1", Name: "bbbbbbbb", Calls: 1, Mean: 30, P50: 30, P99: 30, Max: 30, Share: 0.75},
		{Of: "W1", Name: "ask", Calls: 3, Mean: 2, P50: 2, P99: 3, Max: 3, Share: 0.15},
		{Of: "W1", Name: "cc", Calls: 1, Mean: 4, P50: 4, P99: 4, Max: 4, Share: 0.1},
	}
	require.Equal(t, want, got)
}
