package fence_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/fence"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

func BenchmarkMemory(b *testing.B) {
	ctx := b.Context()
	b.Run("Admit", func(b *testing.B) {
		k := fence.NewMemory(1000).Key("account:7")
		for b.Loop() {
			require.NoError(b, k.Admit(ctx, 42))
		}
	})
	b.Run("Do", func(b *testing.B) {
		k := fence.NewMemory(1000).Key("account:7")
		write := func(context.Context) error { return nil }
		for b.Loop() {
			require.NoError(b, k.Do(ctx, 42, write))
		}
	})
	b.Run("Admit to one key after the other, all forgotten", func(b *testing.B) {
		m := fence.NewMemory(1000)
		keys := make([]fence.MemoryKey, 2000)
		for i := range keys {
			keys[i] = m.Key("account:" + strconv.Itoa(i))
		}
		token := uint64(0)
		for b.Loop() {
			token++
			require.NoError(b, keys[token%2000].Admit(ctx, token))
		}
	})
}

// What a write costs with a check and without.
func BenchmarkRedis(b *testing.B) {
	ctx := b.Context()
	c := connect(b, redistest.Start(b))
	fenced, open := guarded(c, "fenced"), document{client: c, key: "open"}
	run := func(name string, f func() error) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				require.NoError(b, f())
			}
		})
	}
	unchecked := rueidis.NewLuaScript("return redis.call('SET', KEYS[1], ARGV[1])")
	run("unguarded SET", func() error { return open.Write(ctx, 0, 1) })
	run("unguarded script of a SET", func() error {
		return unchecked.Exec(ctx, c, []string{"open"}, []string{"1"}).Error()
	})
	run("Admit", func() error { return fenced.guard.Admit(ctx, 42) })
	run("Run of a SET", func() error { return fenced.Write(ctx, 42, 1) })
	token := uint64(42)
	run("Run of a SET, each with a new token", func() error {
		token++
		return fenced.Write(ctx, token, 1)
	})
}

func BenchmarkHTTP(b *testing.B) {
	held, _ := hold(b, 42, false)
	next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	guard := fence.NewMemory(1000).Key("n")
	h := &fence.Handler{Next: next, Guard: func(*http.Request) fence.Guard { return guard }}
	r := httptest.NewRequestWithContext(b.Context(), http.MethodPut, "/n", nil)
	r.Header.Set(fence.Header, "42")
	w := httptest.NewRecorder()
	b.Run("Handler", func(b *testing.B) {
		for b.Loop() {
			h.ServeHTTP(w, r)
		}
	})
	none := roundTrip(func(*http.Request) (*http.Response, error) { return nil, nil })
	t := &fence.Transport{Base: none}
	r = r.WithContext(held.Context())
	b.Run("Transport", func(b *testing.B) {
		for b.Loop() {
			_, _ = t.RoundTrip(r) //nolint:bodyclose // There is none.
		}
	})
}

// A mark is what fence/admit keeps, told a second time as plain Go.
type mark struct {
	text  string
	lasts time.Duration // what is left of it; 0 if it stays
}

var readable = regexp.MustCompile(`^[1-9][0-9]*$`)

// errUnreadable stands for a mark that nobody can read.
var errUnreadable = errors.New("unreadable")

// admit is what the script does to a mark, which may be nil.
func (m *mark) admit(token uint64, lifetime time.Duration) (*mark, error) {
	next := mark{text: strconv.FormatUint(token, 10)}
	if m != nil {
		if !readable.MatchString(m.text) {
			return m, errUnreadable
		}
		highest, err := strconv.ParseUint(m.text, 10, 64)
		if err != nil || token < highest { // What is longer than any token is above all.
			return m, fence.ErrStale
		}
		if token == highest {
			next.lasts = m.lasts
		}
	}
	if lifetime != 0 {
		next.lasts = lifetime
	}
	return &next, nil
}

// Numbers around those at which a comparison of texts or of floating point would go wrong.
var numbers = []uint64{
	1, 2, 9, 10, 11, 19, 99, 100, 101, 1<<53 - 1, 1 << 53, 1<<53 + 1, 1<<53 + 2, 9999999999999999, 10000000000000000, math.MaxInt64 - 1,
	math.MaxInt64,
}

