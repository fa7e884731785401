package fence_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/fence"
	"github.com/headwaiter/headwaiter/internal/keeper"
	"github.com/headwaiter/headwaiter/internal/testenv/fenced"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/leaks"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// losesNothing has a holder be paused past its hold: a resource behind a guard loses nothing to that, an open one does.
func losesNothing(t *testing.T, s redistest.Backend, guarded, open fenced.Resource) {
	t.Helper()
	short := fairlock.New(kit.Dial(t, s), kit.Name(t), headwaiter.WithMaxHold(300*time.Millisecond)).Lock
	lock := fairlock.New(kit.Dial(t, s), kit.Name(t)).Lock
	count, refused := fenced.PausedHolder(t, short, lock, guarded)
	require.ErrorIs(t, refused, fence.ErrStale)
	require.Equal(t, int64(2), count)

	count, refused = fenced.PausedHolder(t, short, lock, open)
	require.NoError(t, refused)
	require.Equal(t, int64(1), count, "without the check nothing was lost: the test shows nothing")
}

// connect returns a plain client of s.
func connect(t testing.TB, s interface{ Option() rueidis.ClientOption }) rueidis.Client {
	t.Helper()
	return connectBy(t, s.Option())
}

func connectBy(t testing.TB, o rueidis.ClientOption) rueidis.Client {
	t.Helper()
	c := kit.Got(rueidis.NewClient(o))(t)
	t.Cleanup(c.Close)
	return c
}

// stale requires that an error is a refusal for these numbers.
func stale(t testing.TB, err error, token, highest uint64) {
	t.Helper()
	require.ErrorIs(t, err, fence.ErrStale)
	e := kit.As[*fence.StaleError](t, err)
	require.Equal(t, fence.StaleError{Token: token, Highest: highest}, *e)
}

// hold returns a lease with a token, and what ends it.
func hold(t testing.TB, token uint64, shared bool) (*lease.Lease, *keeper.Keeper) {
	t.Helper()
	k := keeper.New(context.Background(), keeper.Terms{
		Token: token, Shared: shared, Until: keeper.Until{Deadline: time.Now().Add(time.Hour)},
	})
	t.Cleanup(k.End)
	return (*lease.Lease)(k), k
}

// refusesWhatIsNoToken holds a guard to what all guards refuse.
func refusesWhatIsNoToken(t *testing.T, g fence.Guard) {
	t.Helper()
	require.ErrorIs(t, g.Admit(t.Context(), 0), lease.ErrInvalid)
	require.ErrorIs(t, g.Admit(t.Context(), 1<<63), lease.ErrInvalid)

	permit, _ := hold(t, 7, true)
	require.ErrorIs(t, g.Admit(permit.Context(), 7), fence.ErrShared)
	cause := context.DeadlineExceeded
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	kit.Fails(t, g.Admit(ctx, 7), context.Canceled, cause)

	require.NoError(t, g.Admit(t.Context(), 6), "something above was remembered")
	require.NoError(t, g.Admit(permit.Context(), 8), "the token of another lease than the context's")
	require.NoError(t, g.Admit(t.Context(), fence.MaxToken))
	require.ErrorIs(t, g.Admit(t.Context(), fence.MaxToken-1), fence.ErrStale)
}

// wire is a RoundTripper that sends nothing. It notes what it was given.
type wire struct {
	sent []http.Header
	err  error
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	w.sent = append(w.sent, r.Header)
	if w.err != nil {
		return nil, w.err
	}
	return &http.Response{StatusCode: 200, Body: http.NoBody, Request: r}, nil
}

// closing is a body that knows whether it was closed.
type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error {
	c.closed = true
	return nil
}

func TestARequestCarriesTheTokenOfItsLease(t *testing.T) {
	t.Parallel()
	outer, _ := hold(t, 7, false)
	given, _ := hold(t, 9, false)
	for name, c := range map[string]struct {
		ctx  context.Context
		held *lease.Lease
		want string
	}{
		"of the context":                  {outer.Context(), nil, "7"},
		"of a context that comes from it": {context.WithValue(outer.Context(), t, 1), nil, "7"},
		"the one that is given":           {outer.Context(), given, "9"},
		"given alone":                     {t.Context(), given, "9"},
		"of none":                         {t.Context(), nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			base := &wire{}
			r := httptest.NewRequestWithContext(c.ctx, http.MethodPut, "http://resource/n", nil)
			answer := kit.Got((&fence.Transport{Base: base, Lease: c.held}).RoundTrip(r))(t)
			require.NoError(t, answer.Body.Close())
			require.Equal(t, c.want, base.sent[0].Get(fence.Header))
			require.Empty(t, r.Header, "the caller's request was changed")
		})
	}
}

func TestARequestWithoutALeaseKeepsWhatItsCallerPutIn(t *testing.T) {
	t.Parallel()
	held, _ := hold(t, 7, false)
	for ctx, want := range map[context.Context]string{t.Context(): "3", held.Context(): "7"} {
		base := &wire{}
		r := httptest.NewRequestWithContext(ctx, http.MethodPut, "http://resource/n", nil)
		r.Header.Set(fence.Header, "3")
		require.NoError(t, kit.Got((&fence.Transport{Base: base}).RoundTrip(r))(t).Body.Close())
		require.Equal(t, []string{want}, base.sent[0].Values(fence.Header))
	}
}

