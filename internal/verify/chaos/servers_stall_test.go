package chaos

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
)

// stall is longer than the leases of those that must not rely on an answer.
const stall = 2500 * time.Millisecond

func TestS9TheServerStallsBeyondALease(t *testing.T) {
	t.Parallel()
	for name, begins := range map[string]func(s *redistest.Server){
		"it sleeps": func(s *redistest.Server) {
			_, _ = s.Try("DEBUG", "SLEEP", "2.5")
		},
		"it is stopped": func(s *redistest.Server) {
			s.Stop()
			time.AfterFunc(stall, s.Cont)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := begin(t, "S9", func(o *options) {
				o.plan.Lease, o.outcomes = time.Second, []string{"expired", "forgotten", "unconfirmed"}
			})
			for range either(1, 5) {
				m := fairlock.New(r.dial(), "held", headwaiter.WithLease(time.Second))
				w := watched(granted(t, m))
				over := make(chan struct{})
				go func() {
					defer close(over)
					begins(r.server)
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
			r.finish()
		})
	}
}

func TestS10TheServerIsBusyWithAScript(t *testing.T) {
	t.Parallel()
	r := begin(t, "S10", func(o *options) {
		o.server = []redistest.Option{redistest.WithArgs("--lua-time-limit", "200")}
		o.outcomes = []string{"expired", "forgotten", "unconfirmed"}
	})
	m := fairlock.New(r.dial(), "busy")
	for range either(1, 5) {
		go func() { _, _ = r.server.Try("EVAL", "while true do end", "0") }()
		kit.Eventually(t, "the server to say that it is busy", func() bool {
			_, err := r.server.Try("PING")
			return err != nil && strings.HasPrefix(err.Error(), "BUSY")
		})
		err := lockFor(t, m, 500*time.Millisecond)
		require.NotErrorIs(t, err, lease.ErrBusy)
		var wait *lease.WaitError
		require.ErrorAs(t, err, &wait)
		require.ErrorContains(t, wait.Last, "BUSY")
		c := kit.Lock(t.Context(), m.Lock)
		r.server.Do("SCRIPT", "KILL")
		kit.Release(t, c.Value(t))
		r.everybody()
	}
	r.finish()
}

func TestS10AScriptThatHasWrittenCannotBeKilled(t *testing.T) {
	t.Parallel()
	r := begin(t, "S10", func(o *options) {
		o.server = []redistest.Option{redistest.WithArgs("--lua-time-limit", "200")}
		o.twice, o.outcomes = true, []string{"expired", "forgotten", "unconfirmed"}
	})
	m := fairlock.New(r.dial(), "busy")
	go func() { _, _ = r.server.Try("EVAL", "redis.call('SET', 'x', 1) while true do end", "0") }()
	kit.Eventually(t, "the server to say that it cannot be helped", func() bool {
		_, err := r.server.Try("SCRIPT", "KILL")
		return err != nil && strings.HasPrefix(err.Error(), "UNKILLABLE")
	})
	c := kit.Lock(t.Context(), m.Lock)
	r.forgets(func() { r.server.Restart() }) // The server has to be.
	kit.Release(t, c.Value(t))
	r.everybody()
	r.finish()
}

func TestS14TheServerLoads(t *testing.T) {
	t.Parallel()
	args, size := []string{"--key-load-delay", "500"}, "100"
	if redistest.Before7() { // It answers once in 2 MB.
		args, size = append(args, "--rdbcompression", "no"), "4000"
	} else {
		args = append(args, "--loading-process-events-interval-bytes", "1024")
	}
	r := begin(t, "S14", func(o *options) {
		o.server = []redistest.Option{redistest.WithArgs(args...)}
		o.twice, o.outcomes = true, []string{"expired", "forgotten", "unconfirmed"}
	})
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
	r.everybody()
	r.finish()
}

func TestS13TheServerCannotSave(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := begin(t, "S13", func(o *options) {
		o.server = []redistest.Option{redistest.WithArgs("--dir", dir, "--save", "3600", "100000000")}
		o.refusals, o.outcomes = []string{"MISCONF"}, []string{"unconfirmed", "expired"}
	})
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
func TestS15TheMasterIsDemoted(t *testing.T) {
	t.Parallel()
	r := begin(t, "S15", func(o *options) {
		o.refusals, o.outcomes = []string{"READONLY"}, []string{"unconfirmed", "expired"}
	})
	m, other := fairlock.New(r.dial(), "demoted", headwaiter.WithLease(2*time.Second)), fairlock.New(r.dial(), "demoted")
	unheld := fairlock.New(r.dial(), "demoted:free")
	w := watched(granted(t, m))
	r.server.Do("REPLICAOF", "127.0.0.1", "1")
	err := lockFor(t, other, 500*time.Millisecond)
	require.ErrorContains(t, err, "connect to the master")
	require.ErrorContains(t, err, "READONLY")
	_, err = unheld.TryLock(t.Context())
	require.ErrorContains(t, err, "READONLY")
	require.NotErrorIs(t, err, lease.ErrBusy)
	next := kit.Lock(t.Context(), other.Lock)
	require.ErrorIs(t, w.told(t, r.until("demoted")), lease.ErrExpired)
	require.False(t, next.Returned())
	r.server.Do("REPLICAOF", "NO", "ONE")
	kit.Release(t, next.Value(t))
	r.everybody()
	r.finish()
}

func TestS16TheServerHasTooFewReplicas(t *testing.T) {
	t.Parallel()
	r := begin(t, "S16", func(o *options) {
		o.refusals, o.outcomes = []string{"NOREPLICAS"}, []string{"unconfirmed", "expired"}
	})
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
		since := time.Now()
		_, err := other.Lock(t.Context())
		require.ErrorContains(t, err, code)
		require.NotErrorIs(t, err, lease.ErrBusy)
		_, err = unheld.TryLock(t.Context())
		require.ErrorContains(t, err, code)
		err = l.Release(t.Context())
		require.ErrorIs(t, err, lease.ErrUnconfirmed)
		require.ErrorContains(t, err, code)
		require.Less(t, time.Since(since), 2*time.Second, "refused, and tried again in vain")
		require.ErrorIs(t, w.told(t, r.until("refused:renewed")), lease.ErrExpired)
		ends()
		l = granted(t, other) // At the end of its lease at the latest.
		kit.Release(t, l)
		r.everybody()
	}
	kit.Release(t, granted(t, renewed)) // Whose holder could not give it back.
	r.finish()
}

// A server whose master is gone and that does not serve what is stale is waited out.
func TestS14AReplicaHasLostItsMaster(t *testing.T) {
	t.Parallel()
	r := begin(t, "S14", func(o *options) {
		o.outcomes, o.refusals = []string{"expired", "forgotten", "unconfirmed"}, []string{"READONLY"}
	})
	m := fairlock.New(r.dial(), "masterdown")
	r.server.Do("CONFIG", "SET", "replica-serve-stale-data", "no")
	r.server.Do("REPLICAOF", "127.0.0.1", "1")
	_, err := r.server.Try("GET", "x")
	require.ErrorContains(t, err, "MASTERDOWN")
	err = lockFor(t, m, 2*time.Second)
	require.ErrorContains(t, err, "MASTERDOWN")
	c := kit.Lock(t.Context(), m.Lock)
	kit.Eventually(t, "further tries", func() bool { return infoField(t, r.server.Text("INFO", "stats"), "total_error_replies") > 20 })
	require.False(t, c.Returned())
	r.server.Do("REPLICAOF", "NO", "ONE")
	kit.Release(t, c.Value(t))
	r.everybody()
	r.finish()
}
