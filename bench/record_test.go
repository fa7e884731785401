package bench

import (
	"testing"
	"time"
)

const ms = int64(time.Millisecond)

// served is a call that began at start and got the lock at acquired, both in ms, and held it for 1 ms.
func served(start, acquired int64) event {
	return event{due: start * ms, start: start * ms, acquired: acquired * ms, releasing: (acquired + 1) * ms, released: (acquired + 2) * ms}
}

func TestInversionsArePairsAndTheOvertakenAreCalls(t *testing.T) {
	for _, c := range []struct {
		name   string
		events []event
		want   int // pairs
		behind int // calls that were overtaken
	}{
		{"nobody", nil, 0, 0},
		{"in order", []event{served(0, 10), served(20, 30), served(25, 40)}, 0, 0},
		{"too close to call", []event{served(5, 10), served(0, 20)}, 0, 0},
		{"later by more than the slack, served first", []event{served(6, 10), served(0, 20)}, 1, 1},
		{"one overtakes three", []event{served(0, 20), served(1, 30), served(2, 40), served(9, 10)}, 3, 3},
		{"one is overtaken by three", []event{served(0, 50), served(10, 20), served(11, 30), served(12, 40)}, 3, 1},
		{"last in, first out", []event{served(0, 70), served(10, 60), served(20, 50), served(30, 40)}, 6, 3},
		{"a call that began after the other was served", []event{served(0, 10), served(11, 12)}, 0, 0},
	} {
		if got := inversions(c.events, slack, 0); got != c.want {
			t.Errorf("%s: %d inversions, want %d", c.name, got, c.want)
		}
		if got := overtaken(c.events, slack, 0); got != c.behind {
			t.Errorf("%s: %d are overtaken, want %d", c.name, got, c.behind)
		}
	}
}

func TestInversionsOfAColdStartDoNotCount(t *testing.T) {
	events := []event{served(0, 70), served(10, 60), served(20, 50), served(30, 40)}
	for i := range events {
		events[i].worker = i
	}
	f := figures(events, window{15 * ms, 100 * ms}, true)
	if f.Inversions != 0 {
		t.Errorf("%d inversions, want none", f.Inversions)
	}
	// Who starves from the start is overtaken all the same.
	late := served(150, 160)
	late.worker = 9
	events[0].acquired = 200 * ms
	if f := figures(append(events, late), window{15 * ms, 300 * ms}, true); f.Inversions != 1 {
		t.Errorf("%d inversions, want that of the one who came 150 ms after the first and was served before", f.Inversions)
	}
}

func TestInversionsAreOfOneLock(t *testing.T) {
	first, second := served(6, 10), served(0, 20)
	second.lock = 1
	if got := inversions([]event{first, second}, slack, 0); got != 0 {
		t.Errorf("%d inversions between two locks", got)
	}
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
	if passed != 3 || q.Count != 3 || !near(q.P50, 3000) || !near(q.Max, 11000) {
		t.Errorf("got %+v, want 3 of p50 3,000 µs and max 11,000 µs", q)
	}
}

// With calls that arrive at a rate a lock may be free for a while: that is nobody's delay.
func TestALockThatNobodyHadCalledForIsNotHandedOff(t *testing.T) {
	events := []event{hold(1, 0, 10, 20), hold(2, 1, 23, 40), hold(3, 60, 61, 70), hold(4, 65, 72, 80)}
	for i := range events {
		events[i].arrived = true
	}
	f := figures(events, window{0, 100 * ms}, true)
	if f.HandOff.Count != 2 || !near(f.HandOff.Max, 3000) {
		t.Errorf("hand-offs %+v, want those of 3 and 2 ms", f.HandOff)
	}
	if f.Passed != 30 {
		t.Errorf("%v a second after a hold of another, want 30", f.Passed)
	}
}

func TestHandOffWithoutTokensGoesByTime(t *testing.T) {
	events := []event{hold(0, 0, 23, 40), hold(0, 0, 10, 20), hold(0, 0, 42, 50)}
	spans, _ := handOffs(events, window{0, 1000 * ms})
	if q := spans.quantiles(); q.Count != 2 || !near(q.Max, 3000) {
		t.Errorf("got %+v, want 2 of at most 3,000 µs", q)
	}
}

func TestAHoldAfterAnOwnOneIsNoHandOff(t *testing.T) {
	events := []event{hold(1, 0, 10, 20), hold(2, 21, 22, 40), hold(3, 0, 42, 50)}
	events[1].worker = events[0].worker
	f := figures(events, window{0, 100 * ms}, true)
	if f.HandOff.Count != 1 || f.Passed != 10 || f.Rate != 30 {
		t.Errorf("%d hand-offs, %v a second of %v cycles, want 1, 10 and 30", f.HandOff.Count, f.Passed, f.Rate)
	}
}

func TestHandOffsStayWithinALock(t *testing.T) {
	events := []event{hold(1, 0, 10, 20), hold(2, 0, 25, 30)}
	events[1].lock = 1
	spans, _ := handOffs(events, window{0, 1000 * ms})
	if q := spans.quantiles(); q.Count != 0 {
		t.Errorf("%d hand-offs between two locks", q.Count)
	}
}

func TestOnlyWhatIsAcquiredInTheWindowCounts(t *testing.T) {
	events := []event{hold(1, 0, 99, 110), hold(2, 0, 111, 150), hold(3, 0, 153, 160), hold(4, 0, 200, 210)}
	f := figures(events, window{100 * ms, 200 * ms}, true)
	if f.Cycles != 2 || f.Acquire.Count != 2 || f.Release.Count != 2 || f.HandOff.Count != 2 {
		t.Errorf("got %+v, want 2 of each", f)
	}
	if f.Seconds != 0.1 || f.Rate != 20 {
		t.Errorf("%v s and %v a second, want 0.1 and 20", f.Seconds, f.Rate)
	}
}

func TestOverlapsAreOfMoreHoldsThanMay(t *testing.T) {
	three := []event{hold(1, 0, 10, 40), hold(1, 0, 20, 40), hold(1, 0, 30, 50)}
	for limit, want := range map[int]int{1: 2, 2: 1, 3: 0} {
		if got, _ := overlaps(three, limit); got != want {
			t.Errorf("%d overlaps where %d may hold, want %d", got, limit, want)
		}
	}
	three[0].lock = 1
	if got, _ := overlaps(three, 2); got != 0 {
		t.Errorf("%d overlaps between two locks", got)
	}
}
