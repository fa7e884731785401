package chaos

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
)

// Two holders are possible after a failover, and documented. What must hold: the second one's token is higher,
// and the first one is told before its lease ends by its own clock.
func TestS17AReplicaIsPromotedThatDoesNotKnowTheLock(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t)
	s := faults.NewProxyOf(t, master.Addr(), faults.Raw)
	r := begin(t, "S17", func(o *options) {
		o.on, o.plan.Addrs = master, []string{s.Addr()}
		o.twice, o.outcomes = true, []string{"forgotten", "expired", "unconfirmed"}
		o.refusals = []string{"READONLY", "LOADING"}
	})
	through := func(o *headwaiter.Options) { o.Redis.InitAddress = []string{s.Addr()} }
	const lasts = 3 * time.Second
	m, other := fairlock.New(r.dial(through), "promoted", headwaiter.WithLease(lasts)), fairlock.New(r.dial(through), "promoted")
	_, port, err := net.SplitHostPort(master.Addr())
	require.NoError(t, err)
	replica := redistest.Start(t, redistest.WithArgs("--replicaof", "127.0.0.1", port))
	kit.Eventually(t, "the replica to follow", func() bool {
		return strings.Contains(replica.Text("INFO", "replication"), "master_link_status:up")
	})
	var w *watch
	var next *kit.Call[*lease.Lease]
	r.forgets(func() {
		// The cut. What is written from now on is not replicated.
		replica.Do("REPLICAOF", "127.0.0.1", "1")
		w, next = watched(granted(t, m)), queued(t, other, 1)
		require.Zero(t, replica.Int("EXISTS", keyOf("promoted")), "the lock is on the replica: the case shows nothing")
		master.Kill()
		replica.Do("REPLICAOF", "NO", "ONE")
		s.Lead(replica.Addr())
	})
	r.server = replica
	since := time.Now()
	l := next.Value(t)
	require.Less(t, time.Since(since), kit.Patience)
	require.Greater(t, l.Token(), w.lease.Token())
	require.ErrorIs(t, w.told(t, promised(w.lease, lasts)), lease.ErrLost)
	require.NoError(t, l.Context().Err())
	require.ErrorIs(t, w.lease.Release(t.Context()), lease.ErrLost)
	require.NoError(t, l.Context().Err())
	kit.Release(t, l)
	r.everybody()
	r.finish()
}
