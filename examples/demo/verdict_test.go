package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

var midnight = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// at is a moment of a made-up run.
func at(ms int) time.Time { return midnight.Add(time.Duration(ms) * time.Millisecond) }

// held is a call that went well: called, acquired and released at these milliseconds.
func held(process string, token uint64, called, acquired, released int) call {
	return call{
		process: process, token: token, called: at(called), acquired: at(acquired), ended: at(released),
		deadline: at(acquired + 1500), wrote: true,
	}
}

// dead is a call in the middle of which its process was killed; it had acquired unless that is negative.
func dead(process string, token uint64, called, acquired, killed int) call {
	c := call{process: process, called: at(called), killed: at(killed)}
	if acquired >= 0 {
		c.token, c.acquired, c.deadline = token, at(acquired), at(acquired+1500)
	}
	return c
}

// What the server says of a call, at these milliseconds.
func known(c call, ms int) call   { c.placed = at(ms); return c }
func granted(c call, ms int) call { c.granted = at(ms); return c }
func freed(c call, ms int) call   { c.freed = at(ms); return c }

// fair is a run without a fault, in which B is killed as a waiter and D as the holder.
func fair() []call {
	return []call{
		held("A", 101, 0, 1, 200),
		dead("B", 0, 20, -1, 150),
		held("C", 102, 40, 201, 400),
		dead("D", 103, 60, 402, 450),
		held("E", 104, 80, 1930, 2100),
		held("A", 105, 300, 2101, 2200),
	}
}

func TestAFairRunIsOK(t *testing.T) {
	v := judge(evidence{calls: fair(), counter: 4})
	assert.True(t, v.ok(), "%+v", v)
	assert.Equal(t, 5, v.grants)
	assert.Equal(t, 4, v.processes)
	assert.Equal(t, 1850*time.Millisecond, v.largestWait)
	assert.Equal(t, []time.Duration{time.Millisecond, time.Millisecond, 2 * time.Millisecond}, v.handOffs)
	assert.Equal(t, []death{
		{process: "B", by: "C", cost: time.Millisecond},
		{process: "D", held: true, by: "E", cost: 28 * time.Millisecond},
	}, v.deaths)
	assert.Equal(t, []uint64{101, 105}, []uint64{v.first, v.last})
}

func TestEveryFaultIsReported(t *testing.T) {
	type faults struct{ overlaps, inversions, falls, counter, complaints, costly int }
	for _, c := range []struct {
		name   string
		with   evidence
		faults faults
	}{
		{"two held at once", evidence{counter: 2, calls: []call{
			held("A", 1, 0, 1, 200), held("B", 2, 10, 150, 300),
		}}, faults{overlaps: 1}},
		{"one held beside a long one that began before another", evidence{counter: 3, calls: []call{
			held("A", 1, 0, 1, 500), held("B", 2, 10, 100, 110), held("C", 3, 20, 300, 310),
		}}, faults{overlaps: 2}},
		{"one held before the end of a dead holder's lease", evidence{counter: 1, calls: []call{
			dead("A", 1, 0, 1, 50), held("B", 2, 10, 1400, 1450),
		}}, faults{overlaps: 1}},
		{"one held before the end of the lease of one that vanished", evidence{counter: 1, calls: []call{
			{process: "A", token: 1, called: at(0), acquired: at(1), deadline: at(1501)}, held("B", 2, 10, 1400, 1450),
		}}, faults{overlaps: 1}},
		{"one held beside another that was told lost later", evidence{counter: 1, calls: []call{
			{process: "A", token: 1, called: at(0), acquired: at(1), deadline: at(1501), ended: at(900), lost: true},
			held("B", 2, 10, 800, 1000),
		}}, faults{overlaps: 1, complaints: 1}},
		{"two later calls held first", evidence{counter: 5, calls: []call{
			held("A", 1, 0, 1, 200), held("B", 3, 10, 301, 400), held("C", 2, 20, 201, 300),
			held("D", 5, 30, 501, 600), held("E", 4, 40, 401, 500),
		}}, faults{inversions: 2}},
		{"the last come is the first served", evidence{counter: 4, calls: []call{
			held("A", 1, 0, 1, 200), held("B", 4, 10, 401, 500), held("C", 3, 20, 301, 400), held("D", 2, 30, 201, 300),
		}}, faults{inversions: 2}},
		{"a call never held", evidence{counter: 2, calls: []call{
			held("A", 1, 0, 1, 200), {process: "B", called: at(10)}, held("C", 2, 20, 201, 300),
		}}, faults{inversions: 1, complaints: 1}},
		{"a token fell", evidence{counter: 3, calls: []call{
			held("A", 5, 0, 1, 200), held("B", 4, 10, 201, 300), held("C", 6, 20, 301, 400),
		}}, faults{falls: 1}},
		{"a token came twice", evidence{counter: 2, calls: []call{
			held("A", 5, 0, 1, 200), held("B", 5, 10, 201, 300),
		}}, faults{falls: 1}},
		{"a write was lost", evidence{counter: 1, calls: []call{
			held("A", 1, 0, 1, 200), held("B", 2, 10, 201, 300),
		}}, faults{counter: 1}},
		{"somebody else wrote", evidence{counter: 3, calls: []call{
			held("A", 1, 0, 1, 200), held("B", 2, 10, 201, 300),
		}}, faults{counter: 1}},
		{"a call failed", evidence{counter: 1, calls: []call{
			held("A", 1, 0, 1, 200), {process: "B", called: at(300), failed: "no"},
		}}, faults{complaints: 1}},
		{"a process died by itself", evidence{counter: 1, lone: []string{"C ended"}, calls: []call{
			held("A", 1, 0, 1, 200),
		}}, faults{complaints: 1}},
		{"the clock was set back", evidence{counter: 1, step: -time.Second, calls: []call{
			held("A", 1, 0, 1, 200),
		}}, faults{complaints: 1}},
		{"one call was overtaken of which the server knew", evidence{counter: 3, calls: []call{
			known(held("A", 3, 0, 301, 400), 10), held("B", 1, 11, 12, 200), held("C", 2, 20, 201, 300),
		}}, faults{inversions: 1}},
		{"a dead waiter cost a grant that nobody took", evidence{counter: 2, calls: []call{
			freed(held("A", 1, 0, 1, 200), 202), dead("B", 0, 10, -1, 150), granted(held("C", 2, 20, 2203, 2300), 2202),
		}}, faults{costly: 1}},
		{"a dead holder cost more than its lease", evidence{counter: 1, calls: []call{
			dead("A", 1, 0, 1, 50), granted(held("B", 2, 10, 3100, 3200), 3050),
		}}, faults{costly: 1}},
		{"nothing happened", evidence{}, faults{complaints: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := judge(c.with)
			assert.Equal(t, c.faults, faults{
				len(v.overlaps), len(v.inversions), len(v.falls), len(v.counter), len(v.complaints), len(v.costly),
			}, "%+v", v)
			assert.False(t, v.ok())
			var text strings.Builder
			v.write(&text)
			assert.Contains(t, text.String(), "FAULTY")
		})
	}
}

