// Package identity is what a client with an identity does: it takes the identity, says at which names it may have something, and
// buries the clients that had the identity before.
package identity

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// A client may have an identity: a name of which its platform promises that at most one process has it at a time. Such a client
// raises its incarnation when it is made, and ends what the clients before it have left. For that the servers know at which
// names a client may have something: a name is entered before the first request about it.
//
// A request that a dead client has sent, and that comes late, finds at its name that the client was buried. That is known
// there for [lua.GraveLasts]. So nothing that can take or queue anything is sent unless the client knew not long ago that it
// has its identity.

const (
	// confirmFresh is for how long requests may follow a confirmation.
	confirmFresh = 50 * time.Second
	// confirmEvery is how often a client that uses names confirms its identity: it is known for a day.
	confirmEvery = 20 * time.Second
	// namesAtOnce is how many names one script enters or removes.
	namesAtOnce = 256
	// takeTime is how long Dial waits until what the clients before have left is ended. What a silent server keeps is ended later.
	takeTime = 5 * time.Second
)

// Options are what a client says of itself.
type Options struct {
	Name       string // of the identity
	Invocation string // what tells the run of its program from others
	Who        string // the client, for operators
	Prefix     string // of all keys
	// Replaced is told that another client has the identity; Died of what the burial of one before has ended.
	Replaced func(id string)
	Died     func(Buried)
}

// An Identity is what a client knows of its identity. Its methods may be called on nil, of a client without one.
type Identity struct {
	servers  *conn.Servers
	opts     Options
	replaced atomic.Bool // another client has it, for good
	claims   []*claim    // outside a cluster one
}

// A claim is the part of an identity that knows the names of some slots.
type claim struct {
	of   *Identity
	key  string
	sure atomic.Pointer[time.Time] // when a confirmation was sent that was answered; nil: there was none

	mu          sync.Mutex // guards the fields below; nothing is called under it but spawn
	now         *meeting   // under way; nil if there is none
	client      string     // that has the identity here; empty: none yet
	incarnation int64
	names       map[string]*named
	removed     []string        // names and their notes, to be removed
	burials     []chan struct{} // of the clients before, each closed at its end
	number      int64           // of the last entry
}

// A meeting is one confirmation, for all that wait for it.
type meeting struct {
	over chan struct{}
	err  error // set before the end
}

// named is a name that the client may have something of.
type named struct {
	note    int64 // its number and how many ends of holds its history keeps: see noteOf
	entered bool  // the server knows it
}

// ours are the clients of this process that have an identity: a second one with the same identity is refused.
var ours struct {
	mu  sync.Mutex
	ids map[string]bool
}

// Ours notes whether a client of this process has an identity.
func Ours(id string, there bool) {
	ours.mu.Lock()
	defer ours.mu.Unlock()
	if ours.ids == nil {
		ours.ids = make(map[string]bool)
	}
	if delete(ours.ids, id); there {
		ours.ids[id] = true
	}
}

// othersOf are the other clients of this process that have an identity.
func othersOf(id string) (ids []string) {
	ours.mu.Lock()
	defer ours.mu.Unlock()
	for other := range ours.ids {
		if other != id {
			ids = append(ids, other)
		}
	}
	return ids
}

// New returns what a client with an identity knows of it, and has the servers ask it whether requests may be sent.
func New(servers *conn.Servers, o Options) *Identity {
	i := &Identity{servers: servers, opts: o}
	for _, key := range keysOf(servers, o.Prefix, o.Name) {
		i.claims = append(i.claims, &claim{of: i, key: key, names: make(map[string]*named)})
	}
	Ours(servers.ID(), true)
	servers.Guarded(i)
	return i
}

// keysOf are the keys of an identity.
func keysOf(servers *conn.Servers, prefix, identity string) (keys []string) {
	if !servers.Clustered() {
		return []string{lua.IdentityKey(prefix, identity, 0, false)}
	}
	for n := range lua.Identities {
		keys = append(keys, lua.IdentityKey(prefix, identity, uint16(n*lua.Slots/lua.Identities), true))
	}
	return keys
}

