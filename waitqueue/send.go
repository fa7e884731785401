package waitqueue

import (
	"context"
	"errors"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/core"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
)

// A request can go with others in one round trip.
type request interface {
	// job is the request as it is sent, and counts it; false: there is nothing to send.
	job() (conn.Job, bool)
	// answered takes in the answer, or its lack.
	answered(sent conn.Attempt, res rueidis.RedisResult) answer
	// unsent takes the request back: it was not sent, and will not be.
	unsent()
}

// An answer is what the call that sent a request learns of the reply.
type answer struct {
	wire.Head
	step    core.Step // of an acquire request: what the call does next
	outcome error     // of the release of a hold: what it means to its caller
	err     error
}

// sendFor is [client.send] for a call whose context may end: what it does not wait for goes on in the background, and the
// answers are its error. over is called when all is answered, or nothing was sent.
func (c *client) sendFor(ctx context.Context, n *conn.Node, all []request, over func()) []answer {
	answers, err := conn.InBackground(ctx, c.servers, func() ([]answer, error) {
		defer over()
		return c.send(n, all), nil
	})
	if err == nil {
		return answers
	}
	if errors.Is(err, lease.ErrClosed) { // Nothing was sent.
		for _, q := range all {
			q.unsent()
		}
		over()
	}
	answers = make([]answer, len(all))
	for i := range answers {
		answers[i].err = err
	}
	return answers
}

// send sends requests in one round trip to one node, in their order, and takes in the replies. It returns them in the
// order of the requests; for a request that had nothing to send the answer is empty.
//
// Two kinds of request do not come here. [wait.send] and [entry.sendEnd] send a single request for a call whose context may
// end. Package multilock acquires or releases several names with one script.
func (c *client) send(n *conn.Node, all []request) []answer {
	jobs, sent := make([]conn.Job, 0, len(all)), make([]int, 0, len(all))
	for i, q := range all {
		if j, ok := q.job(); ok {
			jobs, sent = append(jobs, j), append(sent, i)
		}
	}
	at := conn.Sending()
	answers := make([]answer, len(all))
	for k, res := range c.servers.RunAll(n, jobs) {
		answers[sent[k]] = all[sent[k]].answered(at, res)
	}
	return answers
}
