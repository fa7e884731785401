package check

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/verify/judge"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// replayed feeds what scripts did to a lock x, a line a command; "@150" sets the clock, in ms. Each EVALSHA
// begins a run.
func replayed(p *lua.Protocol, limit int64, lines ...string) *Truth {
	x := NewTruth(p.Keys("headwaiter", "x"), limit)
	x.Keep = true
	at, run := int64(0), 0
	names := strings.NewReplacer(
		"LOCK", x.keys.Lock, "QUEUE", x.keys.Queue, "HOLDERS", x.keys.Holders,
		"ASK", "EVALSHA "+p.Ask.SHA, "END", "EVALSHA "+p.End.SHA, "RENEW", "EVALSHA "+p.Renew.SHA,
	)
	for _, line := range lines {
		if _, err := fmt.Sscanf(line, "@%d", &at); err == nil {
			at *= 1000
			continue
		}
		words := strings.Fields(names.Replace(line))
		if words[0] == "EVALSHA" {
			run++
		}
		x.Feed(Command{At: at, Words: words, Run: run})
	}
	x.Settle()
	return x
}

// own is the grant of a lock for 100 ms.
func own(ticket string, token, since int) string {
	return fmt.Sprintf("HSET LOCK owner %s until %d lease 100000 token %d phase held who w since %d", ticket, (since+100)*1000, token, since*1000)
}

func TestTruthOfALock(t *testing.T) {
	t.Parallel()
	first := []string{"@0", "ASK a:1", own("a:1", 5, 0), "ASK b:1", "ZADD QUEUE NX 20 b:1", "ASK c:1", "ZADD QUEUE NX 30 c:1"}
	for _, c := range []struct {
		name  string
		lines []string
		wrong string // what it finds; "" if nothing
	}{
		{"a hand-off", []string{"@10", "END a:1", "ZREM QUEUE b:1", own("b:1", 6, 10)}, ""},
		{"a hand-off by the long way", []string{"@10", "END a:1", "ZREMRANGEBYRANK QUEUE 0 0", own("b:1", 6, 10)}, ""},
		{"a grant while another holds", []string{"@10", "ASK b:1", "ZREM QUEUE b:1", own("b:1", 6, 10)}, "with 90000 µs left"},
		{"a grant at the end of the lease", []string{"@201", "ASK b:1", "HDEL LOCK owner", "ZREM QUEUE b:1", own("b:1", 6, 201)}, ""},
		{"a grant before the end of a renewed lease", []string{"@50", "RENEW a:1", "HSET LOCK until 400000 lease 100000", "@201", "ASK b:1", "HDEL LOCK owner", "ZREM QUEUE b:1", own("b:1", 6, 201)}, "with 199000 µs left"},
		{"an older arrival goes ahead", []string{"@5", "ASK c:1", "ZADD QUEUE LT 10 c:1", "@10", "END a:1", "ZREM QUEUE c:1", own("c:1", 6, 10)}, ""},
		{"a younger one changes nothing", []string{"@5", "ASK b:1", "ZADD QUEUE LT 40 b:1", "@10", "END a:1", "ZREM QUEUE c:1", own("c:1", 6, 10)}, "ahead of b:1"},
		{"an inversion", []string{"@10", "END a:1", "ZREM QUEUE c:1", own("c:1", 6, 10)}, "ahead of b:1"},
		{"one beside the queue", []string{"@10", "END a:1", "HDEL LOCK owner", "ASK d:1", own("d:1", 6, 10)}, "outside a queue of 2"},
		{"a token that does not rise", []string{"@10", "END a:1", "ZREM QUEUE b:1", own("b:1", 5, 10)}, "token 5 after 5"},
		{"one that gave up", []string{"@10", "END b:1", "ZREM QUEUE b:1", "END a:1", "ZREM QUEUE c:1", own("c:1", 6, 10)}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := replayed(lua.Fairlock, 0, append(first, c.lines...)...)
			if c.wrong == "" {
				require.Empty(t, x.Wrong)
			} else {
				require.Contains(t, strings.Join(x.Wrong, "\n"), c.wrong)
			}
			require.Empty(t, x.Dropped)
		})
	}
	dropped := replayed(lua.Fairlock, 0, append(first, "@10", "END a:1", "ZREMRANGEBYRANK QUEUE 0 1", own("c:1", 6, 10), "END c:1", "HDEL LOCK owner")...)
	require.Empty(t, dropped.Wrong)
	require.Equal(t, map[string]int{"b": 1}, dropped.Dropped)
	require.Zero(t, dropped.Turns, "nobody was granted while c:1 waited")
	require.Equal(t, 1, replayed(lua.Fairlock, 0, append(first, "@10", "END a:1", "ZREM QUEUE b:1", own("b:1", 6, 10), "@20", "END b:1", "ZREM QUEUE c:1", own("c:1", 7, 20))...).Turns)
	require.EqualValues(t, []int64{0, 30}, []int64{dropped.Grants[0].Arrival, dropped.Grants[1].Arrival})
}

