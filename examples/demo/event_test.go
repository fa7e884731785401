package main

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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
	text, err := json.Marshal(sent)
	require.NoError(t, err)
	var got event
	require.NoError(t, json.Unmarshal(text, &got))
	assert.True(t, got.At.Equal(sent.At))
	assert.True(t, got.Deadline.Equal(sent.Deadline))
	assert.Equal(t, sent.Token, got.Token)
}
