package console

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

// However many pages of a name are open, one poller looks, and it ends half a minute after the last.
func TestANameIsFollowedOnceAndOnlyWhileSomebodyLooks(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		b := opened(t, kit.Dial(t, s))
		inspected := func() int64 { return kit.Scripts(s)["evalsha"] }
		var leave []func()
		for range 5 {
			w, out, err := b.watches.join("lock", "orders")
			require.NoError(t, err)
			leave = append(leave, out)
			<-w.ready
		}
		s.ResetStats()
		time.Sleep(10 * time.Second) // What the poller does meanwhile is counted.
		synctest.Wait()
		require.InDelta(t, 100, inspected(), 2)
		leave[0]()
		time.Sleep(linger - time.Second) // Others look on.
		for _, out := range leave {
			out()
			out() // Once is enough.
		}
		time.Sleep(linger - time.Second) // It is still followed,
		w, out, err := b.watches.join("lock", "orders")
		require.NoError(t, err)
		require.True(t, w.began.Before(time.Now().Add(-linger)), "and has forgotten nothing.")
		time.Sleep(2 * linger) // As long as somebody looks.
		out()
		time.Sleep(linger - time.Second) // And as long behind that.
		_, out, err = b.watches.join("lock", "orders")
		require.NoError(t, err)
		out()
		time.Sleep(linger - time.Second) // Each time anew.
		require.Len(t, b.watches.watched, 1)
		_, out, err = b.watches.join("lock", "orders")
		require.NoError(t, err)
		out()
		time.Sleep(linger + time.Second) // Nobody does.
		synctest.Wait()
		s.ResetStats()
		time.Sleep(time.Minute) // Nothing may happen.
		require.Zero(t, inspected())
		require.Empty(t, b.watches.watched)
		require.Zero(t, b.watches.lookers)
	})
}

func TestPagesThatFollowNamesAreCounted(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		b := opened(t, kit.Dial(t, s))
		for i := range mostWatched {
			_, _, err := b.watches.join("lock", fmt.Sprint("name:", i))
			require.NoError(t, err)
		}
		_, _, err := b.watches.join("lock", "one more")
		require.ErrorIs(t, err, errCrowded)
		for range mostLookers - mostWatched {
			_, _, err := b.watches.join("lock", "name:1")
			require.NoError(t, err)
		}
		_, _, err = b.watches.join("lock", "name:1")
		require.ErrorIs(t, err, errCrowded)
		require.Equal(t, http.StatusServiceUnavailable, b.do("GET", "/name/events?kind=lock&name=one+more", nil).Code)
		require.Equal(t, http.StatusNotFound, b.do("GET", "/name/events?kind=locks&name=x", nil).Code)
	})
}

// stream reads the events of a page until it has shown what is wanted.
func stream(t *testing.T, events *bufio.Scanner, wanted func(page string) bool) string {
	t.Helper()
	var page strings.Builder
	for events.Scan() {
		text, data := strings.CutPrefix(events.Text(), "data: ")
		if data {
			page.WriteString(text + "\n")
			continue
		}
		if wanted(page.String()) {
			return page.String()
		}
		page.Reset()
	}
	require.NoError(t, events.Err())
	t.Fatal("the stream has ended")
	return ""
}

func TestAPageIsToldOfEachHandOff(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		a, c := kit.Dial(t, s), kit.Dial(t, s)
		mine, theirs := fairlock.New(a, "orders"), fairlock.New(c, "orders")
		held, err := mine.Lock(t.Context())
		require.NoError(t, err)
		b := opened(t, kit.Dial(t, s))
		server := httptest.NewServer(b.handler)
		t.Cleanup(server.Close)
		ctx, cancel := context.WithTimeout(t.Context(), kit.Patience)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, "GET", server.URL+"/name/events?kind=lock&name=orders", nil)
		require.NoError(t, err)
		answer, err := server.Client().Do(r)
		require.NoError(t, err)
		defer answer.Body.Close()
		require.Equal(t, "text/event-stream", answer.Header.Get("Content-Type"))
		events := bufio.NewScanner(answer.Body)

		token := func(n uint64) string { return fmt.Sprintf(`<td class="number">%d</td>`, n) }
		first := stream(t, events, func(page string) bool { return page != "" })
		require.Contains(t, first, token(held.Token()), "nothing is said of what was not looked at")
		wait := kit.Lock(t.Context(), theirs.Lock)
		page := stream(t, events, func(page string) bool { return strings.Contains(page, `<td class="number">1</td>`) })
		require.Contains(t, page, c.ID(), "the queue names the client that waits")
		require.NotContains(t, page, "No client waits")
		kit.Release(t, held)
		next := wait.Value(t)
		page = stream(t, events, func(page string) bool { return strings.Contains(page, token(next.Token())) })
		require.Contains(t, page, "No client waits")
		require.Contains(t, page, token(held.Token()), "the last hold is in the timeline")
		require.Equal(t, 2, strings.Count(page, "<svg"), "one row for each client")
		require.Contains(t, page, `class="now"`)
		require.Contains(t, page, `class="past"`)
		kit.Release(t, next)
		stream(t, events, func(page string) bool {
			return strings.Contains(page, "Nobody holds it.") && !strings.Contains(page, `class="now"`)
		})

		s.Kill()
		stream(t, events, func(page string) bool { return strings.Contains(page, "Redis does not answer") })
		b.end()
		for events.Scan() {
		}
		require.NoError(t, events.Err(), "the end of the console ends the stream")
	})
}

func TestATimelineBeginsWithWhatTheLockHasKept(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		c := kit.Dial(t, s)
		m := fairlock.New(c, "orders", fairlock.WithHistory(5))
		var tokens []uint64
		begun := time.Now()
		for range 2 {
			l, err := m.Lock(t.Context())
			require.NoError(t, err)
			tokens = append(tokens, l.Token())
			time.Sleep(time.Second) // Of the bubble.
			kit.Release(t, l)
		}
		b := opened(t, kit.Dial(t, s))
		w, leave, err := b.watches.join("lock", "orders")
		require.NoError(t, err)
		defer leave()
		<-w.ready
		w.mu.Lock()
		defer w.mu.Unlock()
		drawn := w.history.timeline(w.began, time.Now(), w.who)
		require.WithinDuration(t, begun, w.began, 100*time.Millisecond)
		require.Len(t, drawn.Rows, 1)
		require.Len(t, drawn.HandOffs, 2)
		require.Equal(t, tokens[1], drawn.HandOffs[0].Token)
		require.Equal(t, tokens[0], drawn.HandOffs[1].Token)
		require.Contains(t, fmt.Sprint(drawn.Rows[0].Client), "test@")
	})
}