// Of a lock that is taken at once the ticket and the token tell the end.
func TestTruthOfALockThatIsTakenAtOnce(t *testing.T) {
	t.Parallel()
	first := []string{"@0", "ASK a:1:x:1:100:50", "HSET LOCK owner a:1:x:1:100:50 token 5"}
	early := replayed(lua.Fairlock, 0, append(first, "@10", "ASK b:1:x:1:100:50", "HSET LOCK owner b:1:x:1:100:50 token 10000")...)
	require.Contains(t, strings.Join(early.Wrong, "\n"), "with 90005 µs left")
	lower := replayed(lua.Fairlock, 0, append(first, "@10", "END a:1:x:1:100:50", "HDEL LOCK owner until phase", "ASK b:1:x:1:100:50", "HSET LOCK owner b:1:x:1:100:50 token 4")...)
	require.Contains(t, strings.Join(lower.Wrong, "\n"), "token 4 after 5")
	fine := replayed(lua.Fairlock, 0, append(first, "@50", "RENEW a:1:x:1:100:50", "HSET LOCK until 150000 phase held", "@201", "ASK b:1:x:1:100:50", "HDEL LOCK owner until phase", "HSET LOCK owner b:1:x:1:100:50 token 201000")...)
	require.Empty(t, fine.Wrong)
	require.Equal(t, 2, fine.Granted)
}

func TestTruthOfPermits(t *testing.T) {
	t.Parallel()
	take := func(ticket string, n, token, since int) []string {
		return []string{
			fmt.Sprintf("ZADD HOLDERS 0 - %d %s", (since+100)*1000, ticket),
			fmt.Sprintf("HSET LOCK used 9 token %d %s %d:%d:100000:h:%d:w", token, ticket, n, token, since*1000),
		}
	}
	script := func(name string, more ...[]string) (lines []string) {
		lines = []string{name}
		for _, m := range more {
			lines = append(lines, m...)
		}
		return lines
	}
	first := append([]string{"@0"}, script("ASK a:1:p:2", take("a:1:p:2", 2, 5, 0))...)
	for _, c := range []struct {
		name  string
		lines []string
		wrong string
	}{
		{"as many as there are", script("ASK b:1:p:1", take("b:1:p:1", 1, 6, 0)), ""},
		{"one too many", script("ASK b:1:p:2", take("b:1:p:2", 2, 6, 0)), "4 permits of 3"},
		{"a renewal", []string{"@50", "RENEW a:1:p:2", "HSET LOCK a:1:p:2 2:5:100000:h:0:w", "ZADD HOLDERS 150000 a:1:p:2", "@151", "ASK b:1:p:1", "HDEL LOCK a:1:p:2"}, ""},
		{"the end of a renewed lease", []string{"@50", "RENEW a:1:p:2", "HSET LOCK a:1:p:2 2:5:100000:h:0:w", "ZADD HOLDERS 350000 a:1:p:2", "@150", "ASK b:1:p:1", "HDEL LOCK a:1:p:2"}, "with 200000 µs left"},
		{"a release", append(script("END a:1:p:2", []string{"HDEL LOCK a:1:p:2"}), script("ASK b:1:p:3", take("b:1:p:3", 3, 6, 0))...), ""},
		{"a release of another's", script("END c:1:p:2", []string{"@1", "HDEL LOCK a:1:p:2"}), "with 99000 µs left"},
		{"a repeated token", script("ASK b:1:p:1", take("b:1:p:1", 1, 5, 0)), "token 5 after 5"},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := replayed(lua.Semaphore, 3, append(first, c.lines...)...)
			if c.wrong == "" {
				require.Empty(t, x.Wrong)
			} else {
				require.Contains(t, strings.Join(x.Wrong, "\n"), c.wrong)
			}
		})
	}
	readers := replayed(lua.RWLock, wire.AllReaders, append(append([]string{"@0"},
		script("ASK a:1:r:1", take("a:1:r:1", 1, 5, 0))...), script("ASK b:1:r:1", take("b:1:r:1", 1, 5, 0))...)...)
	require.Empty(t, readers.Wrong)
	require.Equal(t, 2, readers.Granted)
}

