// Package inspect looks at locks from outside: which names there are, who holds them, who waits, and who waits for
// whom. It changes nothing, takes no place in any order, and needs the rights of a client; [List] and
// [Deadlocks] need SCAN too.
package inspect

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path"
	"slices"
	"strings"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/internal/outside"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// A Listed is a name that the server knows, with what an inspection says of it.
type Listed struct {
	Kind string // lock, reentrant, rwlock, semaphore, election, latch, barrier or redlock
	Name string
	Info lease.Info // with the first holder and the first waiter alone
	Err  error      // why it could not be inspected
}

const (
	// foundTickets is how many tickets Find tells of a name: as many as [waitqueue.Queue.Inspect] does.
	foundTickets = 100
	// listBatch is how many names are inspected in one round trip. Each inspection is a script of its own, so others
	// are served in between.
	listBatch = 64
)

// List finds the names that match a pattern, in no order, at all masters of a cluster: "*" stands for any characters,
// "?" for one, "[a-z]" for one of a class, a backslash takes the meaning from the next. It walks over all keys of the
// server by SCAN, in steps that block nobody.
//
// What exists all the time is found, once. What comes or goes meanwhile may be found or not, and so may what moves to
// another node. A name is known for about a minute after its last use, a latch or barrier for its
// lifetime.
//
// The walk ends with an error where SCAN fails, or the context ends. Of a name that cannot be inspected, such as a key
// of another type, the error is in the Listed.
func List(ctx context.Context, c *headwaiter.Client, pattern string) iter.Seq2[Listed, error] {
	return list(ctx, c, pattern, 1)
}

// list is List with at most that many tickets of each name.
func list(ctx context.Context, c *headwaiter.Client, pattern string, tickets int) iter.Seq2[Listed, error] {
	calls.Given(ctx)
	return func(yield func(Listed, error) bool) {
		w, err := waitqueue.WiringOf((*waitqueue.Client)(c))
		if err != nil {
			yield(Listed{}, fmt.Errorf("inspect: list: %w", err))
			return
		}
		for names, err := range walk(ctx, w, pattern) {
			if err == nil {
				look(ctx, c, w, names, tickets)
				err = over(ctx, names)
			}
			if err != nil {
				yield(Listed{}, fmt.Errorf("inspect: list %.80q: %w", pattern, err))
				return
			}
			for _, n := range names {
				if !yield(n, nil) {
					return
				}
			}
		}
	}
}

// Find tells what the server knows of a name, with as much as the Inspect of a lock tells, for each kind that has it:
// nothing if there is none. Of a kind that cannot be inspected the error is in the Listed.
func Find(ctx context.Context, c *headwaiter.Client, name string) ([]Listed, error) {
	calls.Given(ctx)
	w, err := waitqueue.WiringOf((*waitqueue.Client)(c))
	if err != nil {
		return nil, fmt.Errorf("inspect: find: %w", err)
	}
	var found []Listed
	for _, kind := range lua.Kinds() {
		found = append(found, Listed{Kind: kind, Name: name})
	}
	look(ctx, c, w, found, foundTickets)
	if err := over(ctx, found); err != nil {
		return nil, fmt.Errorf("inspect: find: %w", err)
	}
	answered := slices.ContainsFunc(found, func(n Listed) bool { return n.Err == nil })
	for _, n := range found {
		if n.Err != nil && (!answered || !errors.As(n.Err, new(*rueidis.RedisError))) {
			return nil, fmt.Errorf("inspect: find: %w", n.Err) // It is not the name, it is the server.
		}
	}
	return slices.DeleteFunc(found, func(n Listed) bool { return n.Err == nil && n.unused() }), nil
}

// unused reports whether the server knows nothing of the name.
func (n *Listed) unused() bool {
	i := &n.Info
	return !i.Held && i.Waiting == 0 && i.Token == 0 && (i.State == wire.StateUnset || i.State == "" && i.Limit <= 1 && i.Used == 0)
}

// walk finds the names that match a pattern, each once, some at a time.
func walk(ctx context.Context, w waitqueue.Wiring, pattern string) iter.Seq2[[]Listed, error] {
	return func(yield func([]Listed, error) bool) {
		if _, err := path.Match(pattern, ""); err != nil {
			yield(nil, fmt.Errorf("%w: the pattern has a class without an end, or a backslash at the end", lease.ErrInvalid))
			return
		}
		seen := make(map[string]bool)
		var names []Listed
		for page, err := range w.Scan(ctx, scanPattern(w.Prefix, pattern)) {
			if err != nil {
				yield(nil, err)
				return
			}
			for _, key := range page {
				p, name, ok := lua.NameOf(w.Prefix, key)
				if ok && !seen[key] && matches(pattern, name) {
					seen[key] = true
					names = append(names, Listed{Kind: p.Kind, Name: name})
				}
			}
			for len(names) >= listBatch {
				if !yield(names[:listBatch:listBatch], nil) {
					return
				}
				names = names[listBatch:]
			}
		}
		if len(names) > 0 {
			yield(names, nil)
		}
	}
}

// look inspects names, and tells at most that many tickets of each. An error with a name is noted with it.
func look(ctx context.Context, c *headwaiter.Client, w waitqueue.Wiring, names []Listed, tickets int) {
	seen := make([]outside.Name, len(names))
	for i, n := range names {
		seen[i] = (*waitqueue.Client)(c).Queue(lua.ProtocolOf(n.Kind), n.Name, waitqueue.Terms{Lease: lease.DefaultLease}).Seen()
	}
	infos, errs := w.InspectAll(ctx, seen, tickets)
	for i := range names {
		names[i].Info, names[i].Err = infos[i], errs[i]
	}
}

// over is the error of a look whose context has ended, which says whether the server has answered.
func over(ctx context.Context, names []Listed) error {
	why := calls.WhyEnded(ctx)
	for _, n := range names {
		if why != nil && errors.Is(n.Err, lease.ErrUnavailable) {
			return n.Err
		}
	}
	return why
}

// scanPattern is what a server is asked for: the locks whose names begin as the pattern does. It says more than is
// wanted where a name has braces, and does not depend on how the server reads the rest.
func scanPattern(prefix, pattern string) string {
	end := strings.IndexAny(pattern, `*?[\`)
	if end < 0 {
		return outside.Literally(prefix) + ":*:{" + outside.Literally(pattern) + "}"
	}
	return outside.Literally(prefix) + ":*:{" + outside.Literally(pattern[:end]) + "*}"
}

// matches reports whether a name matches a pattern, in which a slash is like any other character.
func matches(pattern, name string) bool {
	const other = "\x00" // No name has it.
	ok, _ := path.Match(strings.ReplaceAll(pattern, "/", other), strings.ReplaceAll(name, "/", other))
	return ok
}
