package rivals

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/bench"
	"github.com/headwaiter/headwaiter/bench/network"
	"github.com/headwaiter/headwaiter/internal/testenv/must"
)

func TestMain(m *testing.M) {
	// As the command does where its first word is agent.
	if len(os.Args) == 3 && os.Args[1] == "agent" {
		driver, err := Agent(os.Args[2])
		if err == nil {
			err = bench.ServeAgent(context.Background(), driver, os.Stdin, os.Stdout)
		}
		if err != nil {
			os.Exit(1)
		}
		return
	}
	if len(os.Args) > 1 && os.Args[1] == network.Word {
		if network.Serve(os.Stdin, os.Stdout, os.Args[2:]) != nil {
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// Over a network each engine is reached by the wire, and the first lock is compared with each other one.
func TestAWireLeadsToEveryEngine(t *testing.T) {
	const delay = 300 * time.Millisecond
	redis := must.Got(bench.StartRedis(t.Context()))(t)
	t.Cleanup(redis.Stop)
	servers := StartServers(t.Context(), redis.Addr, Engines(nil))
	t.Cleanup(servers.Stop)
	require.Empty(t, servers.Missing)
	far := must.Got(servers.Over(delay))(t)
	for _, name := range []string{"headwaiter", "redsync", "etcd-mutex", "zookeeper-lock", "postgres-advisory"} {
		c := must.Got(bench.Choose(Contenders(far), []string{name}))(t)[0]
		client := must.Got(c.Driver.NewClient(t.Context()))(t)
		mutex := client.Mutex("far")
		from := time.Now()
		hold := must.Got(mutex.Lock(t.Context()))(t)
		require.GreaterOrEqual(t, time.Since(from), 2*delay, name)
		require.NoError(t, hold.Release(t.Context()), name)
		require.NoError(t, client.Shutdown(t.Context()), name)
	}
}

// Each contender locks, hands on between clients and between processes, and excludes.
func TestEveryContenderIsALock(t *testing.T) {
	redis := must.Got(bench.StartRedis(t.Context()))(t)
	t.Cleanup(redis.Stop)
	servers := StartServers(t.Context(), redis.Addr, Engines(nil))
	t.Cleanup(servers.Stop)
	servers.Warm(t.Context(), time.Second)
	require.Empty(t, servers.Missing, "a server cannot be had")
	require.Len(t, servers.Versions, 3)
	cast := Contenders(servers)
	for i, c := range cast {
		// In the version of the day it loses wake-ups between two clients, and then one waits for good.
		if strings.HasPrefix(c.Name, "rueidislock") {
			cast[i].Only = []string{"W1"}
		}
	}
	report, err := bench.Run(t.Context(), bench.Config{
		Contenders: cast, Redis: rueidis.ClientOption{InitAddress: []string{redis.Addr}}, Rounds: 1, Slice: 200 * time.Millisecond,
		Restless: true, Log: t.Logf,
		Works: []bench.Work{{ID: "W1", Clients: 1, Workers: 1}, {ID: "W4", Clients: 2, Workers: 1, Processes: 2}},
	})
	require.NoError(t, err)
	require.NoError(t, report.Fault())
	for _, m := range report.Missing {
		// No timer backs its waits, so a wake-up that it loses is lost for good, of a lone worker now and then too.
		require.True(t, strings.HasPrefix(m.Contender, "rueidislock"), "%s %s: %s", m.Contender, m.What, m.Reason)
		require.Contains(t, m.Reason, "a worker does not come back")
	}
	results := map[string]int{}
	for _, r := range report.Results {
		require.NotZero(t, r.Figures.Cycles, "%s %s", r.Contender, r.ID)
		results[strings.TrimSuffix(r.Contender, "-tuned")]++
	}
	for _, c := range cast {
		switch {
		case strings.HasPrefix(c.Name, "rueidislock"):
			require.NotZero(t, results["rueidislock"], "neither of its settings was measured")
		case c.Only != nil: // The cohort has another work.
		default:
			require.Equal(t, 2, results[c.Name], "%s: it was to be measured in both works", c.Name)
		}
	}
}

func TestWhatCannotRunIsNamedWithTheReason(t *testing.T) {
	t.Setenv("HEADWAITER_REDISSON", t.TempDir())
	servers := &Servers{Redis: "127.0.0.1:1", Missing: map[string]string{"etcd": "it is not installed"}}
	reasons := map[string]string{}
	for _, c := range Contenders(servers) {
		if c.Missing != nil {
			reasons[c.Name] = c.Missing.Error()
		}
	}
	require.Len(t, reasons, 4)
	require.Contains(t, reasons["redisson-fair"], "Java")
	require.Equal(t, "it is not installed", reasons["etcd-mutex"])
	require.Equal(t, "it is not installed", reasons["headwaiter-etcd"])
}

// A name that is wrong would leave a lock without what it stands in the place of.
func TestAdaptersAreBesideWhatTheyReplace(t *testing.T) {
	var cast []bench.Contender
	replaced := map[string]string{}
	for _, c := range Contenders(&Servers{}) {
		if c.Missing == nil {
			cast = append(cast, c)
		}
	}
	pairs, _ := bench.Pairs(cast, []bench.Work{{ID: "W4", Clients: 8, Workers: 1}})
	for _, p := range pairs {
		if p.Own.Replaces != "" {
			replaced[p.Own.Name] = p.Other.Name
		}
	}
	require.Equal(t, map[string]string{
		"headwaiter-etcd": "etcd-mutex", "headwaiter-zookeeper": "zookeeper-lock",
		"headwaiter-postgres-session": "postgres-advisory", "headwaiter-postgres-leased": "postgres-advisory",
	}, replaced)
}

func TestOnlyTheServersThatAreNeededAreStarted(t *testing.T) {
	require.Empty(t, Engines([]string{"headwaiter", "redisson-fair"}))
	require.Equal(t, []string{"etcd", "postgres"}, Engines([]string{"headwaiter-etcd", "postgres-advisory"}))
	require.Len(t, Engines(nil), 3)
	_, err := bench.Choose(Contenders(&Servers{}), []string{"headwaiter", "unheard"})
	require.ErrorContains(t, err, `"unheard": there is headwaiter, bare-protocol, headwaiter-multilock-3, headwaiter-cohort-64, headwaiter-unlock, headwaiter-keep, redisson-fair`)
}
