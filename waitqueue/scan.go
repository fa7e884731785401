package waitqueue

import (
	"context"
	"iter"
	"strconv"
	"time"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/retry"
	"github.com/headwaiter/headwaiter/lease"
)

// Scan walks over the keys of all masters that match a pattern of the server's, a page at a time. What fails for a
// moment it repeats. It ends with an error where SCAN fails for good, or the context ends.
func (w Wiring) Scan(ctx context.Context, match string) iter.Seq2[[]string, error] {
	c := w.client
	return func(yield func([]string, error) bool) {
		nodes, err := c.servers.Masters(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		for _, n := range nodes {
			for cursor := uint64(0); ; {
				page, next, err := c.servers.Scan(ctx, n, cursor, match, tryTime)
				if !yield(page, err) || err != nil {
					return
				}
				if cursor = next; cursor == 0 {
					break
				}
			}
		}
	}
}

// InspectAll is [Queue.Inspect] of many names, in one round trip for those at one node. It tells so many tickets of
// each.
func (w Wiring) InspectAll(ctx context.Context, queues []Queue, tickets int) ([]lease.Info, []error) {
	c, begun := w.client, time.Now()
	args := []string{strconv.Itoa(tickets), "0"} // 0 is the limit of a name that nobody has used.
	infos, errs := make([]lease.Info, len(queues)), make([]error, len(queues))
	batches := make(map[*conn.Node][]int)
	for i, q := range queues {
		if errs[i] = q.err; q.err == nil {
			n := c.servers.NodeOf(q.keys.Lock)
			batches[n] = append(batches[n], i)
		}
	}
	for n, batch := range batches {
		if errs[batch[0]] = retry.WhyEnded(ctx); errs[batch[0]] != nil {
			continue
		}
		jobs := make([]conn.Job, len(batch))
		for j, i := range batch {
			jobs[j] = conn.Job{Script: queues[i].proto.Inspect, Keys: queues[i].keys.All(), Args: args}
		}
		results := c.servers.RunAll(n, jobs)
		for j, i := range batch {
			v, err := jobs[j].Script.DecodeInspect(results[j])
			if err != nil && conn.Transient(err) && time.Since(begun) < tryTime {
				v, err = queues[i].view(ctx, args) // That repeats it until it passes.
			}
			if err != nil {
				errs[i] = conn.Advise(err)
				continue
			}
			infos[i] = infoOf(v)
		}
	}
	c.name(ctx, infos)
	return infos, errs
}
