package console

import (
	"bufio"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/doctor"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/tty"
	"github.com/headwaiter/headwaiter/lease"
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
		time.Sleep(linger - time.Second) // And as long after that.
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
	kit.Two(t, func(t *testing.T, s redistest.Backend, a, c *headwaiter.Client) {
		mine, theirs := fairlock.New(a, "orders"), fairlock.New(c, "orders")
		held := kit.Got(mine.Lock(t.Context()))(t)
		b := opened(t, kit.Dial(t, s))
		server := httptest.NewServer(b.handler)
		t.Cleanup(server.Close)
		ctx := kit.Within(t, kit.Patience)
		r := kit.Got(http.NewRequestWithContext(ctx, "GET", server.URL+"/name/events?kind=lock&name=orders", nil))(t)
		answer := kit.Got(server.Client().Do(r))(t)
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
		next := kit.Next(t, held, wait)
		page = stream(t, events, func(page string) bool { // The message of the hand-off may come before the next look.
			return strings.Contains(page, token(next.Token())) && strings.Contains(page, "No client waits")
		})
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

// A page says which incarnation of its identity holds or waits, and how the hold before ended if it was not released.
func TestAPageShowsIdentitiesAndHowTheHoldBeforeEnded(t *testing.T) {
	s := kit.Start(t)
	as := func(identity string) *headwaiter.Client {
		return kit.Dial(t, s, func(o *headwaiter.Options) { o.Identity, o.Invocation = identity, "<7>" })
	}
	looks, a, w := kit.Dial(t, s), as("unit<a>"), as("unit<w>")
	m := fairlock.New(looks, "orders")
	kit.Release(t, kit.Got(m.Lock(t.Context()))(t))
	b := opened(t, kit.Dial(t, s))
	require.NoError(t, kit.Err(fairlock.New(as("dead"), "orders").Lock(t.Context())))
	require.NotContains(t, b.page(t, "/name?kind=lock&name=orders"), "The hold before")
	_, _, err := looks.Bury(t.Context(), "dead", "")
	require.NoError(t, err)
	require.NoError(t, kit.Err(fairlock.New(a, "orders").Lock(t.Context())))
	kit.Joins(t, 1, fairlock.New(w, "orders").Lock, m.Inspect)
	page := ""
	kit.Eventually(t, "the page to show both", func() bool {
		page = b.page(t, "/name?kind=lock&name=orders")
		return strings.Contains(page, "unit&lt;w&gt;, run &lt;7&gt;, since ")
	})
	require.Contains(t, page, "unit&lt;a&gt;, run &lt;7&gt;, since ")
	require.Contains(t, page, "The hold before was not released: died, token ")
}

func TestATimelineBeginsWithWhatTheLockHasKept(t *testing.T) {
	kit.BubbleOne(t, func(t *testing.T, s *redistest.Embedded, c *headwaiter.Client) {
		m := fairlock.New(c, "orders", fairlock.WithHistory(5))
		var tokens []uint64
		begun := time.Now()
		for range 2 {
			l := kit.Got(m.Lock(t.Context()))(t)
			tokens = append(tokens, l.Token())
			time.Sleep(time.Second) // Of the bubble.
			kit.Release(t, l)
		}
		w, leave, err := opened(t, kit.Dial(t, s)).watches.join("lock", "orders")
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

func TestOnlyNamesOfLoopbackAreAnswered(t *testing.T) {
	t.Parallel()
	b := opened(t, kit.Dial(t, redistest.Mini(t)))
	for _, host := range []string{"127.0.0.1:7420", "localhost", "LOCALHOST:80", "127.8.9.1", "[::1]:7420", "[::1]"} {
		assert.Equal(t, http.StatusOK, b.do("GET", "/", nil, "Host: "+host).Code, host)
	}
	for _, host := range []string{
		"", "evil.example", "evil.example:7420", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.5:7420", "0.0.0.0:7420", "[::]:7420", "evil@127.0.0.1",
	} {
		for _, path := range []string{"/", "/static/console.css", "/name/events?kind=lock&name=x"} {
			require.Equal(t, http.StatusMisdirectedRequest, b.do("GET", path, nil, "Host: "+host).Code, "%q %s", host, path)
		}
	}
}

// A page of another site, or of another port of this machine, may link to the console. What it asks for by itself is
// refused, before Redis is asked for anything.
func TestPagesOfOtherSitesGetNothing(t *testing.T) {
	t.Parallel()
	b := opened(t, kit.Dial(t, redistest.Mini(t)))
	for _, site := range []string{"cross-site", "same-site"} {
		for _, request := range [][]string{
			{"Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: image"},
			{"Sec-Fetch-Mode: cors", "Sec-Fetch-Dest: empty"},
			{"Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe"},
			{},
		} {
			got := b.do("GET", "/", nil, append(request, "Sec-Fetch-Site: "+site)...)
			assert.Equal(t, http.StatusForbidden, got.Code, "%s %v", site, request)
		}
		require.True(t, b.names.answer.at.IsZero())
		require.Equal(t, http.StatusOK, b.do("GET", "/", nil, "Sec-Fetch-Site: "+site, "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document").Code)
		b.names.answer = answer[names]{}
	}
	require.Equal(t, http.StatusOK, b.do("GET", "/", nil, "Sec-Fetch-Site: same-origin", "Sec-Fetch-Mode: cors", "Sec-Fetch-Dest: empty").Code)
}

func TestPagesCarryAStrictPolicyAndNothingOfElsewhere(t *testing.T) {
	t.Parallel()
	c := kit.Dial(t, redistest.Start(t))
	held := kit.Got(fairlock.New(c, "orders:42").Lock(t.Context()))(t)
	b := opened(t, c, allowed)
	inline := regexp.MustCompile(`(?i)<style|\bstyle=|\bon\w+=|javascript:|<script>|<script [^>]*>[^<]|(src|href|action)="(https?:|//)|url\(|@import`)
	for target, code := range map[string]int{
		"/": 200, "/?q=orders&sort=-held": 200, "/name?kind=lock&name=orders%3A42": 200, "/circles": 200, "/doctor": 200,
		releaseLink("lock", "orders:42", lease.Holder{Token: held.Token()}): 200, "/name?name=nobody": 404, "/nowhere": 404, "/static/console.js": 200,
		"/static/console.css": 200, "/static/icon.svg": 200, "/static/": 404,
	} {
		w := b.do("GET", target, nil)
		require.Equal(t, code, w.Code, target)
		require.Equal(t, policy, w.Header().Get("Content-Security-Policy"), target)
		require.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"), target)
		require.Equal(t, "no-store", w.Header().Get("Cache-Control"), target)
		require.Equal(t, "same-origin", w.Header().Get("Referrer-Policy"), target)
		require.NotRegexp(t, inline, w.Body.String(), target)
	}
	for _, part := range []string{"default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'"} {
		require.Contains(t, policy, part)
	}
	require.NotContains(t, policy, "unsafe")
}

// hostile is what somebody with the rights of those that use locks may have said of itself, or called a lock.
const hostile = "evil</title><script>alert(1)</script><img src=x onerror=alert(1)>\"'`{{.}}\n\r\x1b[2J\u009b31m\u202etxet\u2028 &lt;end"

// besieged is a server on which names, holders, and clients that wait are hostile.
func besieged(t *testing.T) *redistest.Server {
	s := redistest.Start(t)
	ticket := strings.ReplaceAll(hostile, ":", ";")
	for _, name := range []string{"orders", hostile, "javascript:alert(1)", "-rf", "../doctor?x#y"} {
		key := "headwaiter:lock:{" + name + "}"
		s.Do("HSET", key, "owner", ticket+":1:x:1:3600000000:2000000", "until", "9000000000000000", "token", "7", "since", "7:1000000",
			"phase", "held")
		s.Do("ZADD", key+":queue", "1000", ticket+":2:x:1:3600000000:2000000")
		s.Do("ZADD", key+":suspects", "9000000000000000", ticket)
	}
	s.Do("HSET", "headwaiter:client:"+ticket, "who", hostile+"@"+hostile+"#1")
	return s
}

// markup is what a page consists of except its text.
var markup = regexp.MustCompile(`<[^<>]*>`)

// harmless fails where a page has a tag that the console did not make, or text that cannot be seen or turns its direction.
func harmless(t *testing.T, what, page string) {
	t.Helper()
	tags := regexp.MustCompile(`^</?(html|head|meta|title|link|script|body|a|header|strong|nav|span|p|main|h1|h2|form|label|input|select|option|` +
		`button|section|div|table|thead|tbody|tfoot|tr|th|td|dl|dt|dd|time|progress|svg|rect|footer|kbd|b|br|ol|ul|li|pre)\b|^<!doctype html>$`)
	for _, tag := range markup.FindAllString(page, -1) {
		assert.Regexp(t, tags, tag, what)
		assert.NotRegexp(t, `(?i)\son\w+=|^<script>|javascript:[^%]`, attributes.ReplaceAllString(tag, ""), what)
	}
	assert.Equal(t, 1, strings.Count(page, "<script"), what)
	assert.Equal(t, 1, strings.Count(page, "</title>")-strings.Count(page, "<rect"), what)
	for text := range strings.Lines(html.UnescapeString(markup.ReplaceAllString(page, ""))) {
		text = strings.TrimSuffix(text, "\n")
		assert.Equal(t, tty.Escaped(text), text, what)
	}
}

// attributes are what a tag quotes.
var attributes = regexp.MustCompile(`"[^"]*"`)

func TestHostileNamesAreText(t *testing.T) {
	t.Parallel()
	b := opened(t, kit.Dial(t, besieged(t)), allowed, func(o *Options) {
		o.Redis = hostile
		o.Report = func(*doctor.Report, error) ([]tty.Row, string) { return []tty.Row{{Text: hostile}}, hostile }
	})
	for _, target := range []string{
		"/", "/?q=" + url.QueryEscape(hostile), "/?kind=" + url.QueryEscape(hostile) + "&only=" + url.QueryEscape(hostile) + "&sort=" + url.QueryEscape(hostile),
		"/name?kind=lock&name=orders", releaseLink("lock", "orders", lease.Holder{Token: 7}), "/circles", "/doctor",
		"/name?name=" + url.QueryEscape(hostile), "/name?kind=" + url.QueryEscape(hostile) + "&name=orders", "/release?token=" + url.QueryEscape(hostile),
		"/name?kind=lock&name=" + url.QueryEscape("javascript:alert(1)"), "/name?kind=lock&name=" + url.QueryEscape("../doctor?x#y"),
	} {
		harmless(t, target, b.do("GET", target, nil).Body.String())
	}
	page := b.page(t, "/name?kind=lock&name=orders")
	require.GreaterOrEqual(t, strings.Count(page, "evil&lt;/title&gt;&lt;script&gt;"), 5, "it is told")
	for _, link := range regexp.MustCompile(`(?:href|action|data-events)="([^"]*)"`).FindAllStringSubmatch(b.page(t, "/"), -1) {
		assert.Regexp(t, `^(/($|[?a-z])|#main$)`, html.UnescapeString(link[1]), "every link stays in the console")
	}

	w := b.do("POST", "/release", b.form(t, "lock", "orders", lease.Holder{Token: 7}))
	require.Equal(t, 200, w.Code)
	harmless(t, "released", w.Body.String())
	require.Contains(t, b.log.String(), "evil")
	require.Equal(t, 1, strings.Count(b.log.String(), "\n"))
	require.Equal(t, tty.Escaped(strings.TrimSpace(b.log.String())), strings.TrimSpace(b.log.String()))
}

// A link to a name leads to that name, whatever it is called.
func TestANameIsFoundByItsLink(t *testing.T) {
	t.Parallel()
	b := opened(t, kit.Dial(t, besieged(t)))
	links := regexp.MustCompile(`<a href="([^"]*)" data-row>([^<]*)<`).FindAllStringSubmatch(b.page(t, "/"), -1)
	require.Len(t, links, 5)
	for _, l := range links {
		if strings.Contains(l[2], "evil") {
			continue // The library refuses such a name, and says why.
		}
		r := httptest.NewRequest("GET", html.UnescapeString(l[1]), nil)
		require.Contains(t, b.page(t, r.RequestURI), "</span> "+l[2]+"</h1>")
	}
}
