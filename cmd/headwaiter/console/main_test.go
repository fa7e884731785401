package console

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/doctor"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/leaks"
	"github.com/headwaiter/headwaiter/internal/tty"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// board is a console under test.
type board struct {
	*Console
	handler http.Handler
	log     *record
}

// record keeps what is written to it.
type record struct {
	mu   sync.Mutex
	text strings.Builder
}

func (r *record) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(b)
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// opened is a console of a client, which ends with the test.
func opened(t *testing.T, client *headwaiter.Client, changes ...func(*Options)) *board {
	t.Helper()
	log := &record{}
	o := Options{Client: client, Redis: "redis://127.0.0.1:6379", Log: log, Report: func(r *doctor.Report, err error) ([]tty.Row, string) {
		return []tty.Row{{Text: "user " + r.User.String(), Style: tty.Bold}}, "in the words of doctor"
	}}
	for _, change := range changes {
		change(&o)
	}
	c := New(o)
	t.Cleanup(func() {
		c.end()
		c.work.Wait()
	})
	return &board{c, c.Handler(), log}
}

func allowed(o *Options) { o.Release = true }

// do sends a request as a browser on this machine does.
func (b *board) do(method, target string, form url.Values, headers ...string) *httptest.ResponseRecorder {
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	ctx, cancel := context.WithTimeout(context.Background(), kit.Patience)
	defer cancel()
	r := httptest.NewRequestWithContext(ctx, method, target, body)
	r.Host = "127.0.0.1:7420"
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if r.Header.Set(name, value); name == "Host" {
			r.Host = value
		}
	}
	w := httptest.NewRecorder()
	b.handler.ServeHTTP(w, r)
	return w
}

// page is a page that must be there.
func (b *board) page(t *testing.T, target string) string {
	t.Helper()
	w := b.do("GET", target, nil)
	require.Equal(t, http.StatusOK, w.Code, "%s: %s", target, w.Body)
	return w.Body.String()
}

var rowName = regexp.MustCompile(`data-row>([^<]*)</a>`)

// listed are the names of a page of the list, in their order.
func (b *board) listed(t *testing.T, target string) (names []string) {
	t.Helper()
	for _, m := range rowName.FindAllStringSubmatch(b.page(t, target), -1) {
		names = append(names, m[1])
	}
	return names
}
