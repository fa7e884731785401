package bench

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/must"
)

// crewOf is a crew without a server.
func crewOf(t *testing.T, d Driver, w Work) *crew {
	t.Helper()
	c := must.Got(newCrew(t.Context(), &runner{}, Contender{Name: d.Name(), Driver: d}, w, "test"))(t)
	t.Cleanup(func() { require.NoError(t, c.close(context.Background())) })
	return c
}

// within allows for five parts in a hundred.
func within(got, want float64) bool { return math.Abs(got-want) <= want/20 }

// What a driver is known to take must come out again.
func TestAKnownDelayIsReadBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newSham()
		d.locks, d.leaves = 10*time.Millisecond, 6*time.Millisecond
		f := must.Got(crewOf(t, d, Work{ID: "W1", Clients: 1, Workers: 1}).measure(t.Context(), time.Second))(t)
		require.InEpsilon(t, 10_000, f.Acquire.P50, 0.05)
		require.InEpsilon(t, 6_000, f.Release.P50, 0.05)
		require.InEpsilon(t, 1000./16, f.Rate, 0.05)
	})
}

// Four clients of a lock that takes 10 ms to give and 6 ms to take back: a hand-off takes both, and a wait four of
// them less a release.
func TestAKnownHandOffIsReadBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newSham()
		d.locks, d.leaves = 10*time.Millisecond, 6*time.Millisecond
		f := must.Got(crewOf(t, d, Work{ID: "W4", Clients: 4, Workers: 1}).measure(t.Context(), time.Second))(t)
		require.InEpsilon(t, 16_000, f.HandOff.P50, 0.05)
		require.InEpsilon(t, 58_000, f.Acquire.P50, 0.05)
		require.True(t, f.Inversions == 0 && f.Overlaps == 0 && f.Passed == f.Rate && f.Jain >= 0.98, "%+v of a lock that is fair", f)
	})
}

// conviction runs a driver, and returns what the report says of it.
func conviction(t *testing.T, d Driver) error {
	t.Helper()
	w := Work{ID: "W4", Clients: 4, Workers: 1, Hold: 10 * time.Millisecond}
	f := must.Got(crewOf(t, d, w).measure(t.Context(), 400*time.Millisecond))(t)
	report := Report{
		Environment: Environment{Contenders: []Entry{{Name: d.Name(), Fair: true}}},
		Results:     []Result{{Contender: d.Name(), Work: w, Figures: f}},
	}
	return report.Fault()
}

func TestALockThatBreaksItsOrderIsConvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := shamThatTakesTime()
		require.NoError(t, conviction(t, d))
		d = shamThatTakesTime()
		d.last = true
		require.ErrorContains(t, conviction(t, d), "against their order")
	})
}

// One call may be held up on its way. Where the machine is known to be restless, any number may.
func TestAVerdictOnOrderNeedsMoreThanOneCall(t *testing.T) {
	for _, c := range []struct {
		overtaken, cycles int
		fair, restless    bool
		convicted         bool
	}{
		{overtaken: 0, cycles: 40, fair: true},
		{overtaken: 1, cycles: 40, fair: true},
		{overtaken: 2, cycles: 40, fair: true, convicted: true},
		{overtaken: 2, cycles: 40},
		{overtaken: 20, cycles: 40, fair: true, restless: true},
		{overtaken: 4, cycles: 2000, fair: true},
		{overtaken: 5, cycles: 2000, fair: true, convicted: true},
	} {
		report := Report{
			Environment: Environment{Contenders: []Entry{{Name: "a", Fair: c.fair}}, Restless: c.restless},
			Results:     []Result{{Contender: "a", Figures: Figures{Cycles: c.cycles, Overtaken: c.overtaken}}},
		}
		require.Equal(t, c.convicted, report.Fault() != nil, c)
	}
	// A lock with two holders is convicted wherever that is.
	report := Report{Environment: Environment{Restless: true}, Results: []Result{{Figures: Figures{Overlaps: 1}}}}
	require.Error(t, report.Fault(), "an overlap on a restless machine is no fault")
}

func TestALockThatLetsEverybodyInIsConvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := shamThatTakesTime()
		d.broken = true
		require.ErrorContains(t, conviction(t, d), "overlapped")
	})
}

// shamThatTakesTime is a sham that takes a millisecond: by a clock that stands still
// while it works, a slice would never end.
func shamThatTakesTime() sham {
	d := newSham()
	d.locks = time.Millisecond
	return d
}

// given is a floor that measures what it is given.
type given struct{ micros []float64 }

func (g *given) measure(context.Context, time.Duration) (Floor, error) {
	f := Floor{Name: floorCycle, Micros: g.micros[0]}
	g.micros = g.micros[1:]
	return f, nil
}

func (g *given) close() {}

func TestARoundWhoseFloorMovedIsRunAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := crewOf(t, shamThatTakesTime(), Work{ID: "W1", Clients: 1, Workers: 1})
		r := &runner{Config: Config{Rounds: 2, Slice: 5 * time.Millisecond}, report: &Report{}}
		// The second measurement is a jump up, the fourth one down: neither round with a jump counts.
		floor := &given{[]float64{100, 200, 210, 100, 110}}
		kept, again, _, err := r.rounds(t.Context(), "sham", c, openFloors{floor})
		require.NoError(t, err)
		require.Len(t, kept, 2)
		require.Equal(t, 2, again)
		require.Equal(t, []float64{205, 105}, []float64{kept[0].Floors[floorCycle], kept[1].Floors[floorCycle]}, "of the quiet rounds")
		require.Len(t, r.report.Slices, 2)
	})
}

// A call that stalls makes those late that were due meanwhile. With a closed loop there are none, and with arrivals
// they must not be forgotten.
func TestCallsThatCouldNotBeMadeInTimeCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := shamThatTakesTime()
		d.stall = 300 * time.Millisecond
		w := Work{ID: "W1", Clients: 1, Workers: 1, Arrival: 200}
		f := must.Got(crewOf(t, d, w).measure(t.Context(), time.Second))(t)
		// About sixty of two hundred calls were due while one stalled.
		require.False(t, f.Acquire.P90 < 100_000, "a tenth waited longer than %v µs: want the stall in it", f.Acquire.P90)
	})
}

// Calls arrive from the moment at which that begins, a little before the window: those that are late at its end are those
// that were due since then and had not begun, and no others.
func TestCallsThatHadNotBegunAreCounted(t *testing.T) {
	const rate = 100
	begun, counted := int64(0), window{300 * ms, 1300 * ms}
	c := &crew{work: Work{ID: "W1", Clients: 1, Workers: 1, Arrival: rate}}
	from := newArrivals(rate, begun)
	made := tally{arrivals: begun, events: []event{{start: -5 * ms, acquired: -4 * ms}}} // And one of the time before.
	for due := from.take(); due < counted.to; due = from.take() {
		made.events = append(made.events, event{arrived: true, due: due, start: due, acquired: due + 1, releasing: due + 1, released: due + 2})
	}
	require.Zero(t, c.figures(measured{window: counted}, made).Late, "all were made when they were due")
	made.events = made.events[:len(made.events)-7]
	require.EqualValues(t, 7, c.figures(measured{window: counted}, made).Late)
}

// A lock that keeps up has the rate at which calls arrive, whatever it costs: there is no ratio in that, but in gaps.
func TestRatesOfArrivalsAreComparedWithNothing(t *testing.T) {
	round := Round{Floors: map[string]float64{floorCycle: 100, floorParallel: 100, floorPaced: 100}, Figures: Figures{Rate: 200, HandOff: Quantiles{P50: 150}}}
	for _, c := range []struct {
		work  Work
		floor string
		ratio float64 // 0: none
	}{
		{Work{ID: "W1", Clients: 1, Workers: 1, Arrival: 200}, "", 0},
		{Work{ID: "W2", Clients: 1, Workers: 64, Own: true, Arrival: 200}, "", 0},
		{Work{ID: "W4", Clients: 8, Workers: 1, Arrival: 200}, floorPaced, 1.5},
		{Work{ID: "W1", Clients: 1, Workers: 1}, floorCycle, 0.02},
	} {
		floor, ratio := ToFloor(summarize(c.work, []Round{round}, 0))
		require.Equal(t, c.floor, floor, c.work)
		require.Equal(t, c.ratio, ratio, c.work)
		require.NotEmpty(t, c.work.floors(), "%v: no floor tells whether the machine is quiet", c.work)
	}
}

// A message is what a hand-off costs at the least: it is no floor where nobody waits for anybody.
func TestWorksAreComparedWithWhatTheyCannotDoWithout(t *testing.T) {
	want := map[string][]string{
		"W1": {floorCycle}, "W2": {floorParallel}, "W3": {floorCycle, floorMessage}, "W4": {floorCycle, floorMessage}, "W4h": {floorPaced},
		"R1": {floorCycle}, "R4": {floorCycle, floorMessage}, "S4": {floorCycle, floorMessage}, "S16": {floorParallel}, "RW": {floorParallel}, "L1": nil,
	}
	for _, w := range append(FamilyWorks(), Standard([]int{8})...) {
		var floors []string
		for _, kind := range w.floors() {
			floors = append(floors, kind.name)
		}
		require.Equal(t, want[w.ID], floors, w)
	}
}

// Sixteen permits and as many holders are not compared with one worker.
func TestAFloorHasAsManyWorkersAsTheWork(t *testing.T) {
	want := map[string]int{"R1": 1, "R4": 1, "S4": 1, "S16": 64, "RW": 64, "W1": 1, "W2": 64, "W3": 1, "W4": 1}
	for _, w := range append(FamilyWorks(), Standard([]int{8})...) {
		for _, kind := range w.floors() {
			require.True(t, kind.workers <= 0 || kind.workers == want[w.ID], "%v: a floor with %d workers", w, kind.workers)
		}
	}
}

func TestArrivalsComeAtTheirRate(t *testing.T) {
	n := dueUntil(1000, 0, int64(10*time.Second))
	require.False(t, n < 9_500 || n > 10_500, "%d arrivals in 10 s, want about 10,000", n)
}
