package reentrant_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"time"

	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/reentrant"
	"github.com/redis/rueidis"
)

var (
	takeTheirs = rueidis.NewLuaScript(`if redis.call('hexists', KEYS[1], ARGV[1]) == 1 then return 1 end -- asked again
if redis.call('exists', KEYS[1]) == 1 then return 0 end
redis.call('hset', KEYS[1], ARGV[1], 1)
return redis.call('pexpire', KEYS[1], ARGV[2])`)
	freeTheirs = rueidis.NewLuaScript(`if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('del', KEYS[1])
redis.call('publish', ARGV[2], '0')
local first = redis.call('lindex', KEYS[2], 0) -- of the waiters for a fair lock
if first then redis.call('publish', ARGV[2] .. ':' .. first, '0') end
return 1`)
)

// A bridged is the key of a context: the value is the token of the hold under which Redisson's lock is held too.
type bridged struct{ name string }

// both runs f under the lock m and Redisson's lock with the same name. Calls within f may use both again.
func both(ctx context.Context, m *reentrant.Mutex, c rueidis.Client, f func(context.Context) error) error {
	return m.Do(ctx, func(ctx context.Context) error {
		held, _ := lease.FromContext(ctx)
		if ctx.Value(bridged{m.Name()}) == held.Token() {
			return f(ctx)
		}
		me := "headwaiter:" + rand.Text()
		tag := ":{" + m.Name() + "}"
		keys := []string{m.Name(), "redisson_lock_queue" + tag}
		// Also after an error: the answer may be what was lost.
		defer freeTheirs.Exec(context.WithoutCancel(ctx), c, keys, []string{me, "redisson_lock__channel" + tag})
		for {
			const ms = "300000" // longer than f: nothing renews it
			got, err := takeTheirs.Exec(ctx, c, keys[:1], []string{me, ms}).AsInt64()
			if err != nil {
				return cmp.Or(context.Cause(ctx), err) // The context's own error does not say why it ended.
			}
			if got == 1 {
				break
			}
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return f(context.WithValue(ctx, bridged{m.Name()}, held.Token()))
	})
}