func TestARequestOfAHoldThatIsOverIsNotSent(t *testing.T) {
	t.Parallel()
	lost, engine := hold(t, 7, false)
	engine.Lose(lease.ErrForced)
	released, engine := hold(t, 7, false)
	engine.End()
	permit, _ := hold(t, 7, true)
	none, _ := hold(t, 0, false)
	for _, c := range []struct {
		held *lease.Lease
		want error
	}{{lost, lease.ErrForced}, {released, lease.ErrReleased}, {permit, fence.ErrShared}, {none, lease.ErrInvalid}} {
		base, body := &wire{}, &closing{Reader: strings.NewReader("x")}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "http://me:secret@resource/n", body)
		_, err := (&fence.Transport{Base: base, Lease: c.held}).RoundTrip(r) //nolint:bodyclose // There is none.
		kit.Fails(t, err, c.want, "fence: send to http://me:xxxxx@resource/n: ")
		require.Empty(t, base.sent)
		require.True(t, body.closed, "a RoundTripper closes the body, also if it fails")
	}
	failing := &wire{err: errors.New("no network")}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "http://resource/n", nil)
	held, _ := hold(t, 7, false)
	_, err := (&fence.Transport{Base: failing, Lease: held}).RoundTrip(r) //nolint:bodyclose // There is none.
	require.Equal(t, failing.err, err)
}

// A request that was sent by a holder and delayed on its way is refused at its end.
func TestARequestThatWasSentInTimeAndArrivesLateIsRefused(t *testing.T) {
	t.Parallel()
	p := serve(t, fence.NewMemory(1).Key("n"))
	old, engine := hold(t, 1, false)
	newer, _ := hold(t, 2, false)
	gone, arrive := make(chan struct{}), make(chan struct{})
	slow := page{t, &http.Client{Transport: &fence.Transport{Lease: old, Base: roundTrip(func(r *http.Request) (*http.Response, error) {
		close(gone)
		<-arrive
		return http.DefaultTransport.RoundTrip(r)
	})}}, p.url}
	late := kit.Run(func() error { return slow.Write(t.Context(), 0, 1) })
	kit.Await(t, gone, "the request to be under way")
	engine.Lose(lease.ErrExpired)
	fast := page{t, &http.Client{Transport: &fence.Transport{}}, p.url}
	require.NoError(t, fast.Write(newer.Context(), 0, 2))
	close(arrive)
	stale(t, late.Err(t), 1, 2)
	require.Equal(t, int64(2), kit.Got(p.Read(t.Context()))(t))
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// detour is two servers. Each path of the first leads to the next in it: "/a/b/x" by way of the second server to the
// end, which answers with the token that came.
type detour struct {
	urls map[string]string
	seen []string // server and token of each request, in order
}

func newDetour(t *testing.T) *detour {
	d := &detour{urls: map[string]string{}}
	for _, name := range []string{"a", "b"} {
		d.urls[name] = start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			d.seen = append(d.seen, name+r.Header.Get(fence.Header))
			next, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
			if next != "" {
				http.Redirect(w, r, d.urls[next]+"/"+rest, http.StatusTemporaryRedirect)
			}
		}))
	}
	return d
}

func TestATokenGoesToTheFirstOriginAndNoOther(t *testing.T) {
	t.Parallel()
	held, _ := hold(t, 7, false)
	for path, want := range map[string][]string{
		"":      {"a7"},
		"a/a":   {"a7", "a7", "a7"},
		"b":     {"a7", "b"},
		"b/b":   {"a7", "b", "b"},
		"a/b/a": {"a7", "a7", "b", "a"}, // Where b leads to is b's choice.
	} {
		for _, byHand := range []bool{true, false} {
			d := newDetour(t)
			ctx := held.Context()
			if byHand {
				ctx = t.Context()
			}
			r := kit.Got(http.NewRequestWithContext(ctx, http.MethodPut, d.urls["a"]+"/"+path, nil))(t)
			if byHand {
				r.Header.Set(fence.Header, "7")
			}
			require.NoError(t, kit.Got((&http.Client{Transport: &fence.Transport{}}).Do(r))(t).Body.Close())
			require.Equal(t, want, d.seen, "%s, by hand: %v", path, byHand)
		}
	}
}

func TestWhatIsTheSameOrigin(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		from, to string
		same     bool
	}{
		{"http://resource/n", "http://resource/n", true},
		{"http://resource/n", "http://RESOURCE:80/m", true},
		{"https://resource:443/n", "https://resource/n", true},
		{"http://resource/n", "http://resource:8080/n", false},
		{"http://resource/n", "https://resource/n", false},
		{"http://resource/n", "http://a.resource/n", false},
		// To eavesdroppers on the way.
		{"https://resource/n", "http://resource/n", false},
		{"https://resource:8443/n", "http://resource:8443/n", false},
		{"https://resource/n", "http://resource:443/n", false},
	} {
		held, _ := hold(t, 7, false)
		base := &wire{}
		r := httptest.NewRequestWithContext(held.Context(), http.MethodPut, c.to, nil)
		r.Response = &http.Response{Request: httptest.NewRequestWithContext(t.Context(), http.MethodPut, c.from, nil)}
		answer := kit.Got((&fence.Transport{Base: base}).RoundTrip(r))(t)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, c.same, base.sent[0].Get(fence.Header) != "", "from %s to %s", c.from, c.to)
		r.Response = &http.Response{} // Of a RoundTripper that does not say which request it answers.
		answer = kit.Got((&fence.Transport{Base: base}).RoundTrip(r))(t)
		require.NoError(t, answer.Body.Close())
		require.Empty(t, base.sent[1].Get(fence.Header))
	}
}
