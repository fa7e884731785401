package report

import (
	"fmt"

	"github.com/headwaiter/headwaiter/bench"
)

// An expectation is what was written down of a pair before it was measured.
type expectation struct {
	lock, work string
	low, high  float64 // how many times as fast headwaiter is; high is 0 where there is no end
	why        string
}

// expected are those of pages: from how the locks work, as their sources and documentation tell.
var expected = []expectation{
	{"postgres-advisory", "W1", 0.4, 1, "two statements of a server in C that writes nothing, against two scripts"},
	{"postgres-advisory", "W4 C=8", 0.6, 1.1, "FIFO and handed on by the server, as ours: the strongest rival"},
	{"postgres-advisory", "W4 C=128", 0.8, 2, "a process a connection: its cost grows with the crowd"},
	{"redisson-fair", "W4 C=8", 2, 0, "three scripts and two subscriptions a hand-off, and a second round trip after the message"},
	{"redisson-plain", "W4 C=8", 2, 0, "all who wait are woken, and try"},
	{"rueidislock", "W4 C=8", 1.5, 0, "n who wait send n (n + 1) / 2 SETs for n hand-offs, to three keys"},
	{"rueidislock-tuned", "W4 C=8", 1, 3, "the same to one key"},
	{"redsync", "W4 C=8", 20, 0, "polls every 50 to 250 ms"},
	{"redsync", "W1", 0.5, 1, "SET NX and compare-and-delete are the least that there is"},
	{"redislock", "W1", 0.5, 1, "the same"},
	{"redislock-1ms", "W4 C=32", 1.5, 0, "polls every ms, all at once"},
	{"etcd-mutex", "W4 C=8", 5, 0, "a watch event and two requests, each through the log"},
	{"zookeeper-lock", "W4 C=8", 3, 0, "a watch event and requests, each through the log"},
	{Bare, "W4 C=8", 0.85, 1, "leases, renewals, checks and repeats cost the client, hardly the server"},
}

// expectations set what was expected next to what came.
func (v view) expectations() Section {
	s := Section{
		Title: "What was expected, and what came", Detail: true,
		Text:  []string{"How many times as fast headwaiter is. The expectations are older than this run; they are in bench/report/expected.go."},
		Table: Table{Heads: []string{"work", "lock", "expected", "why", "came", "which is"}},
	}
	for _, e := range expected {
		for _, c := range v.Compared {
			if c.Against != Own || c.Contender != e.lock || c.Work.String() != e.work || c.Kind != "" {
				continue
			}
			s.Table.Rows = append(s.Table.Rows, []string{e.work, e.lock, e.span(), e.why, Times(c.Speed()), e.verdict(c.Speed())})
		}
	}
	return s
}

func (e expectation) span() string {
	if e.high == 0 {
		return short(e.low) + " or more"
	}
	return fmt.Sprintf("%s to %s", short(e.low), short(e.high))
}

func (e expectation) verdict(r bench.Ratio) string {
	switch {
	case r.High < e.low:
		return "less"
	case e.high > 0 && r.Low > e.high:
		return "more"
	}
	return "as expected"
}
