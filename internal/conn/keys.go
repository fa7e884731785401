package conn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/internal/retry"
	"github.com/headwaiter/headwaiter/lua"
)

// scanStep is how many keys one SCAN goes over: some tenths of a millisecond of the server's time.
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

// Field returns a field of each of some hashes; of those that it cannot have, nothing.
func (c *Servers) Field(ctx context.Context, keys []string, field string) []string {
	values := make([]string, len(keys))
	if len(keys) == 0 || !c.flights.begin() {
		return values
	}
	defer c.flights.end()
	cmds := make([]rueidis.Completed, len(keys))
	for i, key := range keys {
		cmds[i] = c.commands.B().Hget().Key(key).Field(field).Build()
	}
	for i, res := range c.commands.DoMulti(ctx, cmds...) {
		if text, err := res.ToString(); err == nil { // Else it is the text of the error.
			values[i] = text
		}
	}
	return values
}

// Scan takes one step over the keys of a node, and repeats it, for as long as limit, while what goes wrong passes by itself.
func (c *Servers) Scan(
	ctx context.Context, n *Node, cursor uint64, match string, limit time.Duration,
) (keys []string, next uint64, err error) {
	begun := time.Now()
	for tries := 0; ; tries++ {
		err := errors.New("the node has left the cluster")
		rc := c.routes.reach(n)
		if rc == nil {
			c.introduce(ctx, n)
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
		if !Transient(err) || time.Since(begun) > limit {
			return nil, 0, Advise(err)
		}
		if ended := c.Rest(ctx, retry.Backoff(tries)); ended != nil {
			return nil, 0, fmt.Errorf("%w (last error: %w)", ended, err)
		}
	}
}

// introduce lets rueidis find a node that it does not know as a master yet, by a request for something that it has.
func (c *Servers) introduce(ctx context.Context, n *Node) {
	for i := range lua.Slots {
		key := fmt.Sprintf("%s:lock:{%d}", c.opts.Prefix, i)
		if c.routes.of(key) == n {
			_ = c.Side.Do(ctx, c.Side.B().Hlen().Key(key).Build()).Error() // What it answers does not matter.
			return
		}
	}
}
