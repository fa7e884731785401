package rivals

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/bench"
	"github.com/headwaiter/headwaiter/bench/drivers"
)

// serversVariable tells an agent's process where the servers are.
const serversVariable = "HEADWAITER_BENCH_SERVERS"

// entry is a contender and the engine that it needs in addition to Redis.
type entry struct {
	bench.Contender
	engine string
}

// Contenders returns all, in the order in which tables have them. One whose server is missing is missing.
func Contenders(s *Servers) []bench.Contender {
	option := rueidis.ClientOption{InitAddress: []string{s.Redis}}
	rueidisVersion, goRedis := bench.Version("github.com/redis/rueidis"), "go-redis "+bench.Version("github.com/redis/go-redis/v9")
	all := []entry{
		{Contender: drivers.Contender(drivers.Headwaiter{Redis: option}, 10*time.Second)},
		{Contender: drivers.BareContender(option)},
		{Contender: drivers.MultilockContender(drivers.Headwaiter{Redis: option}, 10*time.Second)},
		{Contender: drivers.CohortContender(drivers.Headwaiter{Redis: option}, 10*time.Second)},
		{Contender: drivers.UnlockContender(drivers.Headwaiter{Redis: option}, 10*time.Second)},
		{Contender: drivers.KeepContender(drivers.Headwaiter{Redis: option}, 10*time.Second)},
		{Contender: redisson(s.Redis, "fair"), engine: ""},
		{Contender: redisson(s.Redis, "plain"), engine: ""},
		background(rival(Rueidislock{Redis: option}, "rueidislock "+rueidisVersion+", defaults: three keys", 5*time.Second)),
		background(rival(Rueidislock{Redis: option, Tuned: true}, "rueidislock "+rueidisVersion+", its README's setting for one server: KeyMajority 1, NoLoopTracking", 5*time.Second)),
		polling(rival(Redsync{[]string{s.Redis}}, "redsync "+bench.Version("github.com/go-redsync/redsync/v4")+" on "+goRedis+", defaults: polls every 50 to 250 ms", 8*time.Second)),
		polling(rival(Redislock{s.Redis, 100 * time.Millisecond}, "bsm/redislock "+bench.Version("github.com/bsm/redislock")+" on "+goRedis+", polls every 100 ms as in its examples", session)),
		polling(rival(Redislock{s.Redis, time.Millisecond}, "bsm/redislock, polls every ms", session)),
		other(EtcdMutex{s.Etcd}, "etcd", "etcd concurrency.Mutex "+bench.Version("go.etcd.io/etcd/client/v3")+", a session of 10 s a worker", session),
		inPlaceOf("etcd-mutex", other(HeadwaiterEtcd{s.Etcd}, "etcd", "contrib/etcdlock", session)),
		patient(other(ZooKeeperLock{s.ZooKeeper}, "zookeeper", "go-zookeeper/zk "+bench.Version("github.com/go-zookeeper/zk")+" Lock, sessions of 10 s", session)),
		inPlaceOf("zookeeper-lock", other(HeadwaiterZooKeeper{s.ZooKeeper}, "zookeeper", "contrib/zklock", session)),
		late(other(Advisory{s.Postgres}, "postgres", "pg_advisory_lock on a kept connection, pgx "+bench.Version("github.com/jackc/pgx/v5"), 0)),
		inPlaceOf("postgres-advisory", late(other(HeadwaiterSQL{URL: s.Postgres}, "postgres", "contrib/sqllock, session locks", 0))),
		inPlaceOf("postgres-advisory", late(other(HeadwaiterSQL{URL: s.Postgres, Leased: true}, "postgres", "contrib/sqllock, leased locks", 10*time.Second))),
	}
	var contenders []bench.Contender
	for _, e := range all {
		if why := s.Missing[e.engine]; why != "" {
			e.Missing = errors.New(why)
		}
		e.Pid = s.pids[e.engine]
		if e.Driver != nil {
			e.Command = s.agent(e.Name)
		}
		contenders = append(contenders, e.Contender)
	}
	return contenders
}

// rival is one on Redis without an order.
func rival(d bench.Driver, about string, lease time.Duration) entry {
	c := bench.NewContender(d)
	c.About, c.Lease = about, lease
	return entry{c, ""}
}

// polling is one whose waiters ask again and again.
func polling(e entry) entry {
	e.Polls = true
	return e
}

// background is one whose release is not waited for.
func background(e entry) entry {
	e.Background = true
	return e
}

// other is one on another engine that keeps the order.
func other(d bench.Driver, engine, about string, lease time.Duration) entry {
	c := bench.NewContender(d)
	c.About, c.Lease, c.OnRedis, c.Fair = about, lease, false, true
	return entry{c, engine}
}

// patient is one whose calls cannot be given up.
func patient(e entry) entry {
	e.Patient = true
	return e
}

// inPlaceOf is one of this project that stands in the place of another lock of the same engine.
func inPlaceOf(name string, e entry) entry {
	e.Replaces = name
	return e
}

// late is one whose server has a process for each connection: on a machine with few CPUs such a process may come to
// the queue long after its call was made, so an order of calls is not to be had.
func late(e entry) entry {
	e.Fair = false
	return e
}

func redisson(addr, kind string) bench.Contender {
	c := bench.Contender{Name: "redisson-" + kind, OnRedis: true, Lease: 30 * time.Second, Fair: kind == "fair", Warm: 8 * time.Second}
	c.About = "Redisson 4.7.0 RLock, four netty threads"
	if kind == "fair" {
		c.About = "Redisson 4.7.0 RFairLock, four netty threads"
		c.Queue = func(name string) []string { return []string{"LLEN", "redisson_lock_queue:{" + name + "}"} }
		c.Keys = func(name string) []string {
			return []string{"redisson_lock_queue:{" + name + "}", "redisson_lock_timeout:{" + name + "}"}
		}
	}
	c.Command, c.Missing = Redisson(addr, kind)
	return c
}

// agent makes this program again, as the process of a contender.
func (s *Servers) agent(name string) func() *exec.Cmd {
	return func() *exec.Cmd {
		where, err := json.Marshal(s)
		if err != nil {
			panic(fmt.Sprintf("rivals: encode addresses: %v", err)) // Strings.
		}
		self, err := os.Executable()
		if err != nil {
			self = os.Args[0]
		}
		cmd := exec.Command(self, "agent", name)
		cmd.Env = append(os.Environ(), serversVariable+"="+string(where))
		cmd.Stderr = os.Stderr
		return cmd
	}
}

// Agent finds the driver for a process that was started as an agent.
func Agent(name string) (bench.Driver, error) {
	var s Servers
	if err := json.Unmarshal([]byte(os.Getenv(serversVariable)), &s); err != nil {
		return nil, fmt.Errorf("rivals: %s: %w", serversVariable, err)
	}
	for _, c := range Contenders(&s) {
		if c.Name == name && c.Driver != nil {
			return c.Driver, nil
		}
	}
	return nil, fmt.Errorf("rivals: %q: there is no such driver", name)
}

// Engines are the servers that the contenders of the given names need, of all if there is none.
func Engines(names []string) (engines []string) {
	for _, engine := range []string{"etcd", "zookeeper", "postgres"} {
		if len(names) == 0 || slices.ContainsFunc(names, func(name string) bool { return strings.Contains(name, engine) }) {
			engines = append(engines, engine)
		}
	}
	return engines
}
