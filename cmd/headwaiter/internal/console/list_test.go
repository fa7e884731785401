package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/doctor"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/inspect"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/leaks"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/tty"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/semaphore"
)

// fill makes locks job:00001 to job:n. Every second is held, for the longer the lower its number, and each hundredth is
// waited for.
const fill = `local now = tonumber(redis.call('TIME')[1]) * 1000000
for i = 1, tonumber(ARGV[1]) do
	local key = string.format('headwaiter:lock:{job:%05d}', i)
	if i % 2 == 1 then
		redis.call('HSET', key, 'owner', 'c' .. i % 7 .. ':' .. i .. ':x:1:3600000:2000', 'until', string.format('%.0f', now + 3.6e9),
			'token', i, 'since', i .. ':' .. string.format('%.0f', now - (20000 - i) * 1e6), 'phase', 'held')
	else
		redis.call('HSET', key, 'token', i)
	end
	if i % 100 == 1 then
		redis.call('ZADD', key .. ':queue', string.format('%.0f', now - 5e6), 'w' .. i .. ':1:x:1:10000:2000')
	end
end`

func filled(t *testing.T, n int) *redistest.Server {
	s := redistest.Start(t)
	s.Do("EVAL", fill, "0", strconv.Itoa(n))
	for i := range 7 {
		s.Do("HSET", fmt.Sprintf("headwaiter:client:c%d", i), "who", fmt.Sprintf("worker%d@host%d#%d", i, i, 100+i))
	}
	return s
}

func TestTenThousandNamesAreListedFilteredAndSorted(t *testing.T) {
	t.Parallel()
	s := filled(t, 10_000)
	b := opened(t, kit.Dial(t, s))
	s.Do("SCRIPT", "LOAD", lua.Fairlock.Inspect.Source) // Else one batch is sent again.
	s.ResetStats()
	first := b.listed(t, "/")
	require.Len(t, first, pageNames)
	require.Equal(t, "job:00001", first[0])
	require.Contains(t, b.page(t, "/"), "10000 names, looked at")
	require.Contains(t, b.page(t, "/"), "Page 1 of 100")

	scripts := s.CommandStats()
	require.Zero(t, scripts["keys"])
	require.Equal(t, int64(10_000), scripts["evalsha"]+scripts["evalsha_ro"], "one script a name")
	require.GreaterOrEqual(t, scripts["scan"], int64(10), "a scan of more than a thousand keys keeps others waiting")

	for target, want := range map[string][]string{
		"/?sort=-name":                      {"job:10000", "job:09999"},
		"/?sort=-held":                      {"job:00001", "job:00003"},
		"/?sort=held":                       {"job:09999", "job:09997"},
		"/?sort=-waiting":                   {"job:00001", "job:00101"},
		"/?sort=name&page=2":                {"job:00101", "job:00102"},
		"/?page=100":                        {"job:09901", "job:09902"},
		"/?page=7000":                       {"job:09901", "job:09902"},
		"/?sort=nonsense&page=-3":           {"job:00001", "job:00002"},
		"/?q=JOB:0990&sort=-name":           {"job:09909", "job:09908"},
		"/?q=worker3%40host3&only=held":     {"job:00003", "job:00017"},
		"/?only=waiting&sort=-name":         {"job:09901", "job:09801"},
		"/?kind=lock&q=00042":               {"job:00042"},
		"/?kind=semaphore":                  nil,
		"/?q=%3Cscript%3E":                  nil,
		"/?only=held&sort=holder&q=worker6": {"job:00013", "job:00027"},
	} {
		got := b.listed(t, target)
		require.GreaterOrEqual(t, len(got), len(want), target)
		assert.Equal(t, want, got[:min(2, len(got))], target)
	}
	require.Contains(t, b.page(t, "/?q=job:0990"), "10 of 10000 names")
	require.Contains(t, b.page(t, "/?sort=-held"), `aria-sort="descending"`)
	require.Contains(t, b.page(t, "/"), `href="/?sort=-held"`, "the first click on it shows what is held longest")
	require.Equal(t, scripts, s.CommandStats(), "other orders and pages cost Redis nothing")
	require.Regexp(t, `job:00001</a></th><td>lock</td><td>worker1@host1#101</td><td class="number">since <time datetime="[^"]+">[\d:]+</time>, for 5h33m</td><td class="number busy">1</td>`, b.page(t, "/"))
}

