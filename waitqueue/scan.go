package waitqueue

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/headwaiter/headwaiter/internal/retry"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// scanStep is how many keys one SCAN goes over: some tenths of a millisecond of the server's time.
const scanStep = 500

// Scan walks over the keys of all masters that match a pattern of the server's, a page at a time. What fails for a
// moment it repeats. It ends with an error where SCAN fails for good, or the context ends.
func (w Wiring) Scan(ctx context.Context, match string) iter.Seq2[[]string, error] {
	c := w.client
	return func(yield func([]string, error) bool) {
		nodes, err := c.masters(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		for _, n := range nodes {
			for cursor := uint64(0); ; {
				page, next, err := c.scan(ctx, n, cursor, match)
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

// masters returns the nodes that have slots, or the one that there is.
func (c *Client) masters(ctx context.Context) ([]*node, error) {
	if c.routes.table == nil {
		return []*node{c.routes.only}, nil
	}
	if err := c.routes.refresh(ctx); err != nil {
		return nil, advise(err)
	}
	var nodes []*node
	known := make(map[*node]bool)
	for slot := range c.routes.table {
		if n := c.routes.at(uint16(slot)); !known[n] && n != c.routes.only {
			known[n] = true
			nodes = append(nodes, n)
		}
	}
	return nodes, nil
}

// scan takes one step over the keys of a node, and repeats it while what goes wrong passes by itself.
func (c *Client) scan(ctx context.Context, n *node, cursor uint64, match string) (keys []string, next uint64, err error) {
	begun := time.Now()
	for tries := 0; ; tries++ {
		err := errors.New("the node has left the cluster")
		rc := c.routes.reach(n)
		if rc == nil {
			c.introduce(n)
			rc = c.routes.reach(n)
		}
		if rc != nil {
			cmd := rc.B().Scan().Cursor(cursor).Match(match).Count(scanStep).Build()
			entry, failed := rc.Do(ctx, cmd).AsScanEntry()
			if failed == nil {
				return entry.Elements, entry.Cursor, nil
			}
			err = failed
		}
		if ctx.Err() != nil {
			return nil, 0, retry.WhyEnded(ctx)
		}
		if !transient(err) || time.Since(begun) > tryTime {
			return nil, 0, advise(err)
		}
		if ended := c.rest(ctx, retry.Pause(tries)); ended != nil {
			return nil, 0, fmt.Errorf("%w (last error: %w)", ended, err)
		}
	}
}

// introduce lets rueidis find a node that it does not know as a master yet, by a request for something that it has.
func (c *Client) introduce(n *node) {
	for i := range lua.Slots {
		key := fmt.Sprintf("%s:lock:{%d}", c.opts.Prefix, i)
		if c.routes.of(key) == n {
			_ = c.side.Do(context.Background(), c.side.B().Hlen().Key(key).Build()).Error() // What it answers does not matter.
			return
		}
	}
}

// InspectAll is [Queue.Inspect] of many names, in one round trip for those at one node. It tells so many tickets of
// each.
func (w Wiring) InspectAll(ctx context.Context, queues []Queue, tickets int) ([]lease.Info, []error) {
	c, begun := w.client, time.Now()
	args := []string{strconv.Itoa(tickets), "0"} // 0 is the limit of a name that nobody has used.
	infos, errs := make([]lease.Info, len(queues)), make([]error, len(queues))
	batches := make(map[*node][]int)
	for i, q := range queues {
		if errs[i] = q.err; q.err == nil {
			n := c.routes.of(q.keys.Lock)
			batches[n] = append(batches[n], i)
		}
	}
	for n, batch := range batches {
		if errs[batch[0]] = retry.WhyEnded(ctx); errs[batch[0]] != nil {
			continue
		}
		jobs := make([]job, len(batch))
		for j, i := range batch {
			jobs[j] = job{queues[i].proto.Inspect, queues[i].keys.All(), args}
		}
		results := c.runAll(c.commands, n, jobs)
		for j, i := range batch {
			v, err := jobs[j].script.DecodeInspect(results[j])
			if err != nil && transient(err) && time.Since(begun) < tryTime {
				v, err = queues[i].view(ctx, args) // That repeats it until it passes.
			}
			if err != nil {
				errs[i] = advise(err)
				continue
			}
			infos[i] = infoOf(v)
		}
	}
	return infos, errs
}