// Replaced reports whether another client has the identity.
func (i *Identity) Replaced() bool { return i != nil && i.replaced.Load() }

// Take makes the client the one that has the identity, and ends what those before have left. It waits for that until
// takeTime is over; the rest goes on in the background. A server that has not answered by then is an error if it is the only
// one.
func (i *Identity) Take() error {
	if i == nil {
		return nil
	}
	c := i.servers
	ctx, cancel := context.WithTimeout(context.Background(), takeTime)
	defer cancel()
	type outcome struct {
		claim *claim
		err   error
	}
	over := make(chan outcome, len(i.claims))
	for _, k := range i.claims {
		if !c.Spawn(func() { over <- outcome{k, k.take()} }) {
			return lease.ErrClosed
		}
	}
	for range i.claims {
		select {
		case o := <-over:
			if o.err != nil {
				return fmt.Errorf("headwaiter: identity %q: %w", i.opts.Name, o.err)
			}
		case <-ctx.Done():
			if k := i.claims[0]; len(i.claims) == 1 && k.sure.Load() == nil {
				return fmt.Errorf("headwaiter: identity %q: %w", i.opts.Name, lease.ErrUnavailable)
			}
			return nil
		}
	}
	return nil
}

// take takes the identity at one of its keys, however long that lasts, and buries the clients before.
func (k *claim) take() error {
	c := k.of.servers
	for tries := 0; ; tries++ {
		err := k.confirm(context.Background())
		switch {
		case err == nil:
			k.mu.Lock()
			burials := slices.Clone(k.burials)
			k.mu.Unlock()
			for _, over := range burials {
				<-over
			}
			return nil
		case !conn.Transient(err), errors.Is(err, lease.ErrInvalid):
			return conn.Advise(err)
		}
		if ended := c.Rest(context.Background(), calls.Backoff(tries)); ended != nil {
			return ended
		}
	}
}

// Rename notes that the client has another id: it takes the identity anew before its next request.
func (i *Identity) Rename(before, id string) {
	if i != nil {
		Ours(before, false)
		Ours(id, true)
	}
}

// Close notes that the client has ended.
func (i *Identity) Close() {
	if i != nil {
		Ours(i.servers.ID(), false)
	}
}

// of is the claim that knows of the names in the slot of a key.
func (i *Identity) of(key string) *claim {
	if len(i.claims) == 1 {
		return i.claims[0]
	}
	return i.claims[lua.IdentityOf(lua.Slot(key))]
}

// fresh reports whether a confirmation is younger than that. Both clocks count, as one of them stands while the machine sleeps.
func (k *claim) fresh(than time.Duration) bool {
	at := k.sure.Load()
	if at == nil {
		return false
	}
	now := time.Now()
	wall := now.Round(0).Sub(at.Round(0))
	return now.Sub(*at) < than && wall < than && wall > -than
}

// Alive sees that a request may follow that a dead client must not send. An error says that it was not sent.
func (i *Identity) Alive(ctx context.Context, s *lua.Script, key string) error {
	if i == nil || s.Mortal() == nil {
		return nil
	}
	if k := i.of(key); !k.fresh(confirmFresh) {
		return k.confirm(ctx)
	}
	if i.replaced.Load() {
		return conn.NotSent(lease.ErrReplaced)
	}
	return nil
}

// confirm asks whether the client still has its identity, and enters and removes names. Who comes while that is under way waits
// for it, and looks again.
func (k *claim) confirm(ctx context.Context) error {
	c := k.of.servers
	if k.of.replaced.Load() {
		return conn.NotSent(lease.ErrReplaced)
	}
	k.mu.Lock()
	m := k.now
	if m == nil {
		m = &meeting{over: make(chan struct{})}
		if !c.Spawn(func() {
			m.err = k.meet()
			k.mu.Lock()
			k.now = nil
			k.mu.Unlock()
			close(m.over)
		}) {
			k.mu.Unlock()
			return conn.NotSent(lease.ErrClosed)
		}
		k.now = m
	}
	k.mu.Unlock()
	select {
	case <-m.over:
		return m.err
	case <-ctx.Done():
		return conn.NotSent(ctx.Err())
	}
}