func TestALineOfTheMonitorIsRead(t *testing.T) {
	t.Parallel()
	for _, script := range []string{`return\n\"a\" \"b\"`, `return\n"a" "b"`} { // Valkey 8.1 does not escape.
		eval := kit.Got(parse(`+1700000000.123456 [0 127.0.0.1:1] "EVAL" "` + script + `" "1" "headwaiter:a" "b"` + "\r\n"))(t)
		require.Equal(t, []string{"EVAL", "return\n\"a\" \"b\"", "1", "headwaiter:a", "b"}, eval.Words)
	}
	c := kit.Got(parse("+1700000000.123456 [0 lua] \"HSET\" \"a \\\"b\\\"\" \"\\x01\\n\"\r\n"))(t)
	require.Equal(t, Command{At: 1700000000123456, Words: []string{"HSET", `a "b"`, "\x01\n"}}, c)
	for _, line := range []string{"", "+1.2", "+x.y [0 lua] \"a\"", "+1.2 [0 lua] a", "+1.2 [0 lua] "} {
		require.Error(t, kit.Err(parse(line)), line)
	}
}

// past is a hold that was released at once when it was called.
func past(token uint64, permits int64, called, got, releasing time.Duration) judge.Hold {
	return judge.Hold{
		Name: "x", Token: token, Permits: permits, Called: called, Got: got, Releasing: releasing, Released: releasing + 1,
		Deadline: releasing + 100, Lost: Never,
	}
}

func historyOf(permits int64, holds ...judge.Hold) History {
	all := Collect(holds, make([]string, len(holds)), func(string) int64 { return permits }, nil)
	return *all[0]
}

func TestAHistoryThatIsRightIsAccepted(t *testing.T) {
	t.Parallel()
	unknown := past(6, 1, 9, 10, 12) // Its lease may have been over when it saw that.
	unknown.Released = Never
	late := past(6, 1, 3, 30, 30) // A process that was stopped until its lease was over, and told of its hold then.
	late.Released = Never
	for what, h := range map[string]History{
		"never certain, and long after the next": historyOf(1, past(5, 1, 1, 2, 9), late, past(7, 1, 3, 12, 14)),
		"a lock":                                 historyOf(1, past(5, 1, 1, 2, 9), unknown, past(7, 1, 3, 12, 14)),
		"never certain":                          historyOf(1, past(5, 1, 1, 2, 9), past(6, 1, 3, 11, 11), past(7, 1, 3, 12, 14)),
		"readers":                                historyOf(judge.Readers, past(7, 1, 2, 3, 8), past(7, 1, 4, 5, 8), past(8, judge.Readers, 4, 10, 11)),
		"readers, and one between them that nobody told of": historyOf(judge.Readers, past(7, 1, 2, 3, 8), past(7, 1, 9, 10, 12)),
		"as many as there": historyOf(2, past(5, 1, 1, 2, 9), past(6, 1, 1, 3, 12), past(7, 2, 1, 14, 15)),
	} {
		judged, wrong := h.Judge(patience)
		require.Empty(t, wrong, what)
		require.Equal(t, 2*len(h.Holds), judged)
	}
}

// What is wrong with holds is for package judge to find; here is that it is asked, of each kind, with its exception.
func TestAHistoryThatIsWrongIsRefused(t *testing.T) {
	t.Parallel()
	first := past(5, 1, 1, 2, 9)
	certain := past(6, 1, 3, 13, 30) // It was told of no loss, and the next holds.
	certain.Released = Never
	for what, c := range map[string]struct {
		history History
		always  bool // also where the server has forgotten the holders
	}{
		"held with the next": {historyOf(1, certain, past(7, 1, 3, 12, 14)), false},
		"two holders":        {historyOf(1, first, past(6, 1, 1, 8, 12)), false},
		"a writer beside":    {historyOf(judge.Readers, first, past(6, judge.Readers, 1, 8, 12)), false},
		"too many permits":   {historyOf(2, past(5, 2, 1, 2, 9), past(6, 1, 1, 8, 12)), false},
		"a permit's stays":   {historyOf(2, first, past(5, 1, 1, 3, 12)), true},
		"a reader's falls":   {historyOf(judge.Readers, past(5, judge.Readers, 1, 2, 3), past(4, 1, 5, 10, 12)), true},
	} {
		_, wrong := c.history.Judge(patience)
		require.NotEmpty(t, wrong, what)
		c.history.Forgot = []judge.Span{{From: 8, To: 9}}
		_, wrong = c.history.Judge(patience)
		require.Equal(t, c.always, len(wrong) > 0, what)
	}
}

// turns are holds one after the other, enough for a piece.
func turns(n int) (holds []judge.Hold) {
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
	h.Holds[2*piece].Called = h.Holds[2*piece].Got // The first of a piece, together with the last of the one before.
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
	h := historyOf(judge.Readers, first, past(6, judge.Readers, 13, 20, 22))
	h.Workers = []string{"a", "b"}
	h.Holds[1].Lane = 1
	text := kit.Got(json.Marshal(h))(t)
	var again History
	require.NoError(t, json.Unmarshal(text, &again))
	require.Equal(t, h, again)
	require.Less(t, strings.Count(string(text), ","), 40)
}
