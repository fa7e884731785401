package check

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// past is a hold that was released at once when it was called.
func past(token uint64, permits int64, called, got, releasing time.Duration) Hold {
	return Hold{
		Name: "x", Token: token, Permits: permits, Called: called, Got: got, Releasing: releasing, Released: releasing + 1,
		Deadline: releasing + 100, Lost: Never,
	}
}

func historyOf(permits int64, holds ...Hold) History {
	all := Collect(holds, make([]string, len(holds)), func(string) int64 { return permits }, nil)
	return *all[0]
}

func TestAHistoryThatIsRightIsAccepted(t *testing.T) {
	t.Parallel()
	unknown := past(6, 1, 9, 10, 12) // Its lease may have been over when it saw that.
	unknown.Released = Never
	for what, h := range map[string]History{
		"a lock":        historyOf(1, past(5, 1, 1, 2, 9), unknown, past(7, 1, 3, 12, 14)),
		"never certain": historyOf(1, past(5, 1, 1, 2, 9), past(6, 1, 3, 11, 11), past(7, 1, 3, 12, 14)),
		"readers":       historyOf(Readers, past(7, 1, 2, 3, 8), past(7, 1, 4, 5, 8), past(8, Readers, 4, 10, 11)),
		"readers, and one between them that nobody told of": historyOf(Readers, past(7, 1, 2, 3, 8), past(7, 1, 9, 10, 12)),
		"as many as there": historyOf(2, past(5, 1, 1, 2, 9), past(6, 1, 1, 3, 12), past(7, 2, 1, 14, 15)),
	} {
		judged, wrong := h.Judge(patience)
		require.Empty(t, wrong, what)
		require.Equal(t, 2*len(h.Holds), judged)
	}
}

func TestAHistoryThatIsWrongIsRefused(t *testing.T) {
	t.Parallel()
	first := past(5, 1, 1, 2, 9)
	unreleased := first
	unreleased.Released, unreleased.Deadline = Never, 20
	for what, c := range map[string]struct {
		history History
		always  bool // also where the server has forgotten those who held
	}{
		"two holders":           {historyOf(1, first, past(6, 1, 1, 8, 12)), false},
		"one that was not told": {historyOf(1, unreleased, past(6, 1, 1, 8, 12)), false},
		"the token falls":       {historyOf(1, first, past(4, 1, 10, 11, 12)), true},
		"the token stays":       {historyOf(1, first, past(5, 1, 10, 11, 12)), true},
		"a reader's falls":      {historyOf(Readers, past(5, Readers, 1, 2, 3), past(4, 1, 5, 10, 12)), true},
		"a writer beside":       {historyOf(Readers, first, past(6, Readers, 1, 8, 12)), false},
		"a writer's stays":      {historyOf(Readers, first, past(5, Readers, 10, 11, 12)), true},
		"too many permits":      {historyOf(2, past(5, 2, 1, 2, 9), past(6, 1, 1, 8, 12)), false},
		"a permit's stays":      {historyOf(2, first, past(5, 1, 1, 3, 12)), true},
	} {
		_, wrong := c.history.Judge(patience)
		require.NotEmpty(t, wrong, what)
		c.history.Forgot = []Span{{8, 9}}
		_, wrong = c.history.Judge(patience)
		require.Equal(t, c.always, len(wrong) > 0, what)
		c.history.Forgot = []Span{{0, 0}, {30, 40}}
		_, wrong = c.history.Judge(patience)
		require.NotEmpty(t, wrong, "%s, and the server has forgotten others", what)
	}
}

// turns are holds one after the other, of which some piece is.
func turns(n int) (holds []Hold) {
	for i := range n {
		at := time.Duration(10 * i)
		holds = append(holds, past(uint64(i+1), 1, max(0, at-50), at, at+5))
	}
	return holds
}

func TestWhatCannotBeJudgedInTimeIsWrong(t *testing.T) {
	t.Parallel()
	h := historyOf(1, turns(900)...)
	_, wrong := h.Judge(patience)
	require.Empty(t, wrong)
	_, wrong = h.Judge(time.Nanosecond)
	require.Len(t, wrong, 1)
	require.Contains(t, wrong[0], "unknown")
}

// A release that has not reached the server when the next one holds, and no lease that is over, is seen by the model alone.
func TestEachPieceOfALongHistoryIsJudged(t *testing.T) {
	t.Parallel()
	h := historyOf(1, turns(3*piece)...)
	judged, wrong := h.Judge(patience)
	require.Empty(t, wrong)
	require.Equal(t, 2*(3*piece+2*margin), judged)
	h.Holds[2*piece].Called = h.Holds[2*piece].Got // The first of a piece, beside the last of the one before.
	last := &h.Holds[2*piece-1]
	last.Deadline, last.Releasing, last.Released = last.Deadline+100, last.Got, last.Got+40
	last.Releasing = h.Holds[2*piece].Got + 1
	last.Lost = last.Got // Told by nobody else: for the linear judge it was over.
	_, wrong = h.Judge(patience)
	require.Len(t, wrong, 1)
	require.Contains(t, wrong[0], "no order")
}

func TestAHistoryIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	first := past(5, 1, 11, 12, 19)
	first.Released = Never
	h := historyOf(Readers, first, past(6, Readers, 13, 20, 22))
	h.Workers = []string{"a", "b"}
	h.Holds[1].Lane = 1
	text, err := json.Marshal(h)
	require.NoError(t, err)
	var again History
	require.NoError(t, json.Unmarshal(text, &again))
	require.Equal(t, h, again)
	require.Less(t, strings.Count(string(text), ","), 40)
}