// meet is confirm for the client as it is called now. It takes the identity if the client does not have it here yet.
func (k *claim) meet() error {
	c, id := k.of.servers, k.of.servers.ID()
	for {
		k.mu.Lock()
		known := k.client == id
		k.mu.Unlock()
		if !known {
			if err := k.raise(id); err != nil {
				return err
			}
		}
		pairs, incarnation := k.due()
		at := time.Now()
		args := append([]string{id, strconv.FormatInt(incarnation, 10), k.of.opts.Who, k.of.opts.Invocation}, pairs...)
		r, err := lua.Confirm.Tuple(c.Run(lua.Confirm, []string{k.key, lua.IdentityNames(k.key, id)}, args...))
		switch {
		case err != nil && (conn.Transient(err) || conn.LoggedOut(err)):
			return conn.NotSent(err)
		case err != nil:
			return err
		case r.Status == wire.Refused:
			k.of.lose(id)
			return conn.NotSent(lease.ErrReplaced)
		}
		if more := k.noted(pairs, r.Status == wire.Waiting); !more {
			k.sure.Store(&at)
			return nil
		}
	}
}

// due are the names to be entered, and those to be removed, with their notes.
func (k *claim) due() (pairs []string, incarnation int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := min(len(k.removed), 2*namesAtOnce)
	pairs = append(pairs, k.removed[:n]...)
	for name, of := range k.names {
		if len(pairs) >= 2*namesAtOnce {
			break
		}
		if !of.entered {
			pairs = append(pairs, name, strconv.FormatInt(of.note, 10))
		}
	}
	return pairs, k.incarnation
}

// noted takes in that names were entered and removed, and reports whether there are more. If the server had lost what it
// knew, all names are to be entered again, and the clients before are to be looked for.
func (k *claim) noted(pairs []string, lost bool) (more bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if lost {
		k.client = ""
		return true
	}
	for j := 0; j < len(pairs); j += 2 {
		if note, _ := strconv.ParseInt(pairs[j+1], 10, 64); note < 0 {
			k.removed = k.removed[2:] // They are the first.
		} else if n := k.names[pairs[j]]; n != nil && n.note == note {
			n.entered = true
		}
	}
	for _, n := range k.names {
		more = more || !n.entered
	}
	return more || len(k.removed) > 0
}

// raise takes the identity, and has those before buried.
func (k *claim) raise(id string) error {
	c := k.of.servers
	took, err := lua.Incarnate{}.Read(c.Run(lua.Incarnate{}.Script(), []string{k.key},
		lua.Incarnate{Client: id, Who: k.of.opts.Who, Invocation: k.of.opts.Invocation, Ours: othersOf(id)}.Args()...))
	switch {
	case err != nil && conn.Transient(err):
		return conn.NotSent(err)
	case err != nil:
		return err
	case took.Refused:
		return fmt.Errorf("%w: another client of this process has it", lease.ErrInvalid)
	}
	k.mu.Lock()
	k.client, k.incarnation = id, took.Incarnation
	for _, n := range k.names {
		n.entered = false
	}
	k.mu.Unlock()
	for _, dead := range took.Older {
		if dead == id {
			continue
		}
		done := make(chan struct{})
		if !c.Spawn(func() {
			defer close(done)
			g := grave{c, k.of.opts.Prefix, k.key, dead, k.of.opts.Died}
			_ = g.bury(context.Background()) // Until the client is closed.
		}) {
			return conn.NotSent(lease.ErrClosed)
		}
		k.mu.Lock()
		k.burials = append(k.burials, done)
		k.mu.Unlock()
	}
	return nil
}

// lose notes that another client has the identity.
func (i *Identity) lose(id string) {
	if !i.replaced.Swap(true) && i.opts.Replaced != nil {
		i.servers.Spawn(func() { i.opts.Replaced(id) })
	}
}

// Lost is called when a server says that the client was buried at a name.
func (i *Identity) Lost() {
	if i != nil {
		i.lose(i.servers.ID())
	}
}
