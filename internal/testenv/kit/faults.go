package kit

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// Proxy stands between a server and the clients that are dialled through it.
func Proxy(t testing.TB, s redistest.Backend) *faults.Proxy {
	t.Helper()
	return faults.NewProxy(t, s.Option().InitAddress[0])
}

// Through leads a client to the server of a proxy.
func Through(p *faults.Proxy) func(*headwaiter.Options) {
	return func(o *headwaiter.Options) { o.Redis.InitAddress = []string{p.Addr()} }
}

// Over leads a client to a server in a bubble, with the faults of the dialer.
func Over(d *faults.Dialer) func(*headwaiter.Options) {
	return func(o *headwaiter.Options) { o.Redis.DialCtxFn = d.DialCtx }
}

// Runs matches the commands that run a script.
func Runs(s *lua.Script) func([]string) bool {
	return func(command []string) bool {
		return len(command) > 1 && (command[1] == s.SHA || command[1] == s.Source)
	}
}

// Notices matches the messages of a kind.
func Notices(kind wire.MessageKind) func([]string) bool {
	return func(push []string) bool {
		return len(push) == 3 && push[0] == "message" && strings.HasPrefix(push[2], string(kind)+" ")
	}
}

// LostReplies waits until n replies were lost.
func LostReplies(t testing.TB, f *faults.Faults, n int) {
	t.Helper()
	for i := range n {
		Eventually(t, fmt.Sprintf("lost reply %d of %d", i+1, n), func() bool {
			replies, _ := f.Lost()
			return replies > i
		})
	}
}

// Scripts counts what ran because of a script or of the library's own requests. What else there is, such as
// PING, keeps connections alive.
func Scripts(s redistest.Backend) map[string]int64 {
	all := s.CommandStats()
	found := map[string]int64{}
	for _, name := range []string{"evalsha", "eval", "publish", "subscribe", "unsubscribe", "pubsub|numsub"} {
		if n := all[name]; n > 0 {
			found[name] = n
		}
	}
	return found
}

// Listening waits until at least that many clients hear of releases by force: they subscribe when they have held for a moment.
func Listening(t testing.TB, s redistest.Backend, clients int) {
	t.Helper()
	Eventually(t, "clients to listen for what they hold", func() bool {
		return len(s.List("PUBSUB", "CHANNELS", lua.ClientChannel("headwaiter", "*"))) >= clients
	})
}

// Expiring asserts that every key expires.
func Expiring(t testing.TB, s redistest.Backend) {
	t.Helper()
	for _, key := range s.List("KEYS", "*") {
		require.NotEqual(t, int64(-1), s.Int("PTTL", key), "%s stays for ever", key)
	}
}

// Lives is for how long the longest of the keys of a name lives. Each must expire.
func Lives(t testing.TB, s redistest.Backend, keys lua.Keys) time.Duration {
	t.Helper()
	var longest int64
	for _, key := range keys.All() {
		left := s.Int("PTTL", key)
		require.NotEqual(t, int64(-1), left, "%s stays for ever", key)
		longest = max(longest, left)
	}
	return time.Duration(longest) * time.Millisecond
}

// ServerTime is the server's clock in µs.
func ServerTime(s redistest.Backend) int64 {
	return s.Int("EVAL", "local t = redis.call('TIME'); return t[1] * 1000000 + t[2]", "0")
}

// Median is the middle one of an odd number of spans.
func Median(spans []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(spans))[len(spans)/2]
}
