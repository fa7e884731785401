package console

import (
	"html"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/doctor"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/tty"
	"github.com/headwaiter/headwaiter/lease"
)

// hostile is what somebody with the rights of those that use locks may have said of itself, or called a lock.
const hostile = "evil</title><script>alert(1)</script><img src=x onerror=alert(1)>\"'`{{.}}\n\r\x1b[2J\u009b31m\u202etxet\u2028 &lt;end"

// besieged is a server on which names, holders, and clients that wait are hostile.
func besieged(t *testing.T) *redistest.Server {
	s := redistest.Start(t)
	ticket := strings.ReplaceAll(hostile, ":", ";")
	for _, name := range []string{"orders", hostile, "javascript:alert(1)", "-rf", "../doctor?x#y"} {
		key := "headwaiter:lock:{" + name + "}"
		s.Do("HSET", key, "owner", ticket+":1:x:1:3600000000:2000000", "until", "9000000000000000", "token", "7", "since", "7:1000000",
			"phase", "held", "version", "3")
		s.Do("ZADD", key+":queue", "1000", ticket+":2:x:1:3600000000:2000000")
		s.Do("ZADD", key+":suspects", "9000000000000000", ticket)
	}
	s.Do("HSET", "headwaiter:client:"+ticket, "who", hostile+"@"+hostile+"#1")
	return s
}

// markup is what a page consists of beside its text.
var markup = regexp.MustCompile(`<[^<>]*>`)

// harmless fails where a page has a tag that the console did not make, or text that cannot be seen or turns its direction.
func harmless(t *testing.T, what, page string) {
	t.Helper()
	tags := regexp.MustCompile(`^</?(html|head|meta|title|link|script|body|a|header|strong|nav|span|p|main|h1|h2|form|label|input|select|option|` +
		`button|section|div|table|thead|tbody|tfoot|tr|th|td|dl|dt|dd|progress|svg|rect|footer|kbd|b|br|ol|ul|li|pre)\b|^<!doctype html>$`)
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
