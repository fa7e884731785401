package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

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
