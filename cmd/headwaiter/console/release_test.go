package console

import (
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
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/rwlock"
)

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
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		a, c := kit.Dial(t, s), kit.Dial(t, s)
		m := fairlock.New(c, "orders")
		held, err := fairlock.New(a, "orders").Lock(t.Context())
		require.NoError(t, err)
		wait := kit.Lock(t.Context(), m.Lock)
		kit.Waiting(t, 1, m.Inspect)
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
	t.Parallel()
	s := redistest.Start(t)
	held, err := fairlock.New(kit.Dial(t, s), "orders").Lock(t.Context())
	require.NoError(t, err)
	proxy := kit.Proxy(t, s)
	b := opened(t, kit.Dial(t, s, kit.Through(proxy)), allowed)
	form := b.form(t, "lock", "orders", lease.Holder{Token: held.Token()})
	token := strconv.FormatUint(held.Token(), 10)
	_, err = fairlock.New(kit.Dial(t, s), "another").ForceRelease(t.Context(), 1)
	require.ErrorIs(t, err, lease.ErrNotHeld, "from now on the server has the script")
	proxy.LoseReplies(1000, func(command []string) bool { return slices.Contains(command, token) })
	b.do("POST", "/release", form)
	require.ErrorIs(t, kit.Lost(t, held), lease.ErrForced)
	require.Regexp(t, `^headwaiter: tried to release the lock orders of test@.* by force: .+\n$`, b.log)
}

func TestOneHolderOfSeveralIsReleased(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	m := rwlock.New(kit.Dial(t, s), "prices") // Readers have one token together.
	first, err := m.RLock(t.Context())
	require.NoError(t, err)
	second, err := rwlock.New(kit.Dial(t, s), "prices").RLock(t.Context())
	require.NoError(t, err)
	require.Equal(t, first.Token(), second.Token())
	info, err := m.Inspect(t.Context())
	require.NoError(t, err)
	b := opened(t, kit.Dial(t, s), allowed)
	require.Equal(t, http.StatusOK, b.do("POST", "/release", b.form(t, "rwlock", "prices", info.Holders[1])).Code)
	require.ErrorIs(t, kit.Lost(t, second), lease.ErrForced)
	require.NoError(t, first.Context().Err())
	_, err = countdown.New(kit.Dial(t, s), "steps").TrySetCount(t.Context(), 2)
	require.NoError(t, err)
	require.Equal(t, http.StatusBadRequest, b.do("GET", releaseLink("latch", "steps", lease.Holder{Token: 7}), nil).Code)
}

// The one whose lease ends last is not among those that a page tells.
func TestOneHolderOfMoreThanAreToldIsReleased(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	m := rwlock.New(kit.Dial(t, s), "prices")
	for range toldHolders {
		_, err := m.RLock(t.Context())
		require.NoError(t, err)
	}
	last, err := rwlock.New(kit.Dial(t, s), "prices", headwaiter.WithLease(time.Hour)).RLock(t.Context())
	require.NoError(t, err)
	ticket := s.Do("ZRANGE", "headwaiter:rwlock:{prices}:holders", "-1", "-1").([]any)[0].(string)
	kit.Listening(t, s, 2)
	b := opened(t, kit.Dial(t, s), allowed)
	form := b.form(t, "rwlock", "prices", lease.Holder{Token: last.Token(), Ticket: ticket})
	require.Equal(t, http.StatusOK, b.do("POST", "/release", form).Code)
	require.ErrorIs(t, kit.Lost(t, last), lease.ErrForced)
}

func TestWhatIsNotAConfirmedReleaseOfThisConsoleReleasesNothing(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	held, err := fairlock.New(kit.Dial(t, s), "orders").Lock(t.Context())
	require.NoError(t, err)
	other, err := fairlock.New(kit.Dial(t, s), "stock").Lock(t.Context())
	require.NoError(t, err)
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
	info, err := fairlock.New(look, "orders").Inspect(t.Context())
	require.NoError(t, err)
	require.Equal(t, held.Token(), info.Holder.Token)
	require.Empty(t, b.log.String())

	refused("the same form, as it should be", 200, b, "POST", "/release", form, "Sec-Fetch-Site: same-origin", "Origin: http://127.0.0.1:7420")
}
