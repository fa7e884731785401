package core

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/reason"
	"github.com/headwaiter/headwaiter/internal/wire"
)

// A caller provides the ticket, the hold and the room for effects. With these, a lock that is free, or that a message grants, and its
// release allocate nothing.
func TestAUsualCycleAllocatesNothing(t *testing.T) {
	const runs = 100
	for name, queued := range map[string]bool{"granted by the reply": false, "granted by a message": true} {
		t.Run(name, func(t *testing.T) {
			w := subscribed(t)
			options := &Options{Kind: wire.Exclusive, Permits: 1, Renewal: 10 * time.Second}
			tickets, holds, releases := make([]Ticket, 2*runs), make([]Hold, 2*runs), make([]Release, 2*runs)
			for i := range tickets {
				tickets[i].Options, tickets[i].Lease, tickets[i].Budget = options, 10*time.Second, time.Second
				tickets[i].Named("C", uint64(i+1), 2*time.Second)
			}
			room, next := [8]Effect{}, 0
			var x Input
			done := wire.Head{Status: wire.Done}
			input := func(x *Input) *Input {
				x.Now, x.Effects = w.now, room[:0]
				return x
			}
			cycle := func() {
				tk, h, d := &tickets[next], &holds[next], &releases[next]
				next++
				w.now = w.now.Add(time.Millisecond)
				w.l.Register(tk)
				w.l.Next(input(&x), tk, false, false)
				q, _ := w.l.BeginAcquire(&x, tk, wire.Wait, w.now)
				r := w.granted(uint64(w.us()), tk.Lease)
				if queued {
					r = wire.Reply{Status: wire.Waiting, Arrival: w.us(), Now: w.us(), Until: w.us() + 10_000_000}
				}
				w.l.OnAcquireReply(input(&x), &q, Attempt{Sent: w.now}, &r, &answered, nil)
				if queued {
					w.l.OnGrant(input(&x), tk.Text, Grant{Token: uint64(w.us()), From: w.now, Lasts: 2 * time.Second})
				}
				w.l.MayTake(input(&x), tk, 0, false)
				w.l.Take(&x, tk, h, Leases{})
				w.l.Leave(input(&x), h, wire.Exclusive, reason.ErrReleased, true)
				w.l.BeginRelease(&x, h, "")
				*d = ReleaseOf(tk)
				w.l.OnReleaseReply(input(&x), d, w.now, &done, &answered)
			}
			cycle() // The first makes the maps.
			require.Zero(t, testing.AllocsPerRun(runs, cycle))
			require.Equal(t, ended, tickets[next-1].state, "it was a whole cycle")
			require.Equal(t, ended, tickets[0].state)
		})
	}
}
