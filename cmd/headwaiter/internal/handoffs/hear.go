package handoffs

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// Hearing counts the grants that go out as messages. It listens by a pattern, which makes nobody look alive who is
// not: subscribers are counted by channel.
type Hearing struct {
	grants    atomic.Int64
	heard     func([]wire.Grant)
	listening atomic.Bool
	end       context.CancelFunc
	done      chan struct{} // closed when nothing listens any more; nil if nothing ever did
}

// hearAgain is how long to wait before a connection is made anew.
const hearAgain = 500 * time.Millisecond

// Hear begins to count, on a connection of its own. It calls heard, if that is not nil, with the grants of each message;
// heard must not block. Sharded channels have no patterns, so in a cluster nothing is heard.
func Hear(c *headwaiter.Client, kind, name string, heard func([]wire.Grant)) (*Hearing, error) {
	h := &Hearing{end: func() {}, heard: heard}
	w, err := waitqueue.WiringOf((*waitqueue.Client)(c))
	if err != nil || lua.ProtocolOf(kind).Broadcast {
		return h, err
	}
	w.Made.DisableCache = true
	redis, err := rueidis.NewClient(w.Made)
	if err != nil {
		return h, nil // It is only to tell more.
	}
	if redis.Mode() == rueidis.ClientModeCluster {
		redis.Close()
		return h, nil
	}
	pattern := Literally(lua.ProtocolOf(kind).Keys(w.Prefix, name).Channel("")) + "*"
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
func (h *Hearing) listen(ctx context.Context, redis rueidis.Client, pattern string) {
	subscribed := rueidis.WithOnSubscriptionHook(ctx, func(rueidis.PubSubSubscription) { h.listening.Store(true) })
	for {
		err := redis.Receive(subscribed, redis.B().Psubscribe().Pattern(pattern).Build(), func(m rueidis.PubSubMessage) {
			if strings.HasPrefix(m.Message, string(wire.MessageGrant)) {
				if told, err := wire.ParseMessage(m.Message); err == nil {
					h.grants.Add(int64(len(told.Grants)))
					if h.heard != nil {
						h.heard(told.Grants)
					}
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

// Count is how many grants were heard.
func (h *Hearing) Count() int64 { return h.grants.Load() }

// Live reports whether grants are heard now.
func (h *Hearing) Live() bool { return h.listening.Load() }

// Stop ends the listening, and waits for that.
func (h *Hearing) Stop() {
	h.end()
	if h.done != nil {
		<-h.done
	}
}

// Literally is a text as a pattern that matches it alone.
func Literally(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(text)
}
