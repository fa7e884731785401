package chaos

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/inspect"
	"github.com/headwaiter/headwaiter/internal/testenv/evidence"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// connectionsOf are those that a client of this name has at a server: all of them, and those that subscribe.
func connectionsOf(n *redistest.Node, name string) (all, subscribe int) {
	for line := range strings.Lines(n.Text("CLIENT", "LIST")) {
		if strings.Contains(line, " name="+name+" ") {
			all++
			if strings.Contains(line, " ssub=") && !strings.Contains(line, " ssub=0 ") {
				subscribe++
			}
		}
	}
	return all, subscribe
}

// However many locks a client holds and waits for, it has three connections to each master: one for commands, one for
// renewals, one that subscribes.
func aThousandLocksNeedThreeConnectionsANode(t *testing.T) {
	const locks = 1000
	s := redistest.Cluster(t)
	holder := kit.Dial(t, s)
	waiter := kit.Dial(t, s, func(o *headwaiter.Options) { o.Redis.ClientName = "waiter" })
	var held [locks]*lease.Lease
	var waits [locks]*kit.Call[*lease.Lease]
	for i := range locks {
		name := fmt.Sprint("lock:", i)
		l := kit.Got(fairlock.New(holder, name, headwaiter.WithLease(time.Minute)).Lock(t.Context()))(t)
		held[i] = l
		waits[i] = kit.Lock(t.Context(), fairlock.New(waiter, name, headwaiter.WithLease(10*time.Second)).Lock)
	}
	kit.Waiting(t, 1, fairlock.New(holder, fmt.Sprint("lock:", locks-1)).Inspect)
	kit.Eventually(t, "all subscriptions", func() bool { return waiter.Stats().Subscribes >= locks })
	count := func() {
		t.Helper()
		for _, n := range s.Masters() {
			all, subscribe := connectionsOf(n, "waiter")
			require.LessOrEqual(t, all, 3)
			require.True(t, subscribe == 1 || redistest.Before7(), "it has names there, and nobody listens") // Plain channels are heard at any node.
		}
	}
	count()
	for i := range locks {
		held[i] = kit.Next(t, held[i], waits[i])
	}
	// As many as there are holds: each master has had its part of them.
	kit.Eventually(t, "renewals of all", func() bool { return waiter.Stats().Renewals >= locks })
	count()
	for _, n := range s.Nodes() {
		all, _ := connectionsOf(n, "waiter")
		require.LessOrEqual(t, all, 3, "connections to a replica, which has nothing to do but to be asked for the slots")
	}
	for _, l := range held {
		kit.Release(t, l)
	}
}

// listed is what a client finds, by name.
func listed(t *testing.T, c *headwaiter.Client, pattern string) (names []string) {
	t.Helper()
	for n, err := range inspect.List(t.Context(), c, pattern) {
		require.NoError(t, err)
		require.NoError(t, n.Err)
		require.True(t, n.Info.Held)
		names = append(names, n.Name)
	}
	slices.Sort(names)
	return names
}

// All masters are walked over, and what is found at two of them, as its slot has moved, is told once.
func aListOfACluster(t *testing.T) {
	s := redistest.Cluster(t)
	c := kit.Dial(t, s)
	var names []string
	for i := range 60 {
		names = append(names, fmt.Sprint("name", i))
		// No renewal is to find out before the list does that a node has moved.
		require.NoError(t, kit.Err(fairlock.New(c, names[i], headwaiter.WithLease(time.Hour)).Lock(t.Context())))
	}
	slices.Sort(names)
	require.Equal(t, names, listed(t, c, "*"))
	var found []string
	for n, err := range inspect.List(t.Context(), c, "*") {
		require.NoError(t, err)
		if len(found) == 0 { // It moves to the master that comes last, and is met there again.
			s.MoveSlot(redistest.Slot(lua.Fairlock.Keys("headwaiter", n.Name).Lock), s.Master(lua.Slots-1))
		}
		found = append(found, n.Name)
	}
	slices.Sort(found)
	require.Equal(t, names, found)
	require.Equal(t, names, listed(t, c, "*"))
	require.Equal(t, []string{"name7"}, listed(t, c, "name7"))
	s.Failover(s.Masters()[0])
	require.Equal(t, names, listed(t, c, "*"))
}

