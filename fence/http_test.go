package fence_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/fence"
	"github.com/headwaiter/headwaiter/internal/testenv/fenced"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

// page is a number at a server: GET reads it, PUT writes it, POST shows a token.
type page struct {
	t      testing.TB
	client *http.Client
	url    string
}

// serve runs a server of a number, behind a guard if there is one.
func serve(t testing.TB, guard fence.Guard) page {
	t.Helper()
	var value int64 // Not atomic: behind a Runner nobody else is in the handler.
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Method {
		case http.MethodGet:
			fmt.Fprint(w, value)
		case http.MethodPut:
			if _, err := fmt.Fscan(r.Body, &value); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		}
	})
	return page{t, http.DefaultClient, start(t, &fence.Handler{Next: handler, Guard: func(r *http.Request) fence.Guard {
		if r.Method == http.MethodGet {
			return nil
		}
		return guard
	}})}
}

func start(t testing.TB, h http.Handler) (url string) {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		server.Close()
	})
	return server.URL
}

// send makes a request, with the token in its header unless that is 0.
func (p page) send(ctx context.Context, method string, token uint64, body string) (string, error) {
	r := kit.Got(http.NewRequestWithContext(ctx, method, p.url, strings.NewReader(body)))(p.t)
	if token > 0 {
		r.Header.Set(fence.Header, strconv.FormatUint(token, 10))
	}
	answer, err := p.client.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text := kit.Got(io.ReadAll(answer.Body))(p.t)
	if err := fence.ResponseError(answer); err != nil {
		return "", err
	}
	if answer.StatusCode != http.StatusOK {
		return "", errors.New(answer.Status)
	}
	return string(text), nil
}

func (p page) Show(ctx context.Context, token uint64) error {
	return kit.Err(p.send(ctx, http.MethodPost, token, ""))
}

func (p page) Read(ctx context.Context) (int64, error) {
	text, err := p.send(ctx, http.MethodGet, 0, "")
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(text, 10, 64)
}

func (p page) Write(ctx context.Context, token uint64, n int64) error {
	return kit.Err(p.send(ctx, http.MethodPut, token, strconv.FormatInt(n, 10)))
}

func TestHTTPLosesNothingToAPausedHolder(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		losesNothing(t, s, serve(t, fence.NewMemory(1).Key("n")), serve(t, nil))
	})
}

func TestHTTPGoesByTheHighestTokenInAnyOrder(t *testing.T) {
	t.Parallel()
	// One server for all, with a number a path: the rounds are many.
	keys := fence.NewMemory(10_000)
	url := start(t, &fence.Handler{
		Next:  http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
		Guard: func(r *http.Request) fence.Guard { return keys.Key(r.URL.Path) },
	})
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
	t.Cleanup(client.CloseIdleConnections)
	fenced.Interleavings(t, 1000, 8, func(round int) fenced.Resource {
		return &lastSent{page: page{t, client, url + "/" + strconv.Itoa(round)}}
	})
}

// lastSent remembers here what the server has let through last.
type lastSent struct {
	page
	n int64
}

func (l *lastSent) Read(context.Context) (int64, error) { return l.n, nil }

func (l *lastSent) Write(ctx context.Context, token uint64, n int64) error {
	err := l.page.Write(ctx, token, n)
	if err == nil {
		l.n = n
	}
	return err
}

// guardFunc is a guard that is no Runner.
type guardFunc func(context.Context, uint64) error

func (f guardFunc) Admit(ctx context.Context, token uint64) error { return f(ctx, token) }

