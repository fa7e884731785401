package doctor

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/waitqueue"
)

func TestReplicasAreAskedToo(t *testing.T) {
	t.Parallel()
	s := redistest.Replicated(t, 2)
	r := reported(t, s.Master())
	require.Len(t, r.Servers, 3)
	require.Equal(t, s.Master().Addr(), r.Servers[0].Address)
	require.Len(t, r.Servers[0].Replicas, 2)
	for _, at := range r.Servers[1:] {
		assert.Equal(t, known("replica"), at.Role)
		assert.Equal(t, known(s.Master().Addr()), at.Master)
		assert.Equal(t, known(true), at.LinkUp)
		assert.True(t, at.Clock.Known && at.RoundTrip.Known)
		assert.Equal(t, "yes", at.Settings["replica-read-only"])
	}
	require.Equal(t, map[string]Severity{"WithReplicas": Caution, "appendonly": Caution}, about(r))

	writable, gone := s.Replicas()[0], s.Replicas()[1]
	writable.Do("CONFIG", "SET", "replica-read-only", "no")
	gone.Stop() // Its master still counts it.
	r = reported(t, s.Master())
	gone.Cont()
	require.Equal(t, Caution, about(r)["replica-read-only"])
	require.Equal(t, Caution, about(r)["reachable"])
	i := slices.IndexFunc(r.Servers, func(s ServerReport) bool { return s.Address == gone.Addr() })
	require.False(t, r.Servers[i].Reachable)
	require.Contains(t, strings.Join(r.Servers[i].Notes, ""), "connection: ")

	// And as if such a replica were the server of the locks.
	r = reported(t, writable)
	require.Equal(t, Danger, about(r)["replica-read-only"])
	require.Contains(t, r.Warnings[0].Remedy, s.Master().Addr())
	s.Cut(s.Replicas()[1])
	r, err := Examine(t.Context(), headwaiter.Options{Redis: s.Replicas()[1].Option()})
	require.ErrorIs(t, err, lease.ErrUnusable)
	require.ErrorContains(t, err, "this is a replica")
	require.Equal(t, Danger, about(r)["address"])
	require.Equal(t, Caution, about(r)["master_link_status"])
}

func TestTheConnectionsOfACallerAreUsedForNothingElse(t *testing.T) {
	t.Parallel()
	s := redistest.Replicated(t, 1)
	rc, err := rueidis.NewClient(s.Option())
	require.NoError(t, err)
	defer rc.Close()
	c, err := headwaiter.New(rc, headwaiter.Options{})
	require.NoError(t, err)
	defer c.Close(context.Background())
	r, err := Diagnose(t.Context(), c)
	require.NoError(t, err)
	require.Len(t, r.Servers, 1)
	require.Len(t, r.Servers[0].Replicas, 1)
	require.Equal(t, []string{"replicas: " + errNotOwn.Error()}, r.Servers[0].Notes)
	require.False(t, r.TLS.Known)
	require.Equal(t, known("default"), r.User)
	require.Equal(t, known(true), r.Open)
}

func TestATunnelToTheMasterIsNotTakenForAReplica(t *testing.T) {
	t.Parallel()
	s := redistest.Replicated(t, 1)
	o := s.Option()
	o.DialCtxFn = func(ctx context.Context, _ string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
		return d.DialContext(ctx, "tcp", s.Master().Addr())
	}
	c, err := headwaiter.Dial(headwaiter.Options{Redis: o})
	require.NoError(t, err)
	defer c.Close(context.Background())
	r, err := Diagnose(t.Context(), c)
	require.NoError(t, err)
	require.Len(t, r.Servers, 2)
	require.False(t, r.Servers[1].Reachable)
	require.Equal(t, s.Replicas()[0].Addr(), r.Servers[1].Address)
	require.Contains(t, r.Servers[1].Notes[0], "leads to the master")
}

func TestAReportThatWasCutShortSaysSoAndHasWhatWasFound(t *testing.T) {
	t.Parallel()
	s := redistest.Replicated(t, 1)
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	o := s.Option()
	o.DialCtxFn = func(ctx context.Context, address string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
		if address != s.Master().Addr() {
			cancel(enough)
		}
		return d.DialContext(ctx, "tcp", address)
	}
	c, err := headwaiter.Dial(headwaiter.Options{Redis: o})
	require.NoError(t, err)
	defer c.Close(context.Background())
	r, err := Diagnose(ctx, c)
	require.ErrorIs(t, err, enough)
	require.ErrorIs(t, err, context.Canceled)
	require.True(t, r.Servers[0].Reachable)
	require.Len(t, r.Servers, 2)
}

