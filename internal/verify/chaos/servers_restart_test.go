package chaos

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/evidence"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
)

func TestS1TheServerRestartsEmpty(t *testing.T) {
	r := begin(t, "S1", func(o *options) { o.twice, o.outcomes = true, []string{"forgotten", "unconfirmed"} })
	m, other := fairlock.New(r.dial(), "held", headwaiter.WithLease(3*time.Second)), fairlock.New(r.dial(), "held")
	spans := make([]span, either(3, 15))
	for i := range spans {
		l := granted(t, m)
		w := watched(l)
		next := queued(t, other, 1)
		until := r.until("held")
		r.forgets(func() { r.server.Restart() })
		since := time.Now()
		l2 := next.Value(t)
		spans[i] = span{since, time.Now()}
		require.ErrorIs(t, w.told(t, until), lease.ErrForgotten)
		require.ErrorIs(t, l.Release(t.Context()), lease.ErrLost)
		require.Greater(t, l2.Token(), l.Token())
		require.NoError(t, l2.Context().Err(), "the release of a hold that is forgotten has freed another")
		kit.Release(t, l2)
		r.everybody()
	}
	r.measured(restart, spans)
	kit.Free(t, m)
	r.finish()
}

// With appendfsync always what was acknowledged is there again. With everysec, Redis answers before it writes
// while the disk is slow, so that what it acknowledged may be gone although only its process was killed: then
// it is as after a restart without data.
func TestS2TheServerIsAwayForALeaseAndKeepsItsData(t *testing.T) {
	t.Parallel()
	for _, fsync := range []string{"always", "everysec"} {
		t.Run(fsync, func(t *testing.T) {
			t.Parallel()
			r := begin(t, "S2", func(o *options) {
				o.server = []redistest.Option{redistest.WithArgs("--appendonly", "yes", "--appendfsync", fsync)}
				o.twice, o.outcomes = fsync != "always", []string{"expired", "forgotten", "unconfirmed"}
			})
			r.awayForALease()
			r.acknowledged(fsync == "always")
			r.everybody()
			r.finish()
		})
	}
}

// awayForALease kills the server for longer than the lease of a holder.
func (r *run) awayForALease() {
	r.Helper()
	m, other := fairlock.New(r.dial(), "held", headwaiter.WithLease(time.Second)), fairlock.New(r.dial(), "held")
	for range either(1, 5) {
		w := watched(granted(r, m))
		next := queued(r, other, 1)
		r.forgets(func() {
			r.server.Kill()
			// Nothing can be asked: what counts is what was promised last.
			require.ErrorIs(r, w.told(r, promised(w.lease, time.Second)), lease.ErrExpired)
			r.server.Restart()
		})
		l := next.Value(r)
		require.Greater(r, l.Token(), w.lease.Token())
		require.ErrorIs(r, w.lease.Release(context.Background()), lease.ErrLost)
		kit.Release(r, l)
		r.everybody()
	}
}

// acknowledged kills the server right after it has answered. The hold is there again, or its holder is told.
func (r *run) acknowledged(always bool) {
	r.Helper()
	const lasts = 3 * time.Second
	m := fairlock.New(r.dial(), "acknowledged", headwaiter.WithLease(lasts))
	last := uint64(0)
	for range either(2, 20) {
		w := watched(granted(r, m))
		require.Greater(r, w.lease.Token(), last)
		last = w.lease.Token()
		r.forgets(func() {
			r.server.Kill()
			r.server.Restart()
		})
		if r.server.Text("HGET", keyOf("acknowledged"), "token") != strconv.FormatUint(last, 10) {
			require.False(r, always, "what was acknowledged is lost")
			evidence.Fault(r, "grant lost by appendfsync everysec", 1)
			require.ErrorIs(r, w.told(r, promised(w.lease, lasts)), lease.ErrForgotten)
		} else {
			require.NoError(r, w.lease.Context().Err())
			kit.Release(r, w.lease)
			w.done.Wait()
		}
	}
	kit.Release(r, granted(r, m)) // A hold that was released and came back ends when somebody asks.
	kit.Free(r, m)
}

func TestS3TheServerRestartsFromAnOlderState(t *testing.T) {
	t.Parallel()
	r := begin(t, "S3", func(o *options) { o.twice, o.outcomes = true, []string{"forgotten", "expired", "unconfirmed"} })
	client, late := r.dial(), r.dial()
	for i := range either(1, 5) {
		name := fmt.Sprintf("old:%d", i)
		m := fairlock.New(client, name, headwaiter.WithLease(time.Second))
		l := granted(t, m)
		old := l.Token()
		r.server.Do("SAVE")
		kit.Release(t, l)
		newer := granted(t, m)
		kit.Release(t, newer)
		held := watched(granted(t, fairlock.New(client, name+":held", headwaiter.WithLease(2*time.Second))))
		until := r.until(name + ":held")
		r.everybody()
		r.forgets(func() {
			r.server.Kill()
			r.server.Restart()
		})
		require.EqualValues(t, old, r.server.Int("HGET", keyOf(name), "token"), "the older state is not back")
		since := time.Now()
		next := granted(t, fairlock.New(late, name)) // Of a client that has seen none of its tokens.
		require.Less(t, time.Since(since), time.Second+3*time.Second, "the lock that is back lasts for more than its lease")
		require.Greater(t, next.Token(), newer.Token())
		kit.Release(t, next)
		require.ErrorIs(t, held.told(t, until), lease.ErrForgotten)
		r.everybody()
	}
	r.finish()
}

func TestS5KeysAreDeleted(t *testing.T) {
	t.Parallel()
	r := begin(t, "S5", func(o *options) { o.twice, o.outcomes = true, []string{"forgotten"} })
	held, waiting := r.dial(), r.dial()
	for i := range either(5, 50) {
		m := fairlock.New(held, "flushed", headwaiter.WithLease(2*time.Second))
		w := watched(granted(t, m))
		next := queued(t, fairlock.New(waiting, "flushed"), 1)
		until := r.until("flushed")
		r.forgets(func() {
			if i%2 == 0 {
				r.server.Do("FLUSHALL")
				return
			}
			for _, key := range r.server.List("KEYS", "headwaiter:*") {
				if (len(key)+i)%3 > 0 || key == keyOf("flushed") {
					r.server.Do("DEL", key)
				}
			}
		})
		require.ErrorIs(t, w.told(t, until), lease.ErrForgotten)
		l := next.Value(t)
		require.Greater(t, l.Token(), w.lease.Token())
		kit.Release(t, l)
		r.everybody()
	}
	r.finish()
}

func TestS4ScriptsAreFlushed(t *testing.T) {
	t.Parallel()
	r := begin(t, "S4")
	n := r.load.count()
	flushes := either(300, 5000)
	for range flushes {
		r.server.Do("SCRIPT", "FLUSH")
	}
	kit.Eventually(t, "progress between the flushes", func() bool {
		r.server.Do("SCRIPT", "FLUSH")
		return r.load.count() > n+rate
	})
	r.everybody()
	r.finish()
}