// However many ask at a time, there is one walk, and for some seconds no other.
func TestAWalkIsSharedByAllRequests(t *testing.T) {
	kit.BubbleOne(t, func(t *testing.T, s *redistest.Embedded, c *headwaiter.Client) {
		b := opened(t, c)
		scans := func() int64 { return s.CommandStats()["scan"] }
		s.ResetStats()
		var asking sync.WaitGroup
		for range 20 {
			asking.Go(func() { b.do("GET", "/", nil) })
		}
		asking.Wait()
		require.Equal(t, int64(1), scans())
		time.Sleep(2900 * time.Millisecond) // The time that it is good for passes.
		b.page(t, "/")
		require.Equal(t, int64(1), scans())
		time.Sleep(200 * time.Millisecond) // And is over.
		b.page(t, "/")
		require.Equal(t, int64(2), scans())
		time.Sleep(time.Hour) // Nobody looks.
		require.Equal(t, int64(2), scans())
	})
}

func TestThereAreMoreNamesThanAreKept(t *testing.T) {
	t.Parallel()
	b := opened(t, kit.Dial(t, filled(t, 500)))
	b.most = 300
	page := b.page(t, "/")
	require.Contains(t, page, "300 names, looked at")
	require.Contains(t, page, "The server knows more than these 300 names")
	require.Len(t, b.names.answer.value.found, 300)
	b.names.answer = answer[names]{}
	b.most = 500
	require.NotContains(t, b.page(t, "/"), "The server knows more")
}

// A walk that takes too long keeps what it has found; one that finds nothing, or is ended, fails.
func TestAWalkThatTakesTooLongKeepsWhatItFound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &Console{most: mostNames}
		gather := func(ctx context.Context, found int) (names, error) {
			return c.gather(ctx, func(yield func(inspect.Listed, error) bool) {
				for i := range found {
					if !yield(inspect.Listed{Kind: "lock", Name: strconv.Itoa(i)}, nil) {
						return
					}
				}
				<-ctx.Done()
				yield(inspect.Listed{}, ctx.Err())
			})
		}
		ctx, cancel := context.WithTimeout(t.Context(), lookLimit)
		defer cancel()
		n := kit.Got(gather(ctx, 3))(t)
		require.Len(t, n.found, 3)
		require.Equal(t, "2\n-", n.found[2].text)
		require.True(t, n.more)
		require.ErrorIs(t, kit.Err(gather(ctx, 0)), context.DeadlineExceeded)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, kit.Err(gather(ended, 3)), context.Canceled)
	})
}

// What took long is good for longer, but not if it failed.
func TestAFailureIsKeptForNoLongerThanWhatIsFresh(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		looks, failure := 0, errors.New("no answer")
		c := &Console{ctx: t.Context()}
		s := newShared(c, 3*time.Second, func(context.Context) (int, error) {
			looks++
			time.Sleep(time.Minute) // Of the bubble.
			if looks < 3 {
				return 0, failure
			}
			return looks, nil
		})
		get := func(after time.Duration, want int) error {
			time.Sleep(after) // Of the bubble.
			err := s.get(t.Context()).err
			require.Equal(t, want, looks)
			return err
		}
		require.ErrorIs(t, get(0, 1), failure)
		require.ErrorIs(t, get(2*time.Second, 1), failure)
		require.ErrorIs(t, get(2*time.Second, 2), failure)
		require.NoError(t, get(4*time.Second, 3))
		require.NoError(t, get(3*time.Minute, 3))
		require.NoError(t, get(2*time.Minute, 4))
	})
}

// What the list shows is what ls shows.
func TestTheListSaysWhoHolds(t *testing.T) {
	kit.One(t, func(t *testing.T, s redistest.Backend, c *headwaiter.Client) {
		require.NoError(t, kit.Err(fairlock.New(c, "orders").Lock(t.Context())))
		require.NoError(t, kit.Err(semaphore.New(c, "pool", 5).Acquire(t.Context(), 3)))
		wait := fairlock.New(c, "orders")
		kit.Lock(t.Context(), wait.Lock)
		kit.Waiting(t, 1, wait.Inspect)
		page := opened(t, kit.Dial(t, s)).page(t, "/")
		require.Regexp(t, `orders</a></th><td>lock</td><td>test@\S+#\d+</td><td class="number">since <time[^>]+>[\d:]+</time>, for [\d.]+m?s</td><td class="number busy">1</td>`, page)
		require.Regexp(t, `pool</a></th><td>semaphore</td><td>3 of 5 held, test@\S+#\d+</td>`, page)
	})
}

func TestWhyThereIsNoList(t *testing.T) {
	s := kit.Start(t)
	b := opened(t, kit.Dial(t, s))
	s.Do("ACL", "SETUSER", "default", "-scan")
	w := b.do("GET", "/", nil)
	require.Equal(t, 502, w.Code)
	require.Contains(t, strings.ToLower(w.Body.String()), "scan")
	require.Contains(t, w.Body.String(), `href="/doctor"`, "the way on")
	require.Equal(t, 400, b.do("GET", "/name?name=", nil).Code)
}

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