func TestWhatTheNodesOfAClusterSayOfOthersIsAdded(t *testing.T) {
	nodes := parseClusterNodes("1a 10.0.0.1:6379@1 myself,master - 0 0 1 connected 0-16383\n" +
		"2b 10.0.0.2:6379@1 slave,fail 1a 0 0 1 disconnected\n" +
		"3c 10.0.0.3:6379@1 slave 1a 0 0 1 connected\n" +
		"4d 10.0.0.4:6379@1,four.internal slave 1a 0 0 1 connected\n" +
		"5e 10.0.0.5:6379@1 master - 0 0 1 connected\n" +
		"6f 10.0.0.6:6379@1 master,fail - 0 0 1 disconnected 16383\n")
	listed := []ServerReport{newServerReport("10.0.0.1:6379"), newServerReport("four.internal:6379")}
	listed[0].Reachable, listed[0].Role = true, known("master")
	var found []string
	for _, s := range askUnlisted(t.Context(), waitqueue.Wiring{}, listed, nodes) {
		found = append(found, strings.Join(append([]string{s.Address, s.Role.String(), s.Master.String()}, s.Notes...), " "))
	}
	require.Equal(t, []string{
		"10.0.0.1:6379 master unknown",
		"four.internal:6379 replica 10.0.0.1:6379",
		"10.0.0.2:6379 replica 10.0.0.1:6379 connection: not tried, because the cluster says that it has failed",
		"10.0.0.3:6379 replica 10.0.0.1:6379 connection: " + errNotOwn.Error(),
		"10.0.0.6:6379 master unknown connection: not tried, because the cluster says that it has failed",
	}, found)
}

// When a failover is over the old master has no slots any more: nobody waits for it, however long it stays away.
func TestAnOldMasterOfAClusterIsNoDanger(t *testing.T) {
	said := func(slots string, listed ...ServerReport) []string {
		nodes := parseClusterNodes("1a 10.0.0.1:6379@1 myself,master - 0 0 2 connected 0-16383\n" +
			"6f 10.0.0.6:6379@1 master,fail - 0 0 1 disconnected" + slots + "\n")
		r := Report{Mode: "cluster", Servers: askUnlisted(t.Context(), waitqueue.Wiring{}, listed, nodes)}
		var found []string
		for _, w := range judge(&r) {
			if w.Setting == "reachable" {
				found = append(found, string(w.Severity)+" of "+strings.Join(w.Servers, ", ")+": "+w.Why)
			}
		}
		return found
	}
	const old = "caution of 10.0.0.6:6379: It is an old master: its slots have another one now, and there is a replica less."
	here := faultlessServer("10.0.0.1:6379")
	require.Equal(t, []string{old}, said("", here))
	require.Equal(t, []string{old}, said("", here, newServerReport("10.0.0.6:6379")), "a client that has not heard yet")
	require.Equal(t, []string{"danger of 10.0.0.6:6379: Nobody gets a lock there, and holders lose theirs."}, said(" 16383", here))
}

func TestClocksThatAreApartAreFound(t *testing.T) {
	t.Parallel()
	clock := redistest.NewClock(t)
	master := redistest.Start(t)
	replica := redistest.Start(t, redistest.WithClock(clock))
	_, port, err := net.SplitHostPort(master.Addr())
	require.NoError(t, err)
	replica.Do("REPLICAOF", "127.0.0.1", port)
	require.Eventually(t, func() bool { return strings.Contains(master.Text("INFO", "replication"), "slave0:") }, time.Minute, time.Millisecond)
	require.NotContains(t, about(reported(t, master)), "clock")
	clock.Shift(-3 * time.Second)
	r := reported(t, master)
	require.Equal(t, Caution, about(r)["clock"])
	require.InDelta(t, -3, r.Servers[1].Clock.Value.High.Seconds(), 0.1)
	i := slices.IndexFunc(r.Warnings, func(w Warning) bool { return w.Setting == "clock" })
	require.Contains(t, r.Warnings[i].Value, "ahead of that of "+replica.Addr())
}

func TestScriptsThatRanAtTheSameTimeOverlap(t *testing.T) {
	t.Parallel()
	some := []span{{10, 20}, {30, 40}}
	require.True(t, overlap(some, []span{{0, 5}, {39, 50}}))
	require.True(t, overlap(some, []span{{12, 13}}))
	require.False(t, overlap(some, []span{{20, 30}, {40, 41}}))
	require.False(t, overlap([]span{{15, 15}}, []span{{15, 15}}), "time that stands still in a script shows nothing")
}

// A Redis runs one script after the other, and the spans of a real one are as long as they were asked for.
func TestARedisRunsOneScriptAfterTheOther(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c, err := headwaiter.Dial(headwaiter.Options{Redis: s.Option()})
	require.NoError(t, err)
	r, err := Diagnose(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, known(false), r.Aside)
	require.NoError(t, c.Close(t.Context()))
}
