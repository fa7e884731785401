package identity

import (
	"context"
	"strconv"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// Enter sees that the servers know that the client may have something of a name, before the first request about it is sent.
func (i *Identity) Enter(ctx context.Context, keys lua.Keys, history int) error {
	if i == nil {
		return nil
	}
	k, name := i.of(keys.Lock), keys.Named(i.opts.Prefix)
	for tries := 0; ; tries++ {
		k.mu.Lock()
		n := k.enterLocked(name, history)
		entered := n.entered
		k.mu.Unlock()
		if i.replaced.Load() {
			return lease.ErrReplaced
		}
		if entered {
			return nil
		}
		err := k.confirm(ctx)
		switch {
		case err == nil:
			tries = 0
			continue
		case ctx.Err() != nil:
			return conn.GaveUp(ctx, calls.WhyEnded(ctx), err)
		case !conn.Transient(err):
			return conn.Advise(err)
		}
		if ended := i.servers.Rest(ctx, calls.Backoff(tries)); ended != nil {
			return conn.GaveUp(ctx, ended, err)
		}
	}
}

// Expect notes a name that is about to be entered with others, so that one request enters them all.
func (i *Identity) Expect(keys lua.Keys, history int) {
	if i == nil {
		return
	}
	k := i.of(keys.Lock)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.enterLocked(keys.Named(i.opts.Prefix), history)
}

// histories is above the longest history that a name can keep.
const histories = 2048

// noteOf is what the servers note of a name: a number of its own, and how many ends of holds its history keeps.
func noteOf(number int64, history int) int64 { return number*histories + int64(history) }

func (k *claim) enterLocked(name string, history int) *named {
	n := k.names[name]
	if n == nil {
		k.number++
		n = &named{note: noteOf(k.number, history)}
		k.names[name] = n
	}
	return n
}

// Leave notes that the client has nothing of a name any more.
func (i *Identity) Leave(keys lua.Keys) {
	if i == nil {
		return
	}
	k, name := i.of(keys.Lock), keys.Named(i.opts.Prefix)
	k.mu.Lock()
	defer k.mu.Unlock()
	if n := k.names[name]; n != nil {
		delete(k.names, name)
		k.removed = append(k.removed, name, strconv.FormatInt(-n.note, 10))
	}
}

// Refresh confirms the identity where names are used or were, if that is due.
func (i *Identity) Refresh(ctx context.Context) {
	if i == nil || i.replaced.Load() {
		return
	}
	for _, k := range i.claims {
		k.mu.Lock()
		due := len(k.names) > 0 && !k.fresh(confirmEvery) || len(k.removed) > 0
		k.mu.Unlock()
		if due {
			_ = k.confirm(ctx)
		}
	}
}