var unreadable = []string{"", "0", "01", "-1", "1.5", "1e3", " 7", "x"}

// marks plays histories of guards of one key, two bytes a step, on a server and on the model.
type marks struct {
	server *redistest.Embedded
	guards []*fence.Redis
	lives  []time.Duration
	write  *fence.Script
}

func newMarks(t testing.TB) *marks {
	s := redistest.Mini(t)
	c := connect(t, s)
	m := &marks{server: s, lives: []time.Duration{0, time.Minute, time.Hour}, write: fence.NewScript(`return redis.call('INCR', KEYS[1])`)}
	for _, d := range m.lives {
		var opts []fence.RedisOption
		if d != 0 {
			opts = append(opts, fence.WithLifetime(d))
		}
		m.guards = append(m.guards, fence.NewRedis(c, "n", opts...))
	}
	return m
}

func (p *marks) play(t *testing.T, data []byte, reached map[string]int) {
	mini := p.server.Miniredis()
	mini.FlushAll()
	var model *mark
	key, written := p.guards[0].Mark(), int64(0)
	for i := 0; i+1 < len(data) && i < 120; i += 2 {
		op, choice := data[i]%16, int(data[i+1])
		token, which := numbers[choice%len(numbers)], int(data[i]/16)%len(p.guards)
		what := fmt.Sprintf("step %d of %x: op %d, token %d, guard %d", i/2, data, op, token, which)
		switch {
		case op == 0:
			mini.Del(key)
			model = nil
		case op == 1:
			text := unreadable[choice%len(unreadable)]
			mini.HSet(key, "token", text)
			if model == nil {
				model = &mark{}
			}
			model = &mark{text, model.lasts}
		case op < 5:
			d := []time.Duration{41 * time.Second, 2 * time.Hour}[choice%2] // Far from the ends of what lasts.
			mini.FastForward(d)
			if model != nil && model.lasts != 0 {
				if model = (&mark{model.text, model.lasts - d}); model.lasts <= 0 {
					model = nil
				}
			}
		default:
			var want error
			model, want = model.admit(token, p.lives[which])
			got := error(nil)
			if op < 10 {
				got = p.guards[which].Admit(t.Context(), token)
			} else {
				var n int64
				n, got = p.guards[which].Run(t.Context(), token, p.write, []string{"n"}, nil).AsInt64()
				if want == nil {
					written++
					require.Equal(t, written, n, what)
				}
			}
			switch {
			case want == nil:
				require.NoError(t, got, what)
			case errors.Is(want, errUnreadable):
				require.Error(t, got, what)
				require.NotErrorIs(t, got, fence.ErrStale, what)
			default:
				stale(t, got, token, number(model.text))
			}
			reached[fmt.Sprint(want)]++
		}
		require.Equal(t, model != nil, mini.Exists(key), what)
		if model != nil {
			require.Equal(t, model.text, mini.HGet(key, "token"), what)
			require.InDelta(t, model.lasts.Seconds(), mini.TTL(key).Seconds(), 15, what) // Its clock goes on.
			require.Equal(t, model.lasts == 0, mini.TTL(key) == 0, what)
		}
		if written > 0 {
			text := kit.Got(mini.Get("n"))(t)
			require.Equal(t, strconv.FormatInt(written, 10), text, "%s: a write that was not admitted", what)
		}
	}
}

// number is a token in a mark.
func number(text string) uint64 {
	n, _ := strconv.ParseUint(text, 10, 64)
	return n
}

func history(seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 3))
	data := make([]byte, 2*(5+r.IntN(55)))
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	return data
}

func TestAMarkIsWhatTheModelKeeps(t *testing.T) {
	t.Parallel()
	p, reached := newMarks(t), map[string]int{}
	for seed := range uint64(200) {
		p.play(t, history(seed), reached)
	}
	for _, want := range []error{nil, fence.ErrStale, errUnreadable} {
		require.NotZero(t, reached[fmt.Sprint(want)], want)
	}
}

func FuzzAdmit(f *testing.F) {
	p := newMarks(f)
	for seed := range uint64(20) {
		f.Add(history(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) { p.play(t, data, map[string]int{}) })
}
