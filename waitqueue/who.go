package waitqueue

import (
	"context"
	"strconv"
	"time"

	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// What operators are told of a client is in a key of the client, and not in all that it holds and waits for. Nothing
// else depends on it: where the key is missing, they are told the client's id.

const (
	// whoEvery is how often a client says who it is while it uses a name.
	whoEvery = 20 * time.Second
	// whoLasts is how long that is known.
	whoLasts = time.Minute
)

// introduce says who the client is. An answer makes no difference.
func (c *client) introduce() {
	c.mu.Lock()
	c.said = time.Now()
	c.mu.Unlock()
	key := lua.ClientKey(c.opts.Prefix, c.id)
	_ = c.servers.Run(lua.Introduce, []string{key}, c.who, strconv.FormatInt(whoLasts.Milliseconds(), 10)).Error()
}

// sayAgain says it again while the client uses a name.
func (c *client) sayAgain(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.sites) > 0 {
		c.servers.Spawn(c.introduce)
		c.servers.Timers.Before(&c.again, now.Add(whoEvery))
	}
}

// name adds to inspections who the clients are that hold and wait.
func (c *client) name(ctx context.Context, infos []lease.Info) {
	who := map[string]string{}
	var clients, keys []string
	each := func(visit func(client string, who *string)) {
		for _, info := range infos {
			for i := range info.Holders {
				visit(info.Holders[i].Client, &info.Holders[i].Who)
			}
			for i := range info.Queue {
				visit(info.Queue[i].Client, &info.Queue[i].Who)
			}
		}
	}
	each(func(client string, known *string) {
		if _, asked := who[client]; *known == "" && !asked && client != "" {
			who[client] = ""
			clients, keys = append(clients, client), append(keys, lua.ClientKey(c.opts.Prefix, client))
		}
	})
	for i, name := range c.servers.Field(ctx, keys, "who") {
		who[clients[i]] = name
	}
	each(func(client string, known *string) {
		if *known == "" {
			*known = who[client]
		}
	})
	for i := range infos {
		if infos[i].Held {
			infos[i].Holder = infos[i].Holders[0]
		}
	}
}
