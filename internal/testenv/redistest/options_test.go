package redistest

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/must"
)

// connect makes a client, perhaps with changes to the option that leads to the server.
func connect(t *testing.T, o rueidis.ClientOption, changes ...func(*rueidis.ClientOption)) (rueidis.Client, error) {
	o.PipelineMultiplex = -1
	o.DisableRetry = true
	for _, change := range changes {
		change(&o)
	}
	client, err := rueidis.NewClient(o)
	if err == nil {
		t.Cleanup(client.Close)
	}
	return client, err
}

// mustConnect is connect for a server that lets the client in.
func mustConnect(t *testing.T, o rueidis.ClientOption, changes ...func(*rueidis.ClientOption)) rueidis.Client {
	return must.Got(connect(t, o, changes...))(t)
}

func TestAServerCanAskClientsForACertificate(t *testing.T) {
	t.Parallel()
	s := Start(t, WithTLS(NewCertificates(t)), WithClientCertificates())
	require.NoError(t, run(t, mustConnect(t, s.Option()), "PING").Error())
	require.Error(t, must.Err(connect(t, s.Option(), func(o *rueidis.ClientOption) { o.TLSConfig.Certificates = nil })))
}

func TestASocketIsTheOnlyWayToAServerThatListensOnOne(t *testing.T) {
	// As long as on macOS.
	folder := must.Got(os.MkdirTemp("", strings.Repeat("x", 40)))(t)
	t.Cleanup(func() { os.RemoveAll(folder) })
	t.Setenv("TMPDIR", folder)
	s := Start(t, WithUnixSocket())
	require.NoError(t, run(t, mustConnect(t, s.Option()), "SET", "a", "1").Error())
	require.Equal(t, "1", s.Text("GET", "a"))
	require.Equal(t, "0", s.List("CONFIG", "GET", "port")[1])
	s.Restart()
	require.Empty(t, s.Keys())
}

func TestAServerWithoutRESP3IsUsable(t *testing.T) {
	t.Parallel()
	s := Start(t, WithoutRESP3())
	client := mustConnect(t, s.Option())
	require.ErrorContains(t, run(t, client, "HELLO", "2").Error(), "unknown command")
	require.False(t, speaksRESP3(t, client))
	require.True(t, speaksRESP3(t, mustConnect(t, Start(t).Option())))
}

// speaksRESP3 tells by a reply that is a map there, and a list in RESP2.
func speaksRESP3(t *testing.T, client rueidis.Client) bool {
	require.NoError(t, run(t, client, "HSET", "{h}", "field", "1").Error())
	reply := must.Got(run(t, client, "HGETALL", "{h}").ToMessage())(t)
	return reply.IsMap()
}

func TestOnlyAServerThatCanAnswerRuns(t *testing.T) {
	t.Parallel()
	s := Start(t)
	require.True(t, s.Running())
	s.Stop()
	require.False(t, s.Running())
	s.Cont()
	require.True(t, s.Running())
	require.Error(t, must.Err(s.Try("SHUTDOWN", "NOSAVE")))
	require.Eventually(t, func() bool { return !s.Running() }, settleLimit, settleLook, "it ended by itself")
	s.Restart()
	require.True(t, s.Running())
	s.Stop()
	s.Kill()
	require.False(t, s.Running())
	s.Restart()
	require.True(t, s.Running(), "a new process is not stopped")
}

func TestSeveralServersFailTogether(t *testing.T) {
	t.Parallel()
	good, bad := newServer(t), newServer(t, WithArgs("--no-such-argument", "1"))
	require.ErrorContains(t, all([]*Server{good, bad}, (*Server).start), "no-such-argument")
	require.True(t, good.Running())
	require.False(t, bad.Running())
}

