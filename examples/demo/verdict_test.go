package main

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
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

// dead is a call whose process was killed in the middle; it had acquired unless that is negative.
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
	v := verdictOn(evidence{calls: fair(), counter: 4})
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
		{"one held before the end of a dead holder's lease", evidence{counter: 1, calls: []call{
			dead("A", 1, 0, 1, 50), held("B", 2, 10, 1400, 1450),
		}}, faults{overlaps: 1}},
		{"one held together with another that was told lost later", evidence{counter: 1, calls: []call{
			{process: "A", token: 1, called: at(0), acquired: at(1), deadline: at(1501), ended: at(900), lost: true},
			held("B", 2, 10, 800, 1000),
		}}, faults{overlaps: 1, complaints: 1}},
		{"two later calls held first", evidence{counter: 5, calls: []call{
			held("A", 1, 0, 1, 200), held("B", 3, 10, 301, 400), held("C", 2, 20, 201, 300),
			held("D", 5, 30, 501, 600), held("E", 4, 40, 401, 500),
		}}, faults{inversions: 2}},
		{"a call never held", evidence{counter: 2, calls: []call{
			held("A", 1, 0, 1, 200), {process: "B", called: at(10)}, held("C", 2, 20, 201, 300),
		}}, faults{inversions: 1, complaints: 1}},
		{"a token fell", evidence{counter: 3, calls: []call{
			held("A", 5, 0, 1, 200), held("B", 4, 10, 201, 300), held("C", 6, 20, 301, 400),
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
		{"one call was overtaken that the server knew", evidence{counter: 3, calls: []call{
			known(held("A", 3, 0, 301, 400), 10), held("B", 1, 11, 12, 200), held("C", 2, 20, 201, 300),
		}}, faults{inversions: 1}},
		{"a dead waiter cost a grant that nobody took", evidence{counter: 2, calls: []call{
			freed(held("A", 1, 0, 1, 200), 202), dead("B", 0, 10, -1, 150), granted(held("C", 2, 20, 2203, 2300), 2202),
		}}, faults{costly: 1}},
		{"a dead holder cost more than its lease", evidence{counter: 1, calls: []call{
			dead("A", 1, 0, 1, 50), granted(held("B", 2, 10, 3600, 3700), 3550),
		}}, faults{costly: 1}},
		{"nothing happened", evidence{}, faults{complaints: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := verdictOn(c.with)
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
			v := verdictOn(c.with)
			assert.True(t, v.ok(), "%+v", v)
		})
	}
}

func TestTheVerdictInWords(t *testing.T) {
	var text strings.Builder
	verdictOn(evidence{calls: fair(), counter: 4}).write(&text)
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
	verdictOn(evidence{counter: 2, calls: []call{held("A", 2, 0, 201, 300), held("B", 1, 10, 11, 200)}}).write(&text)
	assert.Contains(t, text.String(), "order inversions   none that counts; one call may have been held up on its way: overtaken by 1: B (token 1) called 10ms after A")
	assert.Contains(t, text.String(), "result             ok")
}

func TestOnlyTheFirstFaultsOfAKindAreSpelledOut(t *testing.T) {
	var text strings.Builder
	verdict{falls: []string{"f1", "f2", "f3", "f4", "f5", "f6", "f7"}}.write(&text)
	assert.Contains(t, text.String(), "7 FAULTS")
	assert.Contains(t, text.String(), "f5\n    … and 2 more\n")
}

// drawing is a board on which A holds, B and C wait, and D was killed.
func drawing() (*board, []string) {
	b := &board{title: "a demo", started: at(0)}
	for i, name := range []string{"A", "B", "C", "D"} {
		b.seats = append(b.seats, &seat{name: name, pid: 1001 + i})
	}
	say := func(process string, k kind, ms int, more ...func(*event)) {
		e := tell(k, ms, more...)
		e.Process = process
		b.add(e)
	}
	for _, s := range b.seats {
		say(s.name, kindReady, 0)
	}
	say("A", kindCalled, 10)
	say("A", kindHeld, 12, token(71))
	say("D", kindCalled, 50)
	say("B", kindCalled, 90)
	say("C", kindCalled, 130)
	say("D", kindKilled, 150)
	say("D", kindGone, 160, saying("signal: killed"))
	say("A", kindRenewed, 170)
	return b, b.settle(at(1000))
}

func TestTheLogTellsWhoWaitsAndWhoHolds(t *testing.T) {
	b, lines := drawing()
	assert.Equal(t, []string{
		"  0.010 s  A  calls Lock, 0 ahead",
		"  0.012 s  A  HOLDS by token 71, waited 2.0 ms",
		"  0.050 s  D  calls Lock, 1 ahead",
		"  0.090 s  B  calls Lock, 2 ahead",
		"  0.130 s  C  calls Lock, 3 ahead",
		"  0.150 s  D  KILLED while it waits (kill -9 1004)",
	}, lines)
	assert.Equal(t, lines, b.lines)
}

func TestTheLogIsInTheOrderOfWhatHappened(t *testing.T) {
	b := &board{started: at(0), seats: []*seat{{name: "A", kind: kindHeld, since: at(0)}, {name: "B", kind: kindCalled}}}
	b.add(event{Process: "B", Kind: kindHeld, At: at(101)})
	assert.Empty(t, b.settle(at(100)))
	b.add(event{Process: "A", Kind: kindReleased, At: at(99)})
	assert.Len(t, b.settle(at(100)), 1)
	assert.Len(t, b.settle(at(200)), 1)
	assert.Contains(t, b.lines[0], "A  releases")
	assert.Contains(t, b.lines[1], "B  HOLDS")
}

func TestTheScreenShowsEveryProcess(t *testing.T) {
	b, _ := drawing()
	var text []string
	for _, r := range render(b, at(200), 14) {
		text = append(text, strings.TrimRight(r.Text, " "))
	}
	assert.Equal(t, []string{
		"a demo   0.2 s",
		"",
		"   pid      state                  token              waited     grants",
		"A  1001     HOLDS for 188 ms       71                 2.0 ms          1",
		"B  1002     waits, place 1                            110 ms          0",
		"C  1003     waits, place 2                            70 ms           0",
		"D  1004     killed while it waits                                     0",
		"",
		"  0.010 s  A  calls Lock, 0 ahead",
		"  0.012 s  A  HOLDS by token 71, waited 2.0 ms",
		"  0.050 s  D  calls Lock, 1 ahead",
		"  0.090 s  B  calls Lock, 2 ahead",
		"  0.130 s  C  calls Lock, 3 ahead",
		"  0.150 s  D  KILLED while it waits (kill -9 1004)",
	}, text)
}

func TestADeadHoldersLeaseIsShownToItsEnd(t *testing.T) {
	b := &board{started: at(0), seats: []*seat{{name: "A", pid: 1}}}
	b.add(tell(kindCalled, 0))
	b.add(tell(kindHeld, 1, token(7), until(1501)))
	b.add(tell(kindKilled, 101))
	assert.Equal(t, []string{
		"  0.000 s  A  calls Lock, 0 ahead",
		"  0.001 s  A  HOLDS by token 7, waited 1.0 ms",
		"  0.101 s  A  KILLED while it HOLDS (kill -9 1), its lease ends in 1.40 s",
	}, b.settle(at(200)))
	assert.Contains(t, b.seats[0].render(0, at(501)).Text, "killed; lease 1.00 s")
	assert.Contains(t, b.seats[0].render(0, at(1501)).Text, "killed while it HOLDS")
}

func TestTheScreenFitsAnyWindow(t *testing.T) {
	b, _ := drawing()
	for height := 1; height < 30; height++ {
		rows := render(b, at(200), height)
		assert.LessOrEqual(t, len(rows), height)
		assert.Equal(t, len(rows), len(render(b, at(250), height)), "a screen of one height must not jump")
	}
}

func TestWithoutATerminalThereIsAPlainLog(t *testing.T) {
	var out bytes.Buffer
	v := newView(&out)
	b, _ := drawing()
	v.happened("one")
	v.draw(b, time.Now())
	v.happened("two")
	v.close()
	assert.Equal(t, "one\ntwo\n", out.String())
}

// tell is an event of process A in a made-up run.
func tell(k kind, ms int, more ...func(*event)) event {
	e := event{Process: "A", Kind: k, At: at(ms)}
	for _, m := range more {
		m(&e)
	}
	return e
}

func token(n uint64) func(*event)  { return func(e *event) { e.Token = n } }
func until(ms int) func(*event)    { return func(e *event) { e.Deadline = at(ms) } }
func saying(s string) func(*event) { return func(e *event) { e.Text = s } }
func wrote(e *event)               { e.Wrote = true }

func TestCallsAreMadeOfEvents(t *testing.T) {
	for _, c := range []struct {
		name   string
		events []event
		call   call
		lone   int
	}{
		{"a hold that was renewed and released", []event{
			tell(kindReady, 0), tell(kindCalled, 1), tell(kindHeld, 2, token(7), until(102)),
			tell(kindRenewed, 35, until(135)), tell(kindReleased, 50, until(135), wrote), tell(kindReady, 51),
			tell(kindGone, 60),
		}, call{process: "A", called: at(1), acquired: at(2), ended: at(50), deadline: at(135), token: 7, wrote: true}, 0},
		{"a hold that was lost, and then released in vain", []event{
			tell(kindCalled, 1), tell(kindHeld, 2, token(7), until(102)), tell(kindLost, 90),
			tell(kindReleased, 91, until(102)), tell(kindLost, 92), tell(kindReady, 93),
		}, call{process: "A", called: at(1), acquired: at(2), ended: at(90), deadline: at(102), token: 7, lost: true}, 0},
		{"a holder that was killed", []event{
			tell(kindCalled, 1), tell(kindHeld, 2, token(7), until(102)), tell(kindKilled, 5), tell(kindGone, 6, saying("signal: killed")),
		}, call{process: "A", called: at(1), acquired: at(2), deadline: at(102), token: 7, killed: at(5)}, 0},
		{"a waiter that was killed", []event{
			tell(kindCalled, 1), tell(kindKilled, 5), tell(kindGone, 6, saying("signal: killed")),
		}, call{process: "A", called: at(1), killed: at(5)}, 0},
		{"a release that came before the kill", []event{
			tell(kindCalled, 1), tell(kindHeld, 2, token(7), until(102)), tell(kindKilled, 5),
			tell(kindReleased, 4, until(102)), tell(kindGone, 6, saying("signal: killed")),
		}, call{process: "A", called: at(1), acquired: at(2), ended: at(4), deadline: at(102), token: 7}, 0},
		{"a process that died by itself", []event{
			tell(kindCalled, 1), tell(kindGone, 6, saying("exit status 2")),
		}, call{process: "A", called: at(1)}, 1},
		{"a call that failed", []event{
			tell(kindCalled, 1), tell(kindFailed, 6, saying("no")), tell(kindReady, 7),
		}, call{process: "A", called: at(1), failed: "no"}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRecorder()
			for _, e := range c.events {
				r.add(e)
			}
			require.Len(t, r.calls, 1)
			assert.Equal(t, c.call, r.calls[0])
			assert.Len(t, r.lone, c.lone)
			held, inTheAct := r.died("A")
			assert.Equal(t, !c.call.killed.IsZero(), inTheAct)
			assert.Equal(t, inTheAct && !c.call.acquired.IsZero(), held)
		})
	}
}

