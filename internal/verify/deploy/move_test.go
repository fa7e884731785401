package deploy

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/evidence"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
)

// elsewhere is a master that has not the slot of a key.
func elsewhere(s *redistest.RedisCluster, key string) *redistest.Node {
	for _, n := range s.Masters() {
		if n != s.MasterOf(key) {
			return n
		}
	}
	return nil
}

// follows waits until a client's subscription is at the node that has got the slot of a lock.
func follows(t *testing.T, to *redistest.Node, name string, client *headwaiter.Client) {
	t.Helper()
	if redistest.Before7() { // Where channels are plain, all nodes pass on what one of them publishes.
		return
	}
	channel := "headwaiter:lock:{" + name + "}:wake:" + client.ID()
	kit.Eventually(t, "the subscription follows", func() bool {
		counts := to.Do("PUBSUB", "SHARDNUMSUB", channel).([]any)
		return counts[1].(int64) == 1
	})
}

func TestSlotsMoveUnderLoad(t *testing.T) {
	s := redistest.Cluster(t)
	for _, name := range []string{"a", "b"} { // So that a move takes its time.
		s.Do("EVAL", "for i = 1, 3000 do redis.call('SET', KEYS[1] .. ':' .. i, ARGV[1]) end", "1",
			"{"+name+"}", strings.Repeat("x", 100))
	}
	tr := load(t, func(int) rueidis.ClientOption { return s.Option() }, 4, []string{"a", "b"}, 0)
	tr.flows(t)
	worst := time.Duration(0)
	moves := rounds(6)
	for i := range moves {
		key := "headwaiter:lock:{" + []string{"a", "b"}[i%2] + "}"
		began := time.Now()
		s.MoveSlot(redistest.Slot(key), elsewhere(s, key))
		tr.flows(t)
		took := time.Since(began)
		evidence.Fault(t, "slot moved", 1)
		evidence.Recovered(t, "slot moved, until everybody has held again", took, kit.Patience)
		worst = max(worst, took)
	}
	t.Logf("longest move until everybody had held again: %v", worst)
	holds := tr.end(t)
	rising(t, holds)
	wrong := unexcused(holds, nil)
	evidence.Note(t, evidence.Line{Holds: len(holds), Wrong: wrong})
	require.Empty(t, wrong)
	require.Zero(t, lost(holds), "holds were lost")
	require.Greater(t, len(holds), 8*moves)
	t.Logf("%d holds in %d moves", len(holds), moves)
}

// While a slot is on its way its keys are at two nodes, and calls wait; what is held goes on.
func TestAHoldOutlastsTheMoveOfItsSlot(t *testing.T) {
	t.Parallel()
	s := redistest.Cluster(t, redistest.WithUser("headwaiter", "secret", rights(t, ofACluster())...))
	a, b := kit.Dial(t, s), kit.Dial(t, s)
	const name = "moving"
	key := "headwaiter:lock:{" + name + "}"
	held := fairlock.New(a, name, headwaiter.WithLease(2*time.Second))
	l, err := held.Lock(t.Context())
	require.NoError(t, err)
	waits := kit.Lock(t.Context(), fairlock.New(b, name).Lock)
	kit.Waiting(t, 1, held.Inspect)

	move := s.BeginMove(redistest.Slot(key), elsewhere(s, key))
	move.Send(key)
	late := kit.Lock(t.Context(), fairlock.New(a, name).Lock)
	renewals := a.Stats().Renewals
	kit.Eventually(t, "renewals over several leases", func() bool { return a.Stats().Renewals > renewals+9 })
	require.NoError(t, l.Context().Err(), "lost while its slot moved")
	require.False(t, waits.Returned())
	require.False(t, late.Returned())
	move.Finish()
	follows(t, move.To, name, b) // Who does not hear yet is passed over by a release, and late would hold.

	kit.Release(t, l)
	second := waits.Value(t)
	require.Greater(t, second.Token(), l.Token())
	kit.Release(t, second)
	kit.Release(t, late.Value(t))
}

// Without the right to ASKING the two nodes send a request to and fro. The hold ends in time, and the nodes stay idle.
func TestWhoMayNotFollowASlotIsNoFlood(t *testing.T) {
	t.Parallel()
	s := redistest.Cluster(t, redistest.WithUser("headwaiter", "secret", rights(t, ofACluster())...))
	l, err := fairlock.New(kit.Dial(t, s), "moving", headwaiter.WithLease(2*time.Second)).Lock(t.Context())
	require.NoError(t, err)
	key := "headwaiter:lock:{moving}"
	from, to := s.MasterOf(key), elsewhere(s, key)
	for _, n := range s.Nodes() {
		n.Do("ACL", "SETUSER", "headwaiter", "-asking")
	}
	move := s.BeginMove(redistest.Slot(key), to)
	move.Send(key)
	before := sent(t, from) + sent(t, to)
	require.ErrorIs(t, kit.Lost(t, l), lease.ErrExpired)
	require.Less(t, sent(t, from)+sent(t, to)-before, 2000)
	move.Finish()
}

// sent is how many requests a node has sent on, or refused.
func sent(t *testing.T, n *redistest.Node) (calls int) {
	t.Helper()
	stats := n.Do("INFO", "stats").(string)
	_, rest, found := strings.Cut(stats, "total_error_replies:")
	require.True(t, found)
	line, _, _ := strings.Cut(rest, "\r\n")
	calls, err := strconv.Atoi(line)
	require.NoError(t, err)
	return calls
}

// The node that a slot leaves ends the subscriptions: those who wait hear at the new one.
func TestWaitersHearWhereTheirSlotHasGone(t *testing.T) {
	t.Parallel()
	s := redistest.Cluster(t)
	a, b := kit.Dial(t, s), kit.Dial(t, s)
	const name = "hearing"
	key := "headwaiter:lock:{" + name + "}"
	m := fairlock.New(a, name, headwaiter.WithLease(time.Minute))
	for range 3 {
		l, err := m.Lock(t.Context())
		require.NoError(t, err)
		waits := kit.Lock(t.Context(), fairlock.New(b, name).Lock)
		kit.Waiting(t, 1, m.Inspect)
		to := elsewhere(s, key)
		s.MoveSlot(redistest.Slot(key), to)
		follows(t, to, name, b)
		messages := b.Stats().Messages
		kit.Release(t, l)
		kit.Release(t, waits.Value(t))
		require.Equal(t, messages+1, b.Stats().Messages, "it was not the message that woke")
	}
}
