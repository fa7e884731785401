package waitqueue

import (
	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/lua"
)

// An outgoing ask is one that goes in one round trip with others.
type outgoing struct {
	wait *wait
	ask  *ask // nil: there is nothing to ask
}

// An answer is what the call behind an ask or an end learns of the reply; what it says of the name, the site has taken in.
type answer struct {
	lua.Head
	drained int64 // how many permits a drain has
	err     error
}

// send sends asks, and ends behind them, in one round trip to one node, and takes in the answers. It returns them in the
// order of the requests; where there was nothing to ask, a reply that says nothing.
//
// What is sent alone, for a call whose context may end, goes by [site.ask] and [site.sendEnd]; what one script asks or
// ends for several names, by package multilock.
func (c *client) send(n *conn.Node, asks []outgoing, ends []*end) []answer {
	jobs := make([]conn.Job, 0, len(asks)+len(ends))
	for _, a := range asks {
		if a.ask != nil {
			jobs = append(jobs, conn.Job{Script: a.wait.site.proto.Ask, Keys: a.wait.site.keys.All(), Args: a.ask.args})
		}
	}
	c.stats.asks.Add(uint64(len(jobs)))
	c.stats.ends.Add(uint64(len(ends)))
	for _, d := range ends {
		jobs = append(jobs, conn.Job{Script: d.site.proto.End, Keys: d.site.keys.All(), Args: d.args()})
	}
	sent := conn.Sending()
	results := c.servers.RunAll(n, jobs)
	answers := make([]answer, len(asks)+len(ends))
	for i, a := range asks {
		if a.ask != nil {
			answers[i] = a.wait.site.replied(a.wait.ticket, a.ask, results[0])
			results = results[1:]
		}
	}
	for i, d := range ends {
		sent.Note = d.note()
		answers[len(asks)+i] = d.site.ended(d, sent, results[i])
	}
	return answers
}
