package console

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/cmd/headwaiter/internal/handoffs"
	"github.com/headwaiter/headwaiter/cmd/headwaiter/internal/words"
	"github.com/headwaiter/headwaiter/inspect"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/waitqueue"
)

const (
	// lookEvery is how often a name that somebody looks at is inspected: ten scripts a second are nothing to a server.
	lookEvery = 100 * time.Millisecond
	// lookTime is how long a look may take before the page says that Redis does not answer.
	lookTime = time.Second
	// linger is for how long a name is followed after its last page, so that it is not forgotten between two.
	linger = 30 * time.Second
	// mostWatched is how many names are followed at a time: each has a connection of its own that listens.
	mostWatched = 32
	// mostLookers is how many pages follow names at a time.
	mostLookers = 256
)

var errCrowded = errors.New("too many pages of names are open: close some")

// hub has the names that pages look at.
type hub struct {
	console *Console

	mu      sync.Mutex
	watched map[watchKey]*watch
	lookers int
}

type watchKey struct{ kind, name string }

// watch follows one name, for all pages of it.
type watch struct {
	watchKey
	end     context.CancelFunc
	ready   chan struct{} // closed after the first look
	lookers int           // the hub's lock guards it
	going   *time.Timer   // ends it when nobody looks any more

	mu      sync.Mutex
	info    lease.Info
	trouble string // why the last look failed, if it did
	who     words.Roll
	began   time.Time
	seen    time.Time // of info
	rate    string
	history history
}

// join follows a name until leave is called.
func (h *hub) join(kind, name string) (w *watch, leave func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := watchKey{kind, name}
	w = h.watched[key]
	switch {
	case h.console.ctx.Err() != nil:
		return nil, nil, h.console.ctx.Err()
	case h.lookers == mostLookers || w == nil && len(h.watched) == mostWatched:
		return nil, nil, errCrowded
	case w == nil:
		w = &watch{watchKey: key, ready: make(chan struct{}), who: words.Roll{}, began: time.Now()}
		w.history.exclusive = !lua.ProtocolOf(kind).Several()
		var ctx context.Context
		ctx, w.end = context.WithCancel(h.console.ctx)
		h.watched[key] = w
		h.console.work.Go(func() { w.run(ctx, h.console) })
	case w.going != nil:
		w.going.Stop()
	}
	h.lookers++
	w.lookers++
	return w, sync.OnceFunc(func() { h.leave(w) }), nil
}

func (h *hub) leave(w *watch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lookers--
	if w.lookers--; w.lookers > 0 {
		return
	}
	w.going = time.AfterFunc(linger, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if w.lookers == 0 && h.watched[w.watchKey] == w {
			delete(h.watched, w.watchKey)
			w.end()
		}
	})
}

// run looks and listens until it is ended.
func (w *watch) run(ctx context.Context, c *Console) {
	defer w.end()
	heard, err := handoffs.Hear(c.Client, w.kind, w.name, w.heard)
	if err != nil {
		w.see(lease.Info{}, err, time.Now(), nil)
		return
	}
	defer heard.Stop()
	queue := (*waitqueue.Client)(c.Client).Queue(lua.ProtocolOf(w.kind), w.name, waitqueue.Terms{Lease: lease.DefaultLease})
	w.recall(ctx, c.Client)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var counter *handoffs.Counter
	for ctx.Err() == nil {
		begun := time.Now()
		looking, cancel := context.WithTimeout(ctx, lookTime)
		info, err := queue.Inspect(looking, "0") // The limit of what nobody has used.
		cancel()
		if ctx.Err() != nil {
			return
		}
		if counter == nil && err == nil {
			counter = handoffs.NewCounter(heard, info)
		}
		w.see(info, err, begun, counter)
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// recall takes in what a lock has kept of its past. Without that, or the right to see it, there is what is seen from now on.
func (w *watch) recall(ctx context.Context, c *headwaiter.Client) {
	if w.kind != lua.Fairlock.Kind {
		return
	}
	looking, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	past, _ := inspect.History(looking, c, w.name)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range slices.Backward(past) {
		w.history.recall(e)
		w.who.Read(lease.Info{Holders: []lease.Holder{e.Holder}})
	}
	if len(past) > 0 {
		w.began = past[len(past)-1].Since
	}
}

// heard takes in the grants of a message.
func (w *watch) heard(grants []wire.Grant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, g := range grants {
		w.history.begin(g.Ticket, g.Token, time.Now())
	}
}

// see takes in a look that began at a time.
func (w *watch) see(info lease.Info, err error, begun time.Time, counter *handoffs.Counter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.trouble = ""; err != nil {
		w.trouble = words.OneLine(err.Error())
	} else {
		w.info, w.seen = info, time.Now()
		w.who.Read(info)
		w.history.see(info, begun)
		counter.See(info, w.seen)
		w.rate = counter.String()
	}
	select {
	case <-w.ready:
	default:
		close(w.ready)
	}
}