func TestArgumentsInAFileAreThoseOfTheCommandLine(t *testing.T) {
	t.Parallel()
	odd := `a "quoted" \ one`
	require.Equal(t, "\nport \"1\"\nrequirepass \"a \\\"quoted\\\" \\\\ one\"\n", lines([]string{"--port", "1", "--requirepass", odd}))
	s := Start(t, func(s *Server) { s.file = true }, WithPassword(odd), WithUser("bob", "x", "~*", "+get"))
	require.Equal(t, odd, s.List("CONFIG", "GET", "requirepass")[1])
	s.Do("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	s.Do("CONFIG", "REWRITE")
	s.Restart()
	require.Equal(t, "allkeys-lru", s.List("CONFIG", "GET", "maxmemory-policy")[1], "what was rewritten stays")
	require.Contains(t, s.List("ACL", "USERS"), "bob")
}

// subscribe returns a channel with what the client hears, and returns when it listens.
func subscribe(t *testing.T, client rueidis.Client, command rueidis.Completed) <-chan string {
	ctx, cancel := context.WithCancel(t.Context())
	confirmed, done, heard := make(chan struct{}, 1), make(chan struct{}), make(chan string, 16)
	ctx = rueidis.WithOnSubscriptionHook(ctx, func(rueidis.PubSubSubscription) { confirmed <- struct{}{} })
	go func() {
		defer close(done)
		_ = client.Receive(ctx, command, func(m rueidis.PubSubMessage) { heard <- m.Message })
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	<-confirmed
	return heard
}

func TestAClockOfItsOwnIsTheServersAlone(t *testing.T) {
	t.Parallel()
	c := NewClock(t)
	s := Start(t, WithClock(c))
	ahead := func() time.Duration {
		sec := must.Got(strconv.ParseInt(s.List("TIME")[0], 10, 64))(t)
		return time.Duration(sec-time.Now().Unix()) * time.Second
	}
	require.InDelta(t, 0, ahead(), float64(2*time.Second))
	s.Do("SET", "short", "x", "PX", "10000")
	c.Shift(-time.Hour)
	require.InDelta(t, -time.Hour, ahead(), float64(2*time.Second))
	require.Greater(t, s.Int("PTTL", "short"), int64(3_500_000))
	c.Shift(time.Minute)
	require.InDelta(t, time.Minute, ahead(), float64(2*time.Second))
	require.Nil(t, s.Do("GET", "short"))
}

// The check value is the one in the Redis cluster specification; keys and slots are from its documentation.
func TestSlotsAreThoseOfTheSpecification(t *testing.T) {
	t.Parallel()
	require.Equal(t, uint16(12739), crc16("123456789"))
	require.Equal(t, 12182, Slot("foo"))
	require.Equal(t, 5061, Slot("bar"))
	require.Zero(t, Slot(""))
}

func TestOnlyTheFirstTagCounts(t *testing.T) {
	t.Parallel()
	require.Equal(t, Slot("user1000"), Slot("{user1000}.following"))
	require.Equal(t, Slot("user1000"), Slot("a{user1000}b{c}"))
	require.Equal(t, Slot("{bar"), Slot("foo{{bar}}zap"))
	for _, whole := range []string{"foo{}{bar}", "{foo", "foo}{", "}{}"} {
		require.Equal(t, int(crc16(whole)%slots), Slot(whole))
	}
}

func TestAReplicaThatIsCutOffMissesWhatIsWritten(t *testing.T) {
	t.Parallel()
	r := Replicated(t, 2)
	replica := r.Replicas()[0]
	r.Do("SET", "before", "1")
	r.reaches(t, 2, "SET", "before", "1")

	other := r.Replicas()[1]
	other.Restart()
	require.Empty(t, other.Keys(), "it follows nobody yet")
	r.Rejoin(other)
	require.Equal(t, []string{"before"}, other.Keys())

	r.Cut(replica)
	r.reaches(t, 1, "SET", "after", "1")
	require.Equal(t, []string{"before"}, replica.Keys())
	require.ErrorContains(t, must.Err(replica.Try("SET", "x", "1")), "READONLY")
}

// reaches runs a command on the master and waits until n of two replicas have acknowledged it. They are given
// the time that they need, and those that cannot a moment.
func (r *RedisReplicas) reaches(t *testing.T, n int, args ...string) {
	t.Helper()
	option := r.Option()
	option.PipelineMultiplex = -1 // WAIT is about what its connection has written.
	option.ConnWriteTimeout = time.Minute
	client := mustConnect(t, option)
	require.NoError(t, run(t, client, args...).Error())
	wait := func(n int, ms string) int64 {
		return must.Got(run(t, client, "WAIT", strconv.Itoa(n), ms).AsInt64())(t)
	}
	require.EqualValues(t, n, wait(n, "20000"))
	if n < 2 {
		require.EqualValues(t, n, wait(2, "500"), "one that is cut off has it")
	}
}

func TestReplicasFollowThroughTLSAndPassword(t *testing.T) {
	t.Parallel()
	r := Replicated(t, 1, WithTLS(NewCertificates(t)), WithClientCertificates(), WithPassword("secret"))
	require.NoError(t, run(t, mustConnect(t, r.Option()), "SET", "a", "1").Error())
	r.Cut(r.Replicas()[0])
	r.Rejoin(r.Replicas()[0])
	require.Equal(t, []string{"a"}, r.Replicas()[0].Keys())
}

func TestAMasterThatSavesHasItsDataAgain(t *testing.T) {
	t.Parallel()
	r := Replicated(t, 1, WithArgs("--save", "3600 1"))
	r.Do("SET", "a", "1")
	r.Do("SAVE")
	r.Master().Restart()
	require.Equal(t, []string{"a"}, r.Master().Keys())
}

func TestSentinelsMakeAnotherServerTheMaster(t *testing.T) {
	t.Parallel()
	r := Sentinel(t)
	require.Len(t, r.Sentinels(), 3)
	old := r.Master()
	require.NoError(t, run(t, mustConnect(t, r.Option()), "SET", "a", "1").Error())
	require.Equal(t, "1", r.Text("GET", "a"))
	require.Equal(t, []string{"a"}, old.Keys())

	master := r.Failover()
	require.NotSame(t, old, master)
	require.Same(t, master, r.Master())
	require.Equal(t, "1", r.Text("GET", "a"))
	require.ErrorContains(t, must.Err(old.Try("SET", "a", "2")), "READONLY")
	require.NoError(t, run(t, mustConnect(t, r.Option()), "SET", "a", "3").Error())
	require.Equal(t, "3", master.Text("GET", "a"))

	old.Restart()
	its := must.Got(old.replication())(t)
	require.Equal(t, "slave", its["role"], "at once, not when a sentinel comes to see it")

	r.Restart()
	require.Same(t, master, r.Master(), "roles outlive the processes")
	require.Empty(t, r.Keys())
	r.Kill()
	for _, s := range append(r.Servers(), r.Sentinels()...) {
		require.False(t, s.Running())
	}
}

func TestSentinelsReplaceADeadMasterByThemselves(t *testing.T) {
	t.Parallel()
	r := Sentinel(t, WithTLS(NewCertificates(t)), WithClientCertificates(), WithPassword("secret"))
	require.NoError(t, run(t, mustConnect(t, r.Option()), "SET", "a", "1").Error())
	old := r.Master()
	old.Kill()
	r.Settle()
	require.NotSame(t, old, r.Master())
	require.Equal(t, "1", r.Text("GET", "a"))

	old.Restart()
	r.Sentinels()[0].Kill()
	r.Settle()
	require.Equal(t, []string{"a"}, old.Keys(), "it follows, and has what the new one has")
	require.NotSame(t, old, r.Master(), "two sentinels are enough")
	r.Sentinels()[0].Restart()
	r.Settle()
}

func TestEveryDeploymentServesClients(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, d := range Deployments() {
		require.False(t, names[d.Name], "two are called %s", d.Name)
		names[d.Name] = true
		t.Run(d.Name, func(t *testing.T) {
			t.Parallel()
			target := d.Start(t, WithUser("limited", "pass", "~*", "&*", "+@all", "-flushall"))
			client := mustConnect(t, target.Option())
			require.Equal(t, d.RESP3, speaksRESP3(t, client))
			require.False(t, speaksRESP3(t, mustConnect(t, target.Option(), func(o *rueidis.ClientOption) { o.AlwaysRESP2 = true })))
			require.ErrorContains(t, run(t, client, "FLUSHALL").Error(), "NOPERM", "options reach the servers")

			require.NoError(t, run(t, client, "SET", "a", "1").Error())
			require.Equal(t, int64(1), target.Int("GET", "a"))
			require.ElementsMatch(t, []string{"a", "{h}"}, target.Keys())
			require.ErrorContains(t, must.Err(target.Try("HGET", "a", "x")), "WRONGTYPE")

			require.Equal(t, d.Cluster, run(t, client, "CLUSTER", "MYID").Error() == nil)
			switch err := run(t, client, "SPUBLISH", "c", "m").Error(); {
			case d.Sharded:
				require.NoError(t, err)
				heard := subscribe(t, client, client.B().Ssubscribe().Channel("{a}").Build())
				publish := client.B().Spublish().Channel("{a}").Message("hello").Build()
				require.NoError(t, client.Do(t.Context(), publish).Error())
				require.Equal(t, "hello", <-heard)
			case d.Cluster:
				require.ErrorContains(t, err, "unknown command")
			}

			target.Restart()
			require.Empty(t, target.Keys())
			require.NoError(t, run(t, mustConnect(t, target.Option()), "SET", "a", "1").Error())
			target.Kill()
			require.Error(t, must.Err(connect(t, target.Option())))
			require.Error(t, must.Err(target.Try("GET", "a")))
		})
	}
}
