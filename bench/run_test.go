package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/must"
)

// startRedisFor starts a redis-server that ends with the test.
func startRedisFor(t *testing.T) rueidis.ClientOption {
	t.Helper()
	r := must.Got(StartRedis(t.Context()))(t)
	t.Cleanup(r.Stop)
	return rueidis.ClientOption{InitAddress: []string{r.Addr}}
}

// smoke is a run that is long enough to count, not to compare.
func smoke(t *testing.T, d setnx, works []Work, lines *bytes.Buffer) Report {
	t.Helper()
	report, err := Run(t.Context(), Config{
		Contenders: []Contender{NewContender(d)}, Redis: d.redis, Works: works, Rounds: 1, Slice: 40 * time.Millisecond, Lines: lines, Log: t.Logf,
	})
	require.NoError(t, err)
	return report
}

func TestEveryWorkRunsOnAServer(t *testing.T) {
	var lines bytes.Buffer
	d := setnx{redis: startRedisFor(t), tokens: &atomic.Uint64{}}
	report := smoke(t, d, Standard([]int{2}), &lines)
	require.NoError(t, report.Fault())
	require.Len(t, report.Results, 5)
	kinds := map[string]int{}
	for line := range strings.Lines(lines.String()) {
		var object struct {
			Kind string `json:"kind"`
			Work string `json:"work"`
		}
		require.NoError(t, json.Unmarshal([]byte(line), &object), line)
		kinds[object.Kind]++
	}
	require.True(t, kinds["run"] == 1 && kinds["result"] == 5 && kinds["slice"] >= 5 && kinds["floor"] > kinds["slice"],
		"lines %v, want one of the run, five results, and floors before and after every slice", kinds)
	require.NoError(t, report.WriteTable(t.Output()))
}

func TestUncontendedCycleOfTheReferenceIsTwoCommands(t *testing.T) {
	d := setnx{redis: startRedisFor(t)}
	ctx := t.Context()
	o := must.Got(newObserver(d.redis))(t)
	defer o.close()
	c := must.Got(newCrew(ctx, &runner{observer: o}, NewContender(d), Work{ID: "W1", Clients: 1, Workers: 1}, "test"))(t)
	defer func() { require.NoError(t, c.close(context.WithoutCancel(ctx))) }()
	f := must.Got(c.measure(ctx, 100*time.Millisecond))(t)
	// One SET and one EVALSHA that calls GET and DEL. A snapshot may fall between the two.
	require.InDelta(t, 3*f.Server.Scripts, f.Server.Others, 1.5/float64(f.Cycles), "three commands for each script")
	require.False(t, f.Server.BytesIn <= 0 || f.Server.BytesOut <= 0 || f.Allocs <= 0, "nothing was counted: %+v", f)
}

func TestLockThatIsNoneIsConvicted(t *testing.T) {
	d := setnx{redis: startRedisFor(t), broken: true}
	// Each hold is longer than the time between two tries, so holds must overlap.
	report := smoke(t, d, []Work{{ID: "W4h", Clients: 4, Workers: 1, Hold: pause}}, &bytes.Buffer{})
	require.ErrorContains(t, report.Fault(), "overlapped")
}

func TestServerThatCannotBeReachedIsAnError(t *testing.T) {
	_, err := Run(t.Context(), Config{
		Contenders: []Contender{NewContender(setnx{})}, Redis: rueidis.ClientOption{InitAddress: []string{"127.0.0.1:1"}}, Rounds: 1, Slice: time.Millisecond,
	})
	require.ErrorContains(t, err, "connect")
}

// steady is a floor that always takes the same.
func steady() *given { return &given{slices.Repeat([]float64{100}, 100)} }

func openSteady(context.Context, rueidis.ClientOption, floorKind, string) (floor, error) {
	return steady(), nil
}

// compare runs rounds of two shams in a bubble.
func compareShams(t *testing.T, own, other sham, rounds int) Compared {
	t.Helper()
	w := Work{ID: "W4", Clients: 4, Workers: 1}
	r := &runner{Config: Config{Slice: 250 * time.Millisecond}, report: &Report{}}
	a, b := &home{crew: crewOf(t, own, w), floors: openFloors{steady()}}, crewOf(t, other, w)
	compared := Compared{Contender: "other", Work: w, Against: "own", AgainstWork: w}
	for i := range rounds {
		round, _, err := r.round(t.Context(), a, b, i%2 == 1)
		require.NoError(t, err)
		compared.Rounds = append(compared.Rounds, round)
	}
	return compared
}

