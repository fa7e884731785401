package chaos

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

// shifted is a run on a server whose clock can be set.
func shifted(t *testing.T, row string, changes ...func(*options)) (*run, *redistest.Clock) {
	t.Helper()
	clock := redistest.NewClock(t)
	changes = append(changes, func(o *options) {
		o.server = []redistest.Option{redistest.WithClock(clock)}
		o.outcomes = []string{"expired", "forgotten"}
	})
	return begin(t, row, changes...), clock
}

// Leases end at once, and the holders are told by their renewals: the one case where somebody else may hold
// before they are.
func TestS20TheServersClockStepsForward(t *testing.T) {
	t.Parallel()
	r, clock := shifted(t, "S20", func(o *options) { o.twice, o.keep = true, keep+time.Hour })
	const lasts = 3 * time.Second
	m, other := fairlock.New(r.dial(), "forward", headwaiter.WithLease(lasts)), fairlock.New(r.dial(), "forward")
	for i := range either(2, 10) {
		w := watched(granted(t, m))
		c := queued(t, other, 1)
		r.forgets(func() { clock.Shift(time.Duration(i+1) * time.Minute) })
		since := time.Now()
		w.told(t, promised(w.lease, lasts))
		require.Less(t, time.Since(since), lasts, "not told by a renewal")
		l := c.Value(t)
		require.Greater(t, l.Token(), w.lease.Token())
		kit.Release(t, l)
		r.everybody()
	}
	kit.Free(t, m)
	r.finish()
}

func TestS20TheServersClockStepsBack(t *testing.T) {
	t.Parallel()
	r, clock := shifted(t, "S20", func(o *options) { o.keep = keep + 24*time.Hour })
	const lasts = 2 * time.Second
	dead := fairlock.New(r.dial(), "back")
	other, first, second := fairlock.New(r.dial(), "order"), r.dial(), r.dial()
	for i := range either(1, 5) {
		victim, held := r.keeper("back", lasts)
		next := queued(t, dead, 1)
		l := granted(t, other)
		one := queued(t, fairlock.New(first, "order"), 1)
		victim.Kill()
		clock.Shift(-time.Duration(i+1) * time.Hour)
		since := time.Now()
		two := queued(t, fairlock.New(second, "order"), 2)
		got := next.Value(t)
		require.Less(t, time.Since(since), lasts+4*time.Second, "the lease of a dead holder has become longer")
		require.Greater(t, got.Token(), held.Token)
		kit.Release(t, got)
		// Who came before the step is served before who came after it.
		kit.Release(t, l)
		l = one.Value(t)
		require.False(t, two.Returned(), "who came after the step has overtaken")
		kit.Release(t, l)
		kit.Release(t, two.Value(t))
		r.everybody()
	}
	var stepped uint64
	for _, c := range r.clients {
		stepped += c.Stats().Stepped
	}
	require.Positive(t, stepped, "nobody has noticed the step")
	r.finish()
}

// Numbers of 16 digits are exact in the scripts of a real server, also in a hundred years.
func TestI5TimesInMicrosecondsAreExact(t *testing.T) {
	t.Parallel()
	clock := redistest.NewClock(t)
	clock.Shift(100 * 365 * 24 * time.Hour)
	r := begin(t, "I5", func(o *options) { o.server = []redistest.Option{redistest.WithClock(clock)} })
	m, other := fairlock.New(r.dial(), "exact"), fairlock.New(r.dial(), "exact")
	last := uint64(0)
	for range either(20, 500) {
		l := granted(t, m)
		c := queued(t, other, 1)
		now := uint64(kit.ServerTime(r.server))
		queue := r.server.List("ZRANGE", keyOf("exact")+":queue", "0", "-1", "WITHSCORES")
		require.Len(t, queue, 2)
		arrival, err := strconv.ParseUint(queue[1], 10, 64)
		require.NoError(t, err, "a score is no whole number")
		require.InDelta(t, float64(now), float64(arrival), 10e6)
		require.Equal(t, fmt.Sprint(l.Token()), r.server.Text("HGET", keyOf("exact"), "token"))
		require.Greater(t, l.Token(), last)
		require.InDelta(t, float64(now), float64(l.Token()), 10e6)
		kit.Release(t, l)
		l2 := c.Value(t)
		require.Greater(t, l2.Token(), l.Token())
		require.Equal(t, fmt.Sprint(l2.Token()), r.server.Text("HGET", keyOf("exact"), "token"))
		until, err := strconv.ParseInt(r.server.Text("HGET", keyOf("exact"), "until"), 10, 64)
		require.NoError(t, err)
		require.Greater(t, until, int64(now))
		last = l2.Token()
		kit.Release(t, l2)
	}
	require.Greater(t, last, uint64(1e15))
	r.everybody()
	r.finish()
}
