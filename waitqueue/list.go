package waitqueue

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/internal/retry"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// A Listed is a name that the server knows, with what an inspection says of it.
type Listed struct {
	Kind string // lock, reentrant, rwlock, semaphore, election, latch, barrier or redlock
	Name string
	Info lease.Info // with the first holder and the first who waits alone
	Err  error      // why it could not be inspected
}

const (
	// listStep is how many keys one SCAN goes over: some tenths of a millisecond of the server's time.
	listStep = 500
	// listBatch is how many names are inspected in one round trip. Each inspection is a script of its own, so others
	// are served in between.
	listBatch = 64
)

// List finds the names that match a pattern, in no order, at all masters of a cluster: "*" stands for any characters,
// "?" for one, "[a-z]" for one of a class, a backslash takes the meaning from the next. It walks over all keys of the
// server by SCAN, which needs that right, in steps that hold up nobody, and changes nothing.
//
// What exists all the time is found, once. What comes or goes meanwhile may be found or not, and so may what moves to
// another node. A name is known for about a minute after its last use, a latch or barrier for its
// lifetime.
//
// The walk ends with an error where SCAN fails, or the context ends. Of a name that cannot be inspected, such as a key
// of another type, the error is in the Listed.
func (c *Client) List(ctx context.Context, pattern string) iter.Seq2[Listed, error] {
	return c.list(ctx, pattern, 1)
}

// list is List with so many tickets of each name.
func (c *Client) list(ctx context.Context, pattern string, most int) iter.Seq2[Listed, error] {
	retry.Given(ctx)
	return func(yield func(Listed, error) bool) {
		enough := false
		found := func(names []Listed) bool {
			c.inspectAll(ctx, names, most)
			if ctx.Err() != nil {
				return false
			}
			for _, n := range names {
				if enough = !yield(n, nil); enough {
					return false
				}
			}
			return true
		}
		if err := c.walk(ctx, pattern, found); err != nil && !enough {
			yield(Listed{}, fmt.Errorf("waitqueue: list %.80q: %w", pattern, err))
		}
	}
}

// Find tells what the server knows of a name, with as much as [Queue.Inspect] tells, for each kind that has it: nothing
// if there is none. It changes nothing. Of a kind that cannot be inspected the error is in the Listed.
func (c *Client) Find(ctx context.Context, name string) ([]Listed, error) {
	retry.Given(ctx)
	if err := checkName(name); err != nil {
		return nil, fmt.Errorf("waitqueue: find: %w", err)
	}
	var found []Listed
	for _, kind := range lua.Kinds() {
		found = append(found, Listed{Kind: kind, Name: name})
	}
	c.inspectAll(ctx, found, inspectQueue)
	if ctx.Err() != nil {
		return nil, fmt.Errorf("waitqueue: find: %w", retry.WhyEnded(ctx))
	}
	answered := slices.ContainsFunc(found, func(n Listed) bool { return n.Err == nil })
	for _, n := range found {
		if n.Err != nil && (!answered || !errors.As(n.Err, new(*rueidis.RedisError))) {
			return nil, fmt.Errorf("waitqueue: find: %w", n.Err) // It is not the name, it is the server.
		}
	}
	return slices.DeleteFunc(found, func(n Listed) bool { return n.Err == nil && n.unused() }), nil
}

// unused reports whether the server knows nothing of the name.
func (n *Listed) unused() bool {
	i := &n.Info
	return !i.Held && i.Waiting == 0 && i.Token == 0 && (i.State == lua.StateUnset || i.State == "" && i.Limit <= 1 && i.Used == 0)
}

// walk finds names and passes them on, some at a time, until found says that it is enough.
func (c *Client) walk(ctx context.Context, pattern string, found func([]Listed) bool) error {
	if _, err := path.Match(pattern, ""); err != nil {
		return fmt.Errorf("%w: the pattern has a class without an end, or a backslash at the end", lease.ErrInvalid)
	}
	nodes, err := c.masters(ctx)
	if err != nil {
		return err
	}
	seen := make(map[string]bool)
	var names []Listed
	for _, n := range nodes {
		for cursor := uint64(0); ; {
			page, next, err := c.scan(ctx, n, cursor, pattern)
			if err != nil {
				return err
			}
			for _, key := range page {
				p, name, ok := lua.NameOf(c.opts.Prefix, key)
				if ok && !seen[key] && matches(pattern, name) {
					seen[key] = true
					names = append(names, Listed{Kind: p.Kind, Name: name})
				}
			}
			cursor = next
			for len(names) >= listBatch || cursor == 0 && len(names) > 0 {
				few := min(len(names), listBatch)
				if !found(names[:few:few]) {
					return retry.WhyEnded(ctx)
				}
				names = names[few:]
			}
			if cursor == 0 {
				break
			}
		}
	}
	return retry.WhyEnded(ctx)
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
func (c *Client) scan(ctx context.Context, n *node, cursor uint64, pattern string) (keys []string, next uint64, err error) {
	begun := time.Now()
	for tries := 0; ; tries++ {
		err := errors.New("the node has left the cluster")
		rc := c.routes.reach(n)
		if rc == nil {
			c.introduce(n)
			rc = c.routes.reach(n)
		}
		if rc != nil {
			cmd := rc.B().Scan().Cursor(cursor).Match(scanPattern(c.opts.Prefix, pattern)).Count(listStep).Build()
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

// scanPattern is what a server is asked for: the locks whose names begin as the pattern does. It says more than is
// wanted where a name has braces, and does not depend on how the server reads the rest.
func scanPattern(prefix, pattern string) string {
	end := strings.IndexAny(pattern, `*?[\`)
	if end < 0 {
		return literally(prefix) + ":*:{" + literally(pattern) + "}"
	}
	return literally(prefix) + ":*:{" + literally(pattern[:end]) + "*}"
}

// literally takes their meaning from the characters of a pattern.
func literally(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s)
}

// matches reports whether a name matches a pattern, in which a slash is like any other character.
func matches(pattern, name string) bool {
	const other = "\x00" // No name has it.
	ok, _ := path.Match(strings.ReplaceAll(pattern, "/", other), strings.ReplaceAll(name, "/", other))
	return ok
}

// inspectAll inspects names, in one round trip for those at one node, and tells so many tickets of each. What goes
// wrong with a name is noted with it.
func (c *Client) inspectAll(ctx context.Context, names []Listed, most int) {
	begun := time.Now()
	args := []string{strconv.Itoa(most), "0"} // 0 is the limit of what nobody has used.
	queues := make([]Queue, len(names))
	batches := make(map[*node][]int)
	for i := range names {
		q := c.Queue(lua.ProtocolOf(names[i].Kind), names[i].Name, Terms{Lease: lease.DefaultLease})
		if names[i].Err = q.err; q.err == nil {
			n := c.routes.of(q.keys.Lock)
			batches[n] = append(batches[n], i)
		}
		queues[i] = q
	}
	for n, batch := range batches {
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
				names[i].Err = advise(err)
				continue
			}
			names[i].Info = infoOf(v)
		}
		if ctx.Err() != nil {
			return
		}
	}
}