func aDeadlockInACluster(t *testing.T) {
	s := redistest.Cluster(t)
	names := []string{"a", "b", "c"} // They are at three masters.
	clients := []*headwaiter.Client{kit.Dial(t, s), kit.Dial(t, s), kit.Dial(t, s)}
	for i, c := range clients {
		require.NoError(t, kit.Err(fairlock.New(c, names[i]).Lock(t.Context())))
	}
	for i, c := range clients {
		m := fairlock.New(c, names[(i+1)%3])
		kit.Lock(t.Context(), m.Lock)
		kit.Waiting(t, 1, m.Inspect)
	}
	g := kit.Got(inspect.Deadlocks(t.Context(), kit.Dial(t, s), 0))(t)
	require.Len(t, g.Cycles, 1)
	require.Len(t, g.Cycles[0], 3)
}

func eachNodeIsToldOf(t *testing.T) {
	s, r := redistest.Cluster(t), &kit.Requests{}
	c := kit.Dial(t, s, kit.Observed(r))
	for i := range 64 {
		kit.Release(t, kit.Lock(t.Context(), fairlock.New(c, fmt.Sprint("name ", i)).Lock).Value(t))
	}
	up, want := map[string]bool{}, map[string]bool{}
	for _, made := range r.Made() {
		up[made.Server] = made.Err == nil
	}
	for _, n := range s.Masters() {
		want[n.Addr()] = true
	}
	require.Equal(t, want, up)
}

// hearsOfForce waits until a client hears on its own channel, which must not depend on the next renewal.
func hearsOfForce(t *testing.T, option rueidis.ClientOption, c *headwaiter.Client) {
	t.Helper()
	option.DisableCache = true
	other := kit.Got(rueidis.NewClient(option))(t)
	defer other.Close()
	heard := c.Stats().Messages
	kit.Eventually(t, "the client to hear on its own channel", func() bool {
		cmd := other.B().Publish().Channel(lua.ClientChannel("headwaiter", c.ID())).Message("F x x").Build()
		_ = other.Do(context.Background(), cmd).Error() // After a failover a node may be gone.
		return c.Stats().Messages > heard
	})
}

// Nobody waits, and the next renewal is further away than the test's patience.
func forceIsToldAtOnce(t *testing.T) {
	for _, d := range redistest.Deployments() {
		kit.Parallel(t, d.Name, func(t *testing.T) {
			s := d.Start(t)
			c := kit.Dial(t, s)
			held := kit.Got(fairlock.New(c, "forced", headwaiter.WithLease(time.Hour)).Lock(t.Context()))(t)
			hearsOfForce(t, s.Option(), c)
			require.NoError(t, kit.Err(fairlock.New(kit.Dial(t, s), "forced").ForceRelease(t.Context(), held.Token())))
			require.ErrorIs(t, kit.Lost(t, held), lease.ErrForced)
		})
	}
}

// The channel is heard at the node that has the name of a hold: where that goes, it goes too.
func forceIsHeardBehindAFailover(t *testing.T) {
	s := redistest.Cluster(t)
	c := kit.Dial(t, s)
	held := kit.Got(fairlock.New(c, "forced", headwaiter.WithLease(10*time.Second)).Lock(t.Context()))(t)
	hearsOfForce(t, s.Option(), c)
	old := s.MasterOf("headwaiter:lock:{forced}")
	s.Failover(old)
	old.Kill()
	hearsOfForce(t, s.Option(), c)
	require.NoError(t, held.Context().Err())
	kit.Release(t, held)
}

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
		return to.Do("PUBSUB", "SHARDNUMSUB", channel).([]any)[1].(int64) == 1
	})
}