func TestAFailureWithoutACallIsKept(t *testing.T) {
	r := newRecorder()
	r.add(tell(kindFailed, 1, saying("no")))
	r.add(tell(kindGone, 2, saying("exit status 1")))
	assert.Equal(t, []string{"A failed: no", "A ended by itself: exit status 1"}, r.lone)
}

func TestAnEventKeepsItsTimesOverJSON(t *testing.T) {
	sent := event{Process: "A", Kind: kindHeld, At: time.Now(), Token: 1<<53 - 1, Deadline: time.Now().Add(time.Second)}
	text := kit.Got(json.Marshal(sent))(t)
	var got event
	require.NoError(t, json.Unmarshal(text, &got))
	assert.True(t, got.At.Equal(sent.At))
	assert.True(t, got.Deadline.Equal(sent.Deadline))
	assert.Equal(t, sent.Token, got.Token)
}

func TestTheCounterRefusesATokenThatDoesNotRise(t *testing.T) {
	c := counter(filepath.Join(t.TempDir(), "counter"))
	n, err := c.read(7)
	require.NoError(t, err)
	assert.Zero(t, n)
	require.NoError(t, c.write(1, 7))

	for _, token := range []uint64{6, 7} {
		_, err = c.read(token)
		assert.ErrorContains(t, err, "refuses token")
	}
	n = kit.Got(c.read(8))(t)
	assert.Equal(t, uint64(1), n)
}
