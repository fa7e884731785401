package console

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

func TestHistoryTellsWhoHeldFromWhenUntilWhen(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	span := func(ticket string, token uint64, from, to int) hold {
		h := hold{ticket: ticket, token: token, from: at(from)}
		if to > 0 {
			h.to = at(to)
		}
		return h
	}
	look := func(tickets ...any) (i lease.Info) {
		for n := 0; n < len(tickets); n += 3 {
			i.Holders = append(i.Holders, lease.Holder{
				Ticket: tickets[n].(string), Token: uint64(tickets[n+1].(int)), Since: at(tickets[n+2].(int)), Left: time.Second,
			})
		}
		return i
	}
	for name, c := range map[string]struct {
		exclusive bool
		do        func(h *history)
		want      []hold
	}{
		"a grant ends the hold before": {true, func(h *history) {
			h.begin("a", 1, at(1))
			h.begin("b", 2, at(4))
			h.begin("b", 2, at(5)) // Told twice.
		}, []hold{span("a", 1, 1, 4), span("b", 2, 4, 0)}},
		"a hold that is not seen any more has ended by then": {true, func(h *history) {
			h.see(look("a", 1, 1), at(2))
			h.see(look(), at(3))
			h.see(look(), at(9))
		}, []hold{span("a", 1, 1, 3)}},
		"a look that began before a grant does not end it": {true, func(h *history) {
			h.see(look("a", 1, 1), at(2))
			h.begin("b", 2, at(5))
			h.see(look("a", 1, 1), at(4))
		}, []hold{span("a", 1, 1, 5), span("b", 2, 5, 0)}},
		"a hold that is seen late ended when the next began": {true, func(h *history) {
			h.begin("b", 2, at(5))
			h.begin("c", 3, at(7))
			h.see(look("a", 1, 1), at(4))
		}, []hold{span("b", 2, 5, 7), span("c", 3, 7, 0), span("a", 1, 1, 5)}},
		"several hold beside each other": {false, func(h *history) {
			h.see(look("a", 1, 1, "b", 2, 2), at(3))
			h.begin("c", 3, at(4))
			h.see(look("b", 2, 2, "c", 3, 4), at(6))
		}, []hold{span("a", 1, 1, 6), span("b", 2, 2, 0), span("c", 3, 4, 0)}},
		"one ticket may hold again": {true, func(h *history) {
			h.begin("a", 1, at(1))
			h.begin("a", 2, at(2))
		}, []hold{span("a", 1, 1, 2), span("a", 2, 2, 0)}},
	} {
		h := history{exclusive: c.exclusive}
		c.do(&h)
		for i := range h.holds {
			h.holds[i].until, h.holds[i].lapsed = time.Time{}, false // The next test's.
		}
		require.Equal(t, c.want, h.holds, name)
	}
}

// A hold is lost where it lasted as long as its lease, whether a look has seen that or the next hold began.
func TestHistoryTellsWhichLeasesRanOut(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	look := func(left time.Duration) lease.Info {
		return lease.Info{Holders: []lease.Holder{{Ticket: "a", Token: 1, Since: start, Left: left}}}
	}
	for name, c := range map[string]struct {
		do     func(h *history)
		lapsed bool
	}{
		"released before its lease ended":  {func(h *history) { h.begin("b", 2, start.Add(9*time.Second)) }, false},
		"the next holds when it has ended": {func(h *history) { h.begin("b", 2, start.Add(10*time.Second)) }, true},
		"renewed, then released": {func(h *history) {
			h.see(look(10*time.Second), start.Add(3*time.Second))
			h.begin("b", 2, start.Add(11*time.Second))
		}, false},
		"a look finds it over its time": {func(h *history) { h.see(look(-time.Second), start.Add(11*time.Second)) }, true},
		"a look does not find it":       {func(h *history) { h.see(lease.Info{}, start.Add(10*time.Second)) }, true},
		"a look finds it released":      {func(h *history) { h.see(lease.Info{}, start.Add(5*time.Second)) }, false},
	} {
		h := history{exclusive: true}
		h.see(look(10*time.Second), start)
		c.do(&h)
		require.Equal(t, c.lapsed, h.holds[0].lapsed, name)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	t.Parallel()
	h, start := history{exclusive: true}, time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for i := range 10 * mostHolds {
		ticket := lua.Ticket{Client: fmt.Sprint("client", i%40), Number: uint64(i), Kind: 'x', Permits: 1}.String()
		h.begin(ticket, uint64(i+1), start.Add(time.Duration(i)*10*time.Millisecond))
	}
	require.Len(t, h.holds, mostHolds)
	now := start.Add(10 * mostHolds * 10 * time.Millisecond)
	drawn := h.timeline(start, now, map[string]string{"client39": "app@host#1"})
	require.Equal(t, "2.00s", drawn.Span, "from when on all is known")
	require.Len(t, drawn.Rows, mostRows)
	require.Equal(t, 40-mostRows, drawn.More)
	require.Len(t, drawn.HandOffs, mostHandOffs)
	require.Equal(t, told("app@host#1"), drawn.HandOffs[0].To)
	require.Equal(t, told("client client38"), drawn.HandOffs[0].From)
	for _, r := range drawn.Rows {
		for _, b := range r.Bars {
			require.GreaterOrEqual(t, b.From, 0.0)
			require.LessOrEqual(t, b.From+b.Width, float64(wide))
		}
	}
}
