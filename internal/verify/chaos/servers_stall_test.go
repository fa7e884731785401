package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/evidence"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/verify/judge"
	"github.com/headwaiter/headwaiter/lease"
)

// stall is longer than the leases of those that must not rely on an answer.
const stall = 2500 * time.Millisecond

func itSleepsBeyondALease(t *testing.T, r *run) {
	r.outlasts(t, func() { _, _ = r.server.Try("DEBUG", "SLEEP", "2.5") })
}

func itIsStoppedBeyondALease(t *testing.T, r *run) {
	r.outlasts(t, func() {
		r.server.Stop()
		time.AfterFunc(stall, r.server.Cont)
	})
}

// outlasts has the server stall for longer than a lease. Its holder gives up before it answers.
func (r *run) outlasts(t *testing.T, begins func()) {
	for range either(1, 5) {
		m := r.lock("held", headwaiter.WithLease(time.Second))
		w := watched(granted(t, m))
		over := make(chan struct{})
		go func() {
			defer close(over)
			begins()
		}()
		cause := kit.Lost(t, w.lease)
		since := time.Now()
		// The last renewal may have come before the stall: what counts is what was promised last.
		require.ErrorIs(t, w.told(t, promised(w.lease, time.Second)), lease.ErrExpired, cause)
		r.server.Do("PING")
		require.Greater(t, time.Since(since), time.Second, "it was told after the stall")
		<-over
		require.ErrorIs(t, w.lease.Release(t.Context()), lease.ErrLost)
		r.everybody()
		kit.Free(t, m)
	}
}

func itIsBusyWithAScript(t *testing.T, r *run) {
	m := fairlock.New(r.dial(), "busy")
	for range either(1, 5) {
		go func() { _, _ = r.server.Try("EVAL", "while true do end", "0") }()
		kit.Eventually(t, "the server to say that it is busy", func() bool {
			_, err := r.server.Try("PING")
			return err != nil && strings.HasPrefix(err.Error(), "BUSY")
		})
		err := lockFor(t, m, 500*time.Millisecond)
		require.NotErrorIs(t, err, lease.ErrBusy)
		require.ErrorContains(t, kit.As[*lease.WaitError](t, err).Last, "BUSY")
		c := kit.Lock(t.Context(), m.Lock)
		r.server.Do("SCRIPT", "KILL")
		kit.Release(t, c.Value(t))
		r.everybody()
	}
}

func itIsBusyWithAScriptThatHasWritten(t *testing.T, r *run) {
	m := fairlock.New(r.dial(), "busy")
	go func() { _, _ = r.server.Try("EVAL", "redis.call('SET', 'x', 1) while true do end", "0") }()
	kit.Eventually(t, "the server to say that it cannot be helped", func() bool {
		_, err := r.server.Try("SCRIPT", "KILL")
		return err != nil && strings.HasPrefix(err.Error(), "UNKILLABLE")
	})
	c := kit.Lock(t.Context(), m.Lock)
	r.forgets(func() { r.server.Restart() }) // The server has to be.
	kit.Release(t, c.Value(t))
}

func itLoads(t *testing.T, r *run) {
	size := "100"
	if redistest.Before7() {
		size = "4000"
	}
	m := fairlock.New(r.dial(), "loading")
	r.server.Do("DEBUG", "POPULATE", "9000", "key", size) // Of 0.5 ms each.
	r.server.Do("SAVE")
	var c *kit.Call[*lease.Lease]
	r.forgets(func() {
		back := make(chan struct{})
		r.server.Kill()
		go func() {
			defer close(back)
			r.server.Restart()
		}()
		kit.Eventually(t, "the server to say that it loads", func() bool {
			_, err := r.server.Try("GET", "x")
			return err != nil && strings.HasPrefix(err.Error(), "LOADING")
		})
		require.ErrorContains(t, lockFor(t, m, 2*time.Second), "LOADING")
		c = kit.Lock(t.Context(), m.Lock)
		<-back
	})
	kit.Release(t, c.Value(t))
}

