package core

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/reason"
)

var multiSteps = map[MultiNext]string{
	MultiWait: "wait", MultiAsk: "ask", MultiLook: "look", MultiGiveBack: "give back", MultiDone: "done", MultiFail: "fail",
}

func shownStep(s MultiStep) string {
	text := multiSteps[s.Do]
	for _, part := range s.Parts {
		text += fmt.Sprint(" ", part)
	}
	if !s.At.IsZero() {
		text += fmt.Sprint(" ", s.At.Sub(born))
	}
	if s.Err != nil {
		text += " " + s.Err.Error()
	}
	return text
}

// Each step is inputs, and what the call does next. The bound is a second; chance gives the sure half of it.
func TestCallsForSeveralNames(t *testing.T) {
	for name, c := range map[string]struct {
		parts int
		call  Multi
		steps []string
	}{
		"all at once": {2, Multi{}, []string{
			"ask 0, ask 1: wait", "held 1: wait 500ms", "held 0: done",
		}},
		"what the call has not come to is not waited for": {2, Multi{}, []string{
			"ask 0: wait", "held 0: done", "ask 1: wait 500ms", "held 1: done",
		}},
		"given back, and asked for again when another is there": {3, Multi{}, []string{
			"ask 0, ask 1, ask 2: wait", "held 0: wait 500ms", "held 1, pass 499ms: wait 500ms", "pass 1ms: look 2",
			"not granted: give back 0 1", "lost 0, lost 1: wait", "pass 1h: wait", "held 2: ask 0 1",
			"ask 0, ask 1: wait 1h0m1s", "held 1: wait 1h0m1s", "held 0: done",
		}},
		"the patience begins with the first hold": {3, Multi{}, []string{
			"ask 0, ask 1, ask 2, pass 400ms: wait", "held 0: wait 900ms", "held 1, pass 499ms: wait 900ms", "pass 1ms: look 2",
		}},
		"the patience begins with the answer to a request for several": {3, Multi{}, []string{
			"ask 0, held 0, request, ask 1, ask 2, pass 1h: wait", "answered: wait 1h0m0.5s", "pass 500ms: look 1 2", "not granted: give back 0",
		}},
		"where a request for several fails nothing is held for longer than the bound": {2, Multi{}, []string{
			"ask 0, held 0, request, ask 1, pass 1s: wait", "unanswered: look 1", "not granted: give back 0", "lost 0, answered: wait",
		}},
		"all is granted meanwhile": {2, Multi{}, []string{
			"ask 0, ask 1, held 0, pass 500ms: look 1", "granted: wait 1s", "held 1: done",
		}},
		"a loss while another is waited for": {3, Multi{}, []string{
			"ask 0, ask 1, ask 2, held 0, held 1, pass 100ms: wait 500ms", "lost 0: ask 0", "ask 0: wait 600ms", "lost 1: wait",
			"held 0: ask 1",
		}},
		"the loss of the only one": {1, Multi{}, []string{"ask 0, held 0: done", "lost 0: ask 0", "ask 0: wait", "held 0: done"}},
		"a failure":                {2, Multi{}, []string{"ask 0, ask 1, held 0: wait 500ms", "failed 1: fail failed 1", "held 0: fail failed 1"}},
		"the first failure counts": {2, Multi{}, []string{"ask 0, ask 1, failed 1, failed 0: fail failed 1"}},
		"a try that has lost one":  {2, Multi{Try: true}, []string{"ask 0, ask 1, held 0: wait 500ms", "lost 0: fail busy"}},
		"each for itself": {3, Multi{Each: true}, []string{
			"ask 0, ask 1, held 0, pass 1h: wait", "failed 1: done", "ask 2: wait", "held 2: done",
		}},
		"a try of each": {2, Multi{Each: true, Try: true}, []string{"ask 0, ask 1, failed 1: wait", "held 0: done"}},
	} {
		t.Run(name, func(t *testing.T) {
			m, x := NewMulti(c.parts), &Input{Now: born}
			m.Each, m.Try, m.Bound = c.call.Each, c.call.Try, time.Second
			for _, step := range c.steps {
				inputs, want, _ := strings.Cut(step, ": ")
				for input := range strings.SplitSeq(inputs, ", ") {
					x.Chance = 0
					word, of, _ := strings.Cut(input, " ")
					part, _ := strconv.Atoi(of)
					switch word {
					case "ask":
						m.OnAsk(x, part)
					case "held":
						m.OnOutcome(x, part, nil)
					case "failed":
						m.OnOutcome(x, part, errors.New(input))
					case "lost":
						m.OnLost(part)
					case "request":
						m.OnRequest()
					case "answered", "unanswered":
						m.OnAttempt(x, word == "answered")
					case "granted", "not":
						m.OnLook(word == "granted")
					case "pass":
						d, err := time.ParseDuration(of)
						require.NoError(t, err)
						x.Now = x.Now.Add(d)
					}
				}
				x.Chance = 0
				require.Equal(t, want, shownStep(m.Next(x)), step)
			}
		})
	}
}

func TestThePatienceOfACallIsLeftToChance(t *testing.T) {
	seen := map[time.Time]bool{}
	for chance := range uint64(16) {
		m := NewMulti(2)
		m.Bound = time.Second
		x := &Input{Now: born, Chance: chance << 60}
		m.OnAsk(x, 1)
		m.OnOutcome(x, 0, nil)
		at := m.Next(x).At
		require.False(t, at.Before(born.Add(m.Bound/2)))
		require.True(t, at.Before(born.Add(m.Bound)))
		seen[at] = true
	}
	require.Greater(t, len(seen), 8)
}

func TestACallThatLostAPartInATryIsBusy(t *testing.T) {
	m := NewMulti(1)
	m.Try = true
	m.OnOutcome(&Input{}, 0, nil)
	m.OnLost(0)
	require.ErrorIs(t, m.Next(&Input{}).Err, reason.ErrBusy)
	require.Empty(t, m.In(PartHeld))
	require.Equal(t, []int{0}, m.In(PartGivenUp))
	require.False(t, m.Holds(0))
	require.False(t, m.Waits())
}
