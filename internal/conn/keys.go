package conn

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/lua"
)

// scanStep is how many keys one SCAN goes over: some tenths of a millisecond of server time.
const scanStep = 500

// Masters returns the nodes that have slots, or the one that there is.
func (c *Servers) Masters(ctx context.Context) ([]*Node, error) {
	if c.routes.table == nil {
		return []*Node{c.routes.only}, nil
	}
	if err := c.routes.refresh(ctx); err != nil {
		return nil, Advise(err)
	}
	var nodes []*Node
	known := make(map[*Node]bool)
	for slot := range c.routes.table {
		if n := c.routes.at(uint16(slot)); !known[n] && n != c.routes.only {
			known[n] = true
			nodes = append(nodes, n)
		}
	}
	return nodes, nil
}

// Fields returns fields of each of some hashes, for people to read: of each hash as many, or none if there was no answer. It
// asks all nodes at the same time and waits for [SlowAnswer] at most. A node that is silent has nothing, and holds up none of
// the others.
func (c *Servers) Fields(ctx context.Context, keys []string, fields ...string) [][]string {
	values := make([][]string, len(keys))
	batches := make(map[*Node][]int)
	for i, key := range keys {
		n := c.routes.of(key)
		batches[n] = append(batches[n], i)
	}
	ctx, cancel := context.WithTimeout(ctx, SlowAnswer)
	defer cancel()
	var all sync.WaitGroup
	for _, batch := range batches {
		all.Go(func() {
			answers, _ := InBackground(ctx, c, func() ([]rueidis.RedisResult, error) { return c.fields(keys, batch, fields), nil })
			for j, res := range answers {
				if texts, err := res.AsStrSlice(); err == nil {
					values[batch[j]] = texts
				}
			}
		})
	}
	all.Wait()
	return values
}

// fields asks one node for fields of some of the hashes.
func (c *Servers) fields(keys []string, which []int, fields []string) []rueidis.RedisResult {
	if !c.flights.begin() {
		return nil
	}
	defer c.flights.end()
	cmds := make([]rueidis.Completed, len(which))
	for j, i := range which {
		cmds[j] = c.commands.B().Hmget().Key(keys[i]).Field(fields...).Build()
	}
	ctx, cancel := context.WithTimeout(c.Patient, AnswerTime) // Else rueidis tries again for as long as the node is silent.
	defer cancel()
	return c.commands.DoMulti(noDeadline{ctx}, cmds...)
}

// Scan takes one step over the keys of a node. It repeats the step for up to limit while errors pass by themselves.
func (c *Servers) Scan(
	ctx context.Context, n *Node, cursor uint64, match string, limit time.Duration,
) (keys []string, next uint64, err error) {
	begun, last := time.Now(), error(nil)
	for tries := 0; ; tries++ {
		err := errors.New("the node has left the cluster")
		rc := c.routes.reach(n)
		if rc == nil {
			c.introduce(ctx, n)
			rc = c.routes.reach(n)
		}
		if rc != nil {
			cmd := rc.B().Scan().Cursor(cursor).Match(match).Count(scanStep).Build()
			entry, failed := InBackground(ctx, c, func() (rueidis.ScanEntry, error) { return rc.Do(ctx, cmd).AsScanEntry() })
			if failed == nil {
				return entry.Elements, entry.Cursor, nil
			}
			err = failed
		}
		if ctx.Err() != nil {
			return nil, 0, GaveUp(ctx, calls.WhyEnded(ctx), last)
		}
		last = calls.Last(ctx, err, last)
		if !Transient(err) || time.Since(begun) > limit {
			return nil, 0, Advise(err)
		}
		if ended := c.Rest(ctx, calls.Backoff(tries)); ended != nil {
			return nil, 0, GaveUp(ctx, ended, last)
		}
	}
}

// introduce lets rueidis find a node that it does not know as a master yet, by a request for a key that the node has.
func (c *Servers) introduce(ctx context.Context, n *Node) {
	for i := range lua.Slots {
		key := fmt.Sprintf("%s:lock:{%d}", c.opts.Prefix, i)
		if c.routes.of(key) == n {
			cmd := c.Side.B().Hlen().Key(key).Build()
			_, _ = InBackground(ctx, c, func() (struct{}, error) { return struct{}{}, c.Side.Do(ctx, cmd).Error() }) // What it answers does not matter.
			return
		}
	}
}