func itCannotSave(t *testing.T, r *run) {
	dir := r.server.List("CONFIG", "GET", "dir")[1]
	refuses(t, r, "MISCONF", func() {
		// A folder where the file should be: nobody can replace it.
		require.NoError(t, os.RemoveAll(filepath.Join(dir, "dump.rdb")))
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "dump.rdb", "x"), 0o700))
		r.server.Do("BGSAVE")
		kit.Eventually(t, "the server to refuse writes", func() bool {
			_, err := r.server.Try("SET", "x", "1")
			return err != nil && strings.HasPrefix(err.Error(), "MISCONF")
		})
	}, func() {
		require.NoError(t, os.RemoveAll(filepath.Join(dir, "dump.rdb")))
		r.server.Do("BGSAVE")
		kit.Eventually(t, "the server to accept writes", func() bool {
			_, err := r.server.Try("SET", "x", "1")
			return err == nil
		})
	})
}

// A master that has become a replica is waited out, as its name may lead to another at any moment.
func itIsDemoted(t *testing.T, r *run) {
	m, other := fairlock.New(r.dial(), "demoted", headwaiter.WithLease(2*time.Second)), fairlock.New(r.dial(), "demoted")
	unheld := fairlock.New(r.dial(), "demoted:free")
	w := watched(granted(t, m))
	r.server.Do("REPLICAOF", "127.0.0.1", "1")
	kit.Fails(t, lockFor(t, other, 500*time.Millisecond), "connect to the master", "READONLY")
	_, err := unheld.TryLock(t.Context())
	require.ErrorContains(t, err, "READONLY")
	require.NotErrorIs(t, err, lease.ErrBusy)
	next := kit.Lock(t.Context(), other.Lock)
	require.ErrorIs(t, w.told(t, r.until("demoted")), lease.ErrExpired)
	require.False(t, next.Returned())
	r.server.Do("REPLICAOF", "NO", "ONE")
	kit.Release(t, next.Value(t))
}

func itHasTooFewReplicas(t *testing.T, r *run) {
	refuses(t, r, "NOREPLICAS", func() { r.server.Do("CONFIG", "SET", "min-replicas-to-write", "2") },
		func() { r.server.Do("CONFIG", "SET", "min-replicas-to-write", "0") })
}

// refuses asserts what there is to get from a server that refuses all writes: no lock, no false word about a
// release, a loss that is told in time, and all of it over when the server is well again.
func refuses(t *testing.T, r *run, code string, begins, ends func()) {
	t.Helper()
	m, other := fairlock.New(r.dial(), "refused", headwaiter.WithLease(2*time.Second)), fairlock.New(r.dial(), "refused")
	unheld := fairlock.New(r.dial(), "refused:free")
	renewed := fairlock.New(r.dial(), "refused:renewed", headwaiter.WithLease(2*time.Second))
	for range either(1, 5) {
		l := granted(t, m)
		w := watched(granted(t, renewed))
		begins()
		err := lockFor(t, other, 200*time.Millisecond)
		require.ErrorContains(t, err, code)
		require.NotErrorIs(t, err, lease.ErrBusy)
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		err = l.Release(ctx)
		cancel()
		kit.Fails(t, err, lease.ErrUnconfirmed, code)
		require.ErrorContains(t, kit.Err(unheld.TryLock(t.Context())), code)
		require.ErrorIs(t, w.told(t, r.until("refused:renewed")), lease.ErrExpired)
		ends()
		l = granted(t, other) // At the end of its lease at the latest.
		kit.Release(t, l)
		r.everybody()
	}
	kit.Release(t, granted(t, renewed)) // Whose holder could not give it back.
}

// A server whose master is gone and that does not serve what is stale is waited out.
func itHasLostItsMaster(t *testing.T, r *run) {
	m := fairlock.New(r.dial(), "masterdown")
	r.server.Do("CONFIG", "SET", "replica-serve-stale-data", "no")
	r.server.Do("REPLICAOF", "127.0.0.1", "1")
	require.ErrorContains(t, kit.Err(r.server.Try("GET", "x")), "MASTERDOWN")
	require.ErrorContains(t, lockFor(t, m, 2*time.Second), "MASTERDOWN")
	c := kit.Lock(t.Context(), m.Lock)
	kit.Eventually(t, "further tries", func() bool { return number(t, r.server.Text("INFO", "stats"), "total_error_replies") > 20 })
	require.False(t, c.Returned())
	r.server.Do("REPLICAOF", "NO", "ONE")
	kit.Release(t, c.Value(t))
}