// The machine becomes three times as slow in the course of the rounds. What each lock did then differs by as much, and
// of two slices of different minutes nobody could tell which lock is ahead: the ratio within a round stays.
func TestAPairKnowsWhoIsFasterThoughTheMachineChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own, other, began := newSham(), newSham(), time.Now()
		own.locks, other.locks = time.Millisecond, 1300*time.Microsecond
		own.pace = func() float64 { return 1 + 2*min(1, time.Since(began).Seconds()/10) }
		other.pace = own.pace
		compared := compareShams(t, own, other, 9)
		rates := func(of func(PairRound) Turn) (least, most float64) {
			var all []float64
			for _, r := range compared.Rounds {
				all = append(all, of(r).Rate)
			}
			return slices.Min(all), slices.Max(all)
		}
		least, most := rates(func(r PairRound) Turn { return r.Own })
		require.Greater(t, most, 2*least, "the machine was to change")
		speed := compared.Speed()
		require.True(t, within(speed.Median, 1.3) && !speed.Level() && speed.Rounds == 9 && speed.High-speed.Low <= 0.1, "%v", speed)
	})
}

func TestTwoOfTheSameLockAreLevel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own, began := newSham(), time.Now()
		own.locks = time.Millisecond
		// It swings within a round.
		own.pace = func() float64 { return 1.5 + math.Sin(7*time.Since(began).Seconds()) }
		other := newSham()
		other.locks, other.pace = own.locks, own.pace
		speed := compareShams(t, own, other, 9).Speed()
		require.True(t, speed.Level(), "%v of two that are the same", speed)
	})
}

// CPU is for one hand-off where clients contend, whoever cycles, and for a cycle elsewhere.
func TestATurnIsOfHandOffsOrOfCycles(t *testing.T) {
	f := Figures{Seconds: 2, Cycles: 1000, Rate: 500, Passed: 50, CPU: 30, HandOff: Quantiles{P50: 4000}}
	f.Server.CPUMicros = 20
	for _, c := range []struct {
		work Work
		want Turn
	}{
		{Work{ID: "W1", Clients: 1, Workers: 1}, Turn{500, 30, 20}},
		{Work{ID: "W2", Clients: 1, Workers: 64, Own: true}, Turn{500, 30, 20}},
		{Work{ID: "W4", Clients: 8, Workers: 1}, Turn{50, 300, 200}},
		{Work{ID: "W4h", Clients: 8, Workers: 1, Hold: pause}, Turn{250, 300, 200}},
	} {
		require.EqualValues(t, c.want, turn(c.work, f, f), c.work)
	}
	require.Zero(t, turn(Work{ID: "W4", Clients: 8, Workers: 1}, Figures{Seconds: 1}), "of nothing")
}

func TestARatioHasItsInterval(t *testing.T) {
	r := RatioOf([]float64{1, 3, 2, math.NaN(), 4, 5, 6, 7})
	require.True(t, r.Median == 4 && r.Low == 1 && r.High == 7 && r.Rounds == 7 && r.Level(), "%+v of seven", r)
	require.False(t, RatioOf([]float64{2, 2.1, 2.2, 2.3, 2.4, 2.5, 2.6}).Level())
	r = RatioOf(nil)
	require.True(t, math.IsNaN(r.Median) && r.Rounds == 0, "%+v of nothing", r)
	// A lock that did nothing in a round is infinitely slower, not a panic.
	c := Compared{Rounds: slices.Repeat([]PairRound{{Own: Turn{Rate: 5}}}, 7)}
	r = c.Speed()
	require.True(t, math.IsInf(r.Median, 1) && !r.Level(), "%+v against a lock that does nothing", r)
	require.Zero(t, c.CPU().Rounds)
}

func TestPairsAreOfTheOwnLock(t *testing.T) {
	cast := []Contender{
		{Name: "own", Ours: true, Driver: newSham()}, {Name: "bare", Ours: true, Only: []string{"W1", "W2", "W4"}, Driver: newSham()},
		{Name: "rival", Driver: newSham()}, {Name: "redlock", Ours: true, Only: []string{"R5"}, Driver: newSham()},
		{Name: "nodes", Only: []string{"R5"}, Driver: newSham()},
	}
	works := slices.Concat(Standard([]int{8})[:4], FamilyWorks(), RedlockWorks())
	pairs, alone := Pairs(cast, works)
	var got []string
	for i, p := range pairs {
		got = append(got, p.Other.Name+" "+p.OtherWork.ID+" against "+p.OwnWork.ID)
		if p.Own.Name != "own" && p.Other.Name != "nodes" || i > 0 && p.key() != pairs[i-1].key() && slices.ContainsFunc(pairs[:i], func(q Pair) bool { return q.key() == p.key() }) {
			t.Errorf("pair %d: %s in %v: pairs of one work of the own lock stand together", i, p.Own.Name, p.OwnWork)
		}
	}
	want := []string{
		"bare W1 against W1", "rival W1 against W1", "own R1 against W1", "bare W2 against W2", "bare W4 against W4", "rival W4 against W4",
		"own R4 against W4", "own S4 against W4", "own S16 against W4", "own RW against W2", "redlock R5 against W1", "redlock R5 against W4", "redlock R5 against W4",
		"nodes R5 against R5", "nodes R5 against R5", "nodes R5 against R5",
	}
	require.ElementsMatch(t, want, got)
	require.False(t, len(alone) != 1 || alone[0].Kind != KindLatch, "%v have no mutex to compare with, want the latch", alone)
}