func slotsMoveUnderLoad(t *testing.T) {
	s := redistest.Cluster(t)
	for _, name := range []string{"a", "b"} { // So that a move takes its time.
		s.Do("EVAL", "for i = 1, 3000 do redis.call('SET', KEYS[1] .. ':' .. i, ARGV[1]) end", "1",
			"{"+name+"}", strings.Repeat("x", 100))
	}
	tr := newTraffic(t, func(int) rueidis.ClientOption { return s.Option() }, 4, []string{"a", "b"}, 0, time.Minute) // No lease ends meanwhile.
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
	for _, s := range holds {
		require.NoError(t, s.lost, "a hold was lost: %v", s)
	}
	require.Greater(t, len(holds), 8*moves)
	t.Logf("%d holds in %d moves", len(holds), moves)
}

// While a slot is on its way its keys are at two nodes, and calls wait; what is held goes on.
func aHoldOutlastsTheMoveOfItsSlot(t *testing.T) {
	s := redistest.Cluster(t, redistest.WithUser("headwaiter", "secret", rights(t, ofACluster())...))
	a, b := kit.Dial(t, s), kit.Dial(t, s)
	const name = "moving"
	key := "headwaiter:lock:{" + name + "}"
	held := fairlock.New(a, name, headwaiter.WithLease(3*time.Second))
	l := kit.Got(held.Lock(t.Context()))(t)
	waits := kit.Joins(t, 1, fairlock.New(b, name).Lock, held.Inspect)

	move := s.BeginMove(redistest.Slot(key), elsewhere(s, key))
	move.Send(key)
	late := kit.Lock(t.Context(), fairlock.New(a, name).Lock)
	renewals := a.Stats().Renewals
	kit.Eventually(t, "renewals over several leases", func() bool { return a.Stats().Renewals > renewals+6 })
	require.NoError(t, l.Context().Err(), "lost while its slot moved")
	require.False(t, waits.Returned())
	require.False(t, late.Returned())
	move.Finish()
	follows(t, move.To, name, b) // Who does not hear yet is passed over by a release, and late would hold.

	second := kit.Next(t, l, waits)
	kit.PassOn(t, second, late)
}

// Without the right to ASKING the two nodes send a request to and fro. The hold ends in time, and the nodes stay idle.
func whoMayNotFollowASlotIsNoFlood(t *testing.T) {
	s := redistest.Cluster(t, redistest.WithUser("headwaiter", "secret", rights(t, ofACluster())...))
	l := kit.Got(fairlock.New(kit.Dial(t, s), "moving", headwaiter.WithLease(2*time.Second)).Lock(t.Context()))(t)
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
	calls = kit.Got(strconv.Atoi(line))(t)
	return calls
}

// The node that a slot leaves ends the subscriptions: waiters hear at the new one.
func waitersHearWhereTheirSlotHasGone(t *testing.T) {
	s := redistest.Cluster(t)
	a, b := kit.Dial(t, s), kit.Dial(t, s)
	const name = "hearing"
	key := "headwaiter:lock:{" + name + "}"
	m := fairlock.New(a, name, headwaiter.WithLease(time.Minute))
	for range 3 {
		l := kit.Got(m.Lock(t.Context()))(t)
		waits := kit.Joins(t, 1, fairlock.New(b, name).Lock, m.Inspect)
		to := elsewhere(s, key)
		s.MoveSlot(redistest.Slot(key), to)
		follows(t, to, name, b)
		messages := b.Stats().Messages
		kit.PassOn(t, l, waits)
		// A check on its way may bring the grant first: a plain channel is heard by way of other nodes.
		kit.Eventually(t, "the message is heard", func() bool { return b.Stats().Messages == messages+1 })
	}
}