func itsMemoryIsFull(t *testing.T, r *run) {
	name := "full"
	holder, first, second := fairlock.New(r.dial(), name, headwaiter.WithLease(2*time.Second)), fairlock.New(r.dial(), name), fairlock.New(r.dial(), name)
	other := r.dial()
	for range either(2, 20) {
		l, c1 := granted(t, holder), queued(t, first, 1)
		ctx, cancel := context.WithCancel(t.Context())
		c2 := kit.Lock(ctx, second.Lock)
		kit.Waiting(t, 2, holder.Inspect)
		c3 := queued(t, second, 3)
		r.server.Do("CONFIG", "SET", "maxmemory", "1")
		for _, taken := range []string{name, "full:free"} {
			m := fairlock.New(other, taken)
			_, err := m.Lock(t.Context())
			require.ErrorContains(t, err, "OOM")
			require.NotErrorIs(t, err, lease.ErrBusy)
			info := kit.Got(m.Inspect(t.Context()))(t)
			require.False(t, info.Held && info.Holder.Client == other.ID())
			for _, w := range info.Queue {
				require.NotEqual(t, other.ID(), w.Client, "a ticket is queued that was refused")
			}
		}
		until := r.until(name)
		kit.Eventually(t, "a renewal in full memory", func() bool { return r.until(name) > until })
		kit.Cancel(t, cancel, c2)
		kit.Waiting(t, 2, holder.Inspect)
		kit.PassOn(t, l, c1, c3)
		for _, c := range r.clients {
			require.Zero(t, c.Stats().Missed, "hand-offs in full memory waited for looks")
		}
		r.server.Do("CONFIG", "SET", "maxmemory", "0")
		r.everybody()
	}
	kit.Free(t, holder)
}

func locksAreEvicted(policy string) func(*testing.T, *run) {
	return func(t *testing.T, r *run) {
		const locks, lasts = 100, 3 * time.Second
		client, next := r.dial(), r.dial()
		held := make([]*watch, locks)
		for i := range held {
			held[i] = watched(granted(t, fairlock.New(client, fmt.Sprintf("evicted:%d", i), headwaiter.WithLease(lasts))))
		}
		r.server.Do("CONFIG", "SET", "maxmemory-policy", policy)
		used := number(t, r.server.Text("INFO", "memory"), "used_memory")
		began := evidence.Now()
		r.server.Do("CONFIG", "SET", "maxmemory", fmt.Sprint(used+4<<20))
		for i := range 60 { // What is evicted is evicted before a script, to make room for it.
			_, err := r.server.Try("EVAL", "for i = 1, 200 do redis.call('SET', KEYS[1] .. i, string.rep('x', 1000), 'PX', 3600000) end", "1", fmt.Sprintf("junk:%d:", i))
			if err != nil {
				require.ErrorContains(t, err, "OOM")
			}
		}
		since := time.Now()
		gone := 0
		for i, w := range held {
			l, err := fairlock.New(next, fmt.Sprintf("evicted:%d", i)).TryLock(t.Context())
			if errors.Is(err, lease.ErrBusy) || err != nil && strings.Contains(err.Error(), "OOM") {
				continue
			}
			require.NoError(t, err)
			gone++
			require.Greater(t, l.Token(), w.lease.Token(), "the second holder cannot be told from the first")
			w.told(t, promised(w.lease, lasts))
			_ = l.Release(context.Background()) // It may have been evicted in its turn.
		}
		t.Logf("%d of %d locks were evicted; all told within %v", gone, locks, time.Since(since))
		require.NotZero(t, gone, "nothing was evicted: the case shows nothing")
		r.server.Do("CONFIG", "SET", "maxmemory", "0")
		r.forgot = append(r.forgot, judge.Span{From: time.Duration(began), To: time.Duration(evidence.Now())})
		require.NoError(t, client.Shutdown(t.Context()))
	}
}

// promised is the end of a lease as its holder knows it, without the margin that it keeps for itself: no later
// than the server's. In µs.
func promised(l *lease.Lease, lasts time.Duration) int64 {
	return l.Deadline().Add(lasts / 100).UnixMicro()
}
