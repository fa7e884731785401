package console

import (
	"net/http"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
)

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
	held, err := fairlock.New(c, "orders:42").Lock(t.Context())
	require.NoError(t, err)
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
