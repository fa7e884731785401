package console

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/countdown"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/rwlock"
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
		"several hold together": {false, func(h *history) {
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
		ticket := wire.Ticket{Client: fmt.Sprint("client", i%40), Number: uint64(i), Kind: 'x', Permits: 1}.String()
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

var field = regexp.MustCompile(`<input type="hidden" name="(\w+)" value="([^"]*)">`)

// form is what the confirmation of a release would send.
func (b *board) form(t *testing.T, kind, name string, h lease.Holder) url.Values {
	t.Helper()
	form := url.Values{}
	for _, f := range field.FindAllStringSubmatch(b.page(t, releaseLink(kind, name, h)), -1) {
		form.Set(f[1], html.UnescapeString(f[2]))
	}
	require.Len(t, form, 5)
	return form
}

func TestAHoldIsReleasedByForceAfterAQuestion(t *testing.T) {
	kit.Two(t, func(t *testing.T, s redistest.Backend, a, c *headwaiter.Client) {
		m := fairlock.New(c, "orders")
		held := kit.Got(fairlock.New(a, "orders").Lock(t.Context()))(t)
		wait := kit.Joins(t, 1, m.Lock, m.Inspect)
		kit.Eventually(t, "both clients have said who they are", func() bool {
			info := kit.Got(m.Inspect(t.Context()))(t)
			return info.Holder.Who != "" && info.Queue[0].Who != ""
		})
		b := opened(t, kit.Dial(t, s), allowed)

		require.Contains(t, b.page(t, "/name?kind=lock&name=orders"), "Release…")
		question := b.page(t, releaseLink("lock", "orders", lease.Holder{Token: held.Token()}))
		for _, part := range []string{"<b>test</b> on host ", a.ID(), strconv.FormatUint(held.Token(), 10), "1 call waits", "may still be at work"} {
			require.Contains(t, question, part)
		}
		require.NoError(t, held.Context().Err(), "the question changes nothing")

		form := b.form(t, "lock", "orders", lease.Holder{Token: held.Token()})
		w := b.do("POST", "/release", form, "Sec-Fetch-Site: same-origin")
		require.Equal(t, http.StatusOK, w.Code, w.Body)
		require.ErrorIs(t, kit.Lost(t, held), lease.ErrForced)
		next := wait.Value(t)
		require.Contains(t, w.Body.String(), "It was released by force")
		require.Regexp(t, `Now: test@\S+#\d+\.`, w.Body)
		require.Regexp(t, `^headwaiter: released the lock orders of test@\S+#\d+ \(client \S+, token \d+\) by force\n$`, b.log)

		require.Equal(t, http.StatusConflict, b.do("POST", "/release", form).Code, "once")
		require.NoError(t, next.Context().Err(), "the next hold is not the one that was shown")
	})
}

func TestAReleaseWhoseAnswerIsLostIsInTheLog(t *testing.T) {
	s := kit.Start(t)
	held := kit.Got(fairlock.New(kit.Dial(t, s), "orders").Lock(t.Context()))(t)
	proxy := kit.Proxy(t, s)
	b := opened(t, kit.Dial(t, s, kit.Through(proxy)), allowed)
	form := b.form(t, "lock", "orders", lease.Holder{Token: held.Token()})
	token := strconv.FormatUint(held.Token(), 10)
	_, err := fairlock.New(kit.Dial(t, s), "another").ForceRelease(t.Context(), 1)
	require.ErrorIs(t, err, lease.ErrNotHeld, "from now on the server has the script")
	proxy.LoseReplies(1000, func(command []string) bool { return slices.Contains(command, token) })
	b.do("POST", "/release", form)
	require.ErrorIs(t, kit.Lost(t, held), lease.ErrForced)
	require.Regexp(t, `^headwaiter: tried to release the lock orders of test@.* by force: .+\n$`, b.log)
}

func TestOneHolderOfSeveralIsReleased(t *testing.T) {
	s := kit.Start(t)
	m := rwlock.New(kit.Dial(t, s), "prices") // Readers have one token together.
	first := kit.Got(m.RLock(t.Context()))(t)
	second := kit.Got(rwlock.New(kit.Dial(t, s), "prices").RLock(t.Context()))(t)
	require.Equal(t, first.Token(), second.Token())
	info := kit.Got(m.Inspect(t.Context()))(t)
	b := opened(t, kit.Dial(t, s), allowed)
	require.Equal(t, http.StatusOK, b.do("POST", "/release", b.form(t, "rwlock", "prices", info.Holders[1])).Code)
	require.ErrorIs(t, kit.Lost(t, second), lease.ErrForced)
	require.NoError(t, first.Context().Err())
	require.NoError(t, kit.Err(countdown.New(kit.Dial(t, s), "steps").TrySetCount(t.Context(), 2)))
	require.Equal(t, http.StatusBadRequest, b.do("GET", releaseLink("latch", "steps", lease.Holder{Token: 7}), nil).Code)
}

// The one whose lease ends last is not among those that a page tells.
func TestOneHolderOfMoreThanAreToldIsReleased(t *testing.T) {
	s := kit.Start(t)
	m := rwlock.New(kit.Dial(t, s), "prices")
	for range toldHolders {
		require.NoError(t, kit.Err(m.RLock(t.Context())))
	}
	last := kit.Got(rwlock.New(kit.Dial(t, s), "prices", headwaiter.WithLease(time.Hour)).RLock(t.Context()))(t)
	ticket := s.Do("ZRANGE", "headwaiter:rwlock:{prices}:holders", "-1", "-1").([]any)[0].(string)
	kit.Listening(t, s, 2)
	b := opened(t, kit.Dial(t, s), allowed)
	form := b.form(t, "rwlock", "prices", lease.Holder{Token: last.Token(), Ticket: ticket})
	require.Equal(t, http.StatusOK, b.do("POST", "/release", form).Code)
	require.ErrorIs(t, kit.Lost(t, last), lease.ErrForced)
}

func TestWhatIsNotAConfirmedReleaseOfThisConsoleReleasesNothing(t *testing.T) {
	s := kit.Start(t)
	held := kit.Got(fairlock.New(kit.Dial(t, s), "orders").Lock(t.Context()))(t)
	other := kit.Got(fairlock.New(kit.Dial(t, s), "stock").Lock(t.Context()))(t)
	look := kit.Dial(t, s)
	b, reading, earlier := opened(t, look, allowed), opened(t, look), opened(t, look, allowed)
	form := b.form(t, "lock", "orders", lease.Holder{Token: held.Token()})
	change := func(key, value string) url.Values {
		changed := url.Values{}
		for k, v := range form {
			changed[k] = v
		}
		changed.Set(key, value)
		return changed
	}
	refused := func(what string, code int, at *board, method, target string, form url.Values, headers ...string) {
		t.Helper()
		require.Equal(t, code, at.do(method, target, form, headers...).Code, what)
	}
	refused("another site", 403, b, "POST", "/release", form, "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document")
	refused("another port", 403, b, "POST", "/release", form, "Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document")
	refused("another origin", 403, b, "POST", "/release", form, "Origin: http://evil.example")
	refused("an origin that hides", 403, b, "POST", "/release", form, "Origin: null")
	refused("another host", 421, b, "POST", "/release", form, "Host: evil.example")
	refused("no signature", 403, b, "POST", "/release", change("signature", ""))
	refused("a signature of another ticket", 403, b, "POST", "/release", change("ticket", "x"))
	refused("a signature of another hold", 403, b, "POST", "/release", change("token", strconv.FormatUint(other.Token(), 10)))
	refused("a signature of another name", 403, b, "POST", "/release", change("name", "stock"))
	refused("a form of a console that has ended", 403, b, "POST", "/release", earlier.form(t, "lock", "orders", lease.Holder{Token: held.Token()}))
	refused("values in the address", 403, b, "POST", "/release?"+form.Encode(), url.Values{})
	refused("a GET", 200, b, "GET", "/release?"+form.Encode(), nil)
	refused("other methods", 405, b, "PUT", "/release", form)
	refused("a long form", 400, b, "POST", "/release", change("name", string(make([]byte, formLimit))))
	refused("a console that only reads", 403, reading, "POST", "/release", form)
	refused("its question", 403, reading, "GET", releaseLink("lock", "orders", lease.Holder{Token: held.Token()}), nil)
	refused("no token", 400, b, "GET", "/release?kind=lock&name=orders", nil)
	refused("a hold that is over", 409, b, "GET", releaseLink("lock", "orders", lease.Holder{Token: held.Token() + 1}), nil)
	require.NotContains(t, reading.page(t, "/name?kind=lock&name=orders"), "elease")
	require.NoError(t, held.Context().Err())
	require.NoError(t, other.Context().Err())
	require.Equal(t, held.Token(), kit.Got(fairlock.New(look, "orders").Inspect(t.Context()))(t).Holder.Token)
	require.Empty(t, b.log.String())

	refused("the same form, as it should be", 200, b, "POST", "/release", form, "Sec-Fetch-Site: same-origin", "Origin: http://127.0.0.1:7420")
}
