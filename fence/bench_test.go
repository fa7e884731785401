package fence_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/fence"
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
