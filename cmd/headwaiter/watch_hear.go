package main

import (
	"cmp"
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/inspect"
	"github.com/headwaiter/headwaiter/lua"
)

// hearing counts the grants that go out as messages. It listens by a pattern, which makes nobody look alive who is
// not: subscribers are counted by channel.
type hearing struct {
	grants    atomic.Int64
	listening atomic.Bool
	end       context.CancelFunc
	done      chan struct{} // closed when nothing listens any more; nil if nothing ever did
}

// hearAgain is how long to wait before a connection is made anew.
const hearAgain = 500 * time.Millisecond

// hear begins to count. Sharded channels have no patterns, so in a cluster nothing is heard.
func (w *watching) hear(n inspect.Listed) (*hearing, error) {
	h := &hearing{end: func() {}}
	o, err := w.options("headwaiter watch")
	if err != nil || lua.ProtocolOf(n.Kind).Broadcast {
		return h, err
	}
	o.Redis.DisableCache = true
	redis, err := rueidis.NewClient(o.Redis)
	if err != nil {
		return h, nil // It is only to tell more.
	}
	if redis.Mode() == rueidis.ClientModeCluster {
		redis.Close()
		return h, nil
	}
	prefix := cmp.Or(o.Prefix, defaultPrefix)
	pattern := literally(lua.ProtocolOf(n.Kind).Keys(prefix, n.Name).Channel("")) + "*"
	ctx, end := context.WithCancel(context.Background())
	h.end, h.done = end, make(chan struct{})
	go func() {
		defer close(h.done)
		defer redis.Close()
		h.listen(ctx, redis, pattern)
	}()
	return h, nil
}

// listen counts until its end, or until the server says that it will not have it.
func (h *hearing) listen(ctx context.Context, redis rueidis.Client, pattern string) {
	subscribed := rueidis.WithOnSubscriptionHook(ctx, func(rueidis.PubSubSubscription) { h.listening.Store(true) })
	for {
		err := redis.Receive(subscribed, redis.B().Psubscribe().Pattern(pattern).Build(), func(m rueidis.PubSubMessage) {
			if strings.HasPrefix(m.Message, string(lua.MessageGrant)) {
				if told, err := lua.ParseMessage(m.Message); err == nil {
					h.grants.Add(int64(len(told.Grants)))
				}
			}
		})
		h.listening.Store(false)
		if _, refused := rueidis.IsRedisErr(err); refused {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(hearAgain):
		}
	}
}

func (h *hearing) count() int64 { return h.grants.Load() }
func (h *hearing) live() bool   { return h.listening.Load() }

func (h *hearing) stop() {
	h.end()
	if h.done != nil {
		<-h.done
	}
}