func TestWhatIsAnsweredToATokenThatIsNotAdmitted(t *testing.T) {
	t.Parallel()
	memory := fence.NewMemory(1).Key("n")
	require.NoError(t, memory.Admit(t.Context(), 10))
	broken := guardFunc(func(context.Context, uint64) error { return errors.New("password of the database") })
	bare := guardFunc(func(context.Context, uint64) error { return fence.ErrStale })
	for name, c := range map[string]struct {
		guard  fence.Guard
		header []string
		code   int
		body   string
	}{
		"current":   {memory, []string{"10"}, 200, "served 10"},
		"newer":     {guardFunc(func(context.Context, uint64) error { return nil }), []string{"11"}, 200, "served 11"},
		"stale":     {memory, []string{"9"}, 412, "stale fencing token: 9, where 10 was seen: lock again\n"},
		"stale too": {bare, []string{"9"}, 412, "stale fencing token: lock again\n"},
		"missing":   {memory, nil, 428, "send the fencing token of the lock in Fencing-Token\n"},
		"empty":     {memory, []string{""}, 400, "invalid argument: the fencing token \"\"\n"},
		"zero":      {memory, []string{"0"}, 400, "invalid argument: the fencing token \"0\"\n"},
		"negative":  {memory, []string{"-1"}, 400, "invalid argument: the fencing token \"-1\"\n"},
		"signed":    {memory, []string{"+11"}, 400, "invalid argument: the fencing token \"+11\"\n"},
		"hex":       {memory, []string{"0x11"}, 400, "invalid argument: the fencing token \"0x11\"\n"},
		"too large": {memory, []string{"9223372036854775808"}, 400, "invalid argument: the fencing token \"9223372036854775808\"\n"},
		"list":      {memory, []string{"11, 12"}, 400, "invalid argument: the fencing token \"11, 12\"\n"},
		"twice":     {memory, []string{"11", "12"}, 400, "invalid argument: 2 fencing tokens in one request\n"},
		"broken":    {broken, []string{"11"}, 503, "the fencing token could not be checked\n"},
		"unguarded": {nil, nil, 200, "served without"},
	} {
		t.Run(name, func(t *testing.T) {
			var refused error
			h := &fence.Handler{
				Next: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if token, ok := fence.TokenFrom(r.Context()); ok {
						fmt.Fprintf(w, "served %d", token)
						return
					}
					fmt.Fprint(w, "served without")
				}),
				Guard: func(*http.Request) fence.Guard {
					if c.guard == nil {
						return nil
					}
					return c.guard
				},
				Refused: func(_ *http.Request, err error) { refused = err },
			}
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/n", nil)
			for _, value := range c.header {
				r.Header.Add("fencing-token", value)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			require.Equal(t, c.code, w.Code)
			require.Equal(t, c.body, w.Body.String())
			require.Equal(t, c.code != 200, refused != nil, "told: %v", refused)
			if c.code != 200 {
				require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
			}
			h.Refused = nil
			h.ServeHTTP(httptest.NewRecorder(), r) // Who does not ask is not told.
		})
	}
}

func TestARefusalIsReadBackFromTheAnswer(t *testing.T) {
	t.Parallel()
	p := serve(t, fence.NewMemory(1).Key("n"))
	require.NoError(t, p.Write(t.Context(), 10, 1))
	stale(t, p.Write(t.Context(), 9, 2), 9, 10)
	for _, other := range []*http.Response{
		{StatusCode: 200, Header: http.Header{fence.Header: {"10"}}},
		{StatusCode: 412, Header: http.Header{}},
		{StatusCode: 412, Header: http.Header{fence.Header: {"x"}}},
	} {
		require.NoError(t, fence.ResponseError(other), "another precondition than the token")
	}
	stale(t, fence.ResponseError(&http.Response{StatusCode: 412, Header: http.Header{fence.Header: {"10"}}}), 0, 10)
}

// What is between the check and the write of the handler, where the guard does not run the handler itself.
func TestAHandlerBehindAGuardThatOnlyAdmitsMayComeLate(t *testing.T) {
	t.Parallel()
	for runs, want := range map[bool][]string{true: {"1", "2"}, false: {"2", "1"}} {
		synctest.Test(t, func(t *testing.T) {
			var guard fence.Guard = fence.NewMemory(1).Key("n")
			if !runs {
				guard = guardFunc(guard.Admit)
			}
			var order []string
			goOn := make(chan struct{})
			h := &fence.Handler{
				Next: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					token := r.Header.Get(fence.Header)
					if token == "1" {
						<-goOn
					}
					order = append(order, token)
				}),
				Guard: func(*http.Request) fence.Guard { return guard },
			}
			put := func(token string) *kit.Call[struct{}] {
				defer synctest.Wait()
				return kit.Run(func() error {
					r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/n", nil)
					r.Header.Set(fence.Header, token)
					h.ServeHTTP(httptest.NewRecorder(), r)
					return nil
				})
			}
			old, newer := put("1"), put("2")
			require.Equal(t, !runs, newer.Returned())
			close(goOn)
			require.NoError(t, old.Err(t))
			require.NoError(t, newer.Err(t))
			require.Equal(t, want, order)
		})
	}
}