// A link is the same for both locks of a pair, except where the wire itself is measured.
func TestPairsOverANetworkHaveTheSameLink(t *testing.T) {
	var cast []Contender
	for _, link := range []string{"", "0s", "1ms"} {
		for _, c := range []Contender{{Name: "own", Ours: true}, {Name: "unlock", Ours: true, Background: true}, {Name: "rival"}} {
			c.Link = link
			cast = append(cast, c)
		}
	}
	works := Standard([]int{8})[:1]
	var got []string
	for _, p := range LinkedPairs(cast, works, []string{"0s", "1ms"}) {
		require.Equal(t, p.Own.Link, p.OwnWork.Link)
		require.Equal(t, p.Other.Link, p.OtherWork.Link)
		got = append(got, fmt.Sprintf("%s %v, %s %v", p.Own.Name, p.OwnWork, p.Other.Name, p.OtherWork))
	}
	require.Equal(t, []string{
		"own W1, own W1 at 0s", "unlock W1, unlock W1 at 0s", "own W1 at 1ms, unlock W1 at 1ms", "own W1 at 1ms, rival W1 at 1ms",
	}, got)
}

func TestALockIsComparedWithWhatItReplaces(t *testing.T) {
	own, rival, adapter := Contender{Name: "own", Ours: true}, Contender{Name: "rival"}, Contender{Name: "adapter", Replaces: "rival"}
	works := []Work{{ID: "W1", Clients: 1, Workers: 1}, {ID: "W2", Clients: 1, Workers: 64, Own: true}, {ID: "W4", Clients: 8, Workers: 1}, {ID: "W4", Clients: 128, Workers: 1}}
	for _, c := range []struct {
		cast []Contender
		want string
	}{
		{[]Contender{own, rival, adapter}, "own/rival W1, adapter/rival W1, own/rival W4 C=8, adapter/rival W4 C=8, own/rival W4 C=128"},
		{[]Contender{rival, adapter}, "adapter/rival W1, adapter/rival W4 C=8"},
		{[]Contender{adapter, {Name: "before"}}, "adapter/before W1, adapter/before W4 C=8, adapter/before W4 C=128"},
	} {
		pairs, _ := Pairs(c.cast, works)
		var got []string
		for _, p := range pairs {
			got = append(got, p.Own.Name+"/"+p.Other.Name+" "+p.OwnWork.String())
		}
		require.ElementsMatch(t, strings.Split(c.want, ", "), got)
	}
}

// lucky is a lock each of whose clients is by chance faster or slower for as long as it lives.
type lucky struct {
	sham
	*rand.Rand
	made *int
}

func (d lucky) NewClient(context.Context) (Client, error) {
	*d.made++
	s := newSham()
	s.locks = time.Duration(float64(time.Millisecond) * (1 + d.NormFloat64()/20))
	return s, nil
}

// What lasts as long as a process or a connection lives is chance too, and another one in the next run: so two of the
// same lock are level for nearly all seeds, which they would be for none if all rounds had the same clients.
func TestTheLuckOfAClientIsInTheInterval(t *testing.T) {
	const seeds, rounds = 20, 9
	level, all := 0, 0
	for seed := range uint64(seeds) {
		synctest.Test(t, func(t *testing.T) {
			made, restarts := 0, 0
			d := lucky{newSham(), rand.New(rand.NewPCG(seed, 1)), &made}
			w := Work{ID: "W1", Clients: 1, Workers: 1}
			own, cold := Contender{Name: "own", Driver: d}, Contender{Name: "cold", Driver: d, Warm: 100 * time.Millisecond}
			r := &runner{report: &Report{}, blind: true, warmed: map[string]bool{}, open: openSteady, Config: Config{
				Slice: 60 * time.Millisecond, FloorSlice: 10 * time.Millisecond, Rounds: rounds,
				Pairs:   []Pair{{own, Contender{Name: "other", Driver: d}, w, w}, {own, cold, w, w}},
				Restart: func() error { restarts++; return nil },
			}}
			require.NoError(t, r.pairs(t.Context()))
			require.Len(t, r.report.Compared, 2)
			require.Empty(t, r.report.Missing)
			for _, c := range r.report.Compared {
				speed := c.Speed()
				require.EqualValues(t, rounds, speed.Rounds, c)
				if c.Contender == "other" {
					all++
					if speed.Level() {
						level++
					}
				}
			}
			// One of each in every pass.
			require.Equal(t, 3*rounds, made, "clients")
			require.Equal(t, rounds-1, restarts)
		})
	}
	t.Logf("level in %d of %d", level, all)
	require.False(t, level < all*9/10, "level in %d of %d: want about 96 in a hundred", level, all)
}
