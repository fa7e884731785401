package outside

import (
	"context"
	"strconv"
	"time"

	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// introduced is what a client has said of itself.
type introduced struct {
	who string
	lease.Incarnation
}

// Name adds to inspections who the clients are that hold and wait, and which incarnations of their identities, where that is
// known.
func (w Wiring) Name(ctx context.Context, infos ...lease.Info) {
	clients := map[string]*introduced{}
	each := func(visit func(client string, who *string, as *lease.Incarnation)) {
		for _, info := range infos {
			for i := range info.Holders {
				h := &info.Holders[i]
				visit(h.Client, &h.Who, &h.Incarnation)
			}
			for i := range info.Queue {
				q := &info.Queue[i]
				visit(q.Client, &q.Who, &q.Incarnation)
			}
		}
	}
	each(func(client string, _ *string, _ *lease.Incarnation) {
		if client != "" {
			clients[client] = &introduced{}
		}
	})
	w.ask(ctx, clients)
	each(func(client string, known *string, as *lease.Incarnation) {
		if c := clients[client]; c != nil {
			*as = c.Incarnation
			if *known == "" {
				*known = c.who
			}
		}
	})
	for i := range infos {
		if infos[i].Held {
			infos[i].Holder = infos[i].Holders[0]
		}
	}
}

// ask asks the servers what clients have said of themselves, and who has the identities of those that have one.
func (w Wiring) ask(ctx context.Context, clients map[string]*introduced) {
	ids, keys := make([]string, 0, len(clients)), make([]string, 0, len(clients))
	for id := range clients {
		ids, keys = append(ids, id), append(keys, lua.ClientKey(w.Prefix, id))
	}
	var with, identities []string
	for i, said := range w.servers.Fields(ctx, keys, "who") {
		if len(said) == 0 {
			continue
		}
		c := clients[ids[i]]
		if c.who, c.Identity, c.Invocation = lua.Introduced(said[0]); c.Identity != "" {
			with, identities = append(with, ids[i]), append(identities, w.identityKey(c.Identity))
		}
	}
	if len(with) == 0 {
		return
	}
	for i, now := range w.servers.Fields(ctx, identities, "client", "incarnation") {
		c := clients[with[i]]
		switch {
		case len(now) == 0 || now[1] == "": // Nothing is known of it.
		case now[0] == with[i]:
			c.Taken = w.local(identities[i], now[1])
		default:
			c.Replaced = true
		}
	}
}

// identityKey is a key of an identity. In a cluster it is the first of several, which say the same unless a master was silent.
func (w Wiring) identityKey(identity string) string {
	return lua.IdentityKey(w.Prefix, identity, 0, w.servers.Clustered())
}

// local is a time in µs of the server of a key, by the clock of this machine; the zero time if it is none.
func (w Wiring) local(key, us string) time.Time {
	at, err := strconv.ParseInt(us, 10, 64)
	if err != nil || at == 0 {
		return time.Time{}
	}
	t := time.UnixMicro(at)
	if now, ok := w.servers.Now(key); ok {
		t = time.Now().Add(t.Sub(now))
	}
	return t
}