func TestWhatIsNoFault(t *testing.T) {
	for _, c := range []struct {
		name string
		with evidence
	}{
		{"a call that the server did not know of when the next was made", evidence{counter: 2, calls: []call{
			known(held("A", 2, 0, 201, 300), 7), held("B", 1, 5, 6, 200),
		}}},
		{"the next of a dead waiter was granted at once, and its process learned of it late", evidence{counter: 2, calls: []call{
			freed(held("A", 1, 0, 1, 200), 202), dead("B", 0, 10, -1, 150), granted(held("C", 2, 20, 4203, 4300), 201),
		}}},
		{"the release before a dead waiter was confirmed late", evidence{counter: 2, calls: []call{
			freed(held("A", 1, 0, 1, 200), 2202), dead("B", 0, 10, -1, 150), granted(held("C", 2, 20, 2250, 2300), 2201),
		}}},
		{"the next of a dead waiter came later", evidence{counter: 2, calls: []call{
			freed(held("A", 1, 0, 1, 200), 202), dead("B", 0, 10, -1, 150), granted(held("C", 2, 2200, 2203, 2300), 2202),
		}}},
		{"calls that came together may hold in any order", evidence{counter: 2, calls: []call{
			held("A", 2, 0, 201, 300), held("B", 1, 5, 6, 200),
		}}},
		{"a killed process is overtaken", evidence{counter: 2, calls: []call{
			dead("A", 0, 0, -1, 50), held("B", 1, 10, 60, 100), held("C", 2, 20, 101, 200),
		}}},
		{"a call that was held up on its way, and overtaken by all", evidence{counter: 3, calls: []call{
			held("A", 3, 0, 301, 400), held("B", 1, 10, 11, 200), held("C", 2, 20, 201, 300),
		}}},
		{"a killed holder may have written without saying so", evidence{counter: 2, calls: []call{
			dead("A", 1, 0, 1, 50), held("B", 2, 10, 1510, 1600),
		}}},
		{"a holder that kept silent past its lease had been told by its deadline", evidence{counter: 2, calls: []call{
			held("A", 1, 0, 1, 1700), held("B", 2, 10, 1550, 1800),
		}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := judge(c.with)
			assert.True(t, v.ok(), "%+v", v)
		})
	}
}

func TestTheVerdictInWords(t *testing.T) {
	var text strings.Builder
	judge(evidence{calls: fair(), counter: 4}).write(&text)
	assert.Equal(t, `verdict
  grants             5, to 4 processes
  overlaps           none
  order inversions   none
  tokens             rising, from 101 to 105
  fenced counter     all 4 writes kept
  largest wait       1.85 s
  hand-off           median 1.0 ms, largest 2.0 ms
  killed waiter      B; passed over, C held 1.0 ms after the release
  killed holder      D; E held 28 ms after the end of its lease
  result             ok
`, text.String())
}

func TestACallThatWasHeldUpIsTold(t *testing.T) {
	var text strings.Builder
	judge(evidence{counter: 2, calls: []call{held("A", 2, 0, 201, 300), held("B", 1, 10, 11, 200)}}).write(&text)
	assert.Contains(t, text.String(), "order inversions   none that counts: B called 10ms after A and held before it (token 1), which may have")
	assert.Contains(t, text.String(), "result             ok")
}

func TestOnlyTheFirstFaultsOfAKindAreSpelledOut(t *testing.T) {
	var text strings.Builder
	verdict{falls: []string{"f1", "f2", "f3", "f4", "f5", "f6", "f7"}}.write(&text)
	assert.Contains(t, text.String(), "7 FAULTS")
	assert.Contains(t, text.String(), "f5\n    … and 2 more\n")
}
