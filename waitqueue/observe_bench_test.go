package waitqueue

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/notify"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/observe"
)

// quiet is an observer that does nothing.
type quiet struct{}

func (quiet) Observe(context.Context, observe.Observation) {}

// room is that of what tells of a call.
var room notify.Teller

// tellAll is what is told of a call that waits, holds, is renewed and released: all that a cycle can meet.
func tellAll(ctx context.Context, w *wait, h *hold, now time.Time) {
	t := w.ticket
	t.teller = t.site.client.notifier.Teller(&room, "lock", "name", &t.text)
	h.use.teller = t.teller
	t.teller.Asked(ctx)
	t.tellQueuedLocked(1)
	t.teller.Granted(ctx, 1, time.Second, "")
	t.teller.Tell(observe.Observation{Moment: observe.Renewed, Token: h.token, Margin: time.Second})
	h.tellLongLocked(now, now)
	h.tellLostLocked(nil)
	h.use.teller.Note()
	h.released(time.Second, nil)
	w.ended(nil)
	t.site.tell(observe.Observation{Moment: observe.Woken, Count: 1})
	t.site.client.notifier.Served("lock", "name", 1, 1, true)
}

// observedBy returns a call of a client with the given observer.
func observedBy(o observe.Observer) (*wait, *hold) {
	c := &client{notifier: notify.New(o, nil, time.Minute, 0, "who")}
	s := &site{client: c, proto: lua.Fairlock, name: "name"}
	q := &binding{client: c, proto: s.proto, name: s.name}
	t := &ticket{site: s, queue: q, state: waiting, text: "text"}
	return &wait{ticket: t, site: s, begun: time.Now()}, &hold{ticket: t, use: use{since: time.Now()}}
}

func TestWhereNobodyLooksNothingIsAllocated(t *testing.T) {
	ctx, now := t.Context(), time.Now()
	w, h := observedBy(nil)
	require.Zero(t, testing.AllocsPerRun(100, func() { tellAll(ctx, w, h, now) }))
	w, h = observedBy(quiet{})
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { tellAll(ctx, w, h, now) }), 1.0, "the context of the call")
}

// BenchmarkTell is what it costs to tell of one call, a dozen moments, by who looks.
func BenchmarkTell(b *testing.B) {
	for _, x := range []struct {
		name string
		o    observe.Observer
	}{{"nobody", nil}, {"observer", quiet{}}, {"tracer", observe.Observers(quiet{}, quiet{})}} {
		b.Run(x.name, func(b *testing.B) {
			ctx, now := context.Background(), time.Now()
			w, h := observedBy(x.o)
			b.ReportAllocs()
			for b.Loop() {
				tellAll(ctx, w, h, now)
			}
		})
	}
}
