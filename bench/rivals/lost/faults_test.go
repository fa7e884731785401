package lost

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/etcdtest"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/redlock"
)

// servers are those of one lock: a master and its replica, the nodes of redlock, or an etcd.
type servers struct {
	redis  []*redistest.Server // the master first, or the nodes
	clocks []*redistest.Clock
	etcd   *etcdtest.Server
}

func newServers(t *testing.T, lock string) (s servers) {
	if lock == onEtcd {
		s.etcd = etcdtest.Own(t)
		return s
	}
	n := 2
	if lock == nodes {
		n = 3
	}
	for range n {
		clock := redistest.NewClock(t)
		s.clocks = append(s.clocks, clock)
		s.redis = append(s.redis, redistest.Start(t, redistest.WithClock(clock), redistest.WithArgs("--repl-diskless-sync", "no")))
	}
	if lock != nodes {
		s.follow(t)
	}
	return s
}

// follow makes the second server a replica of the first.
func (s servers) follow(t *testing.T) {
	host := s.redis[0].Option().InitAddress[0]
	s.redis[1].Do("REPLICAOF", "127.0.0.1", host[len("127.0.0.1:"):])
	kit.Eventually(t, "a replica to be linked", func() bool {
		return strings.Contains(s.redis[1].Text("INFO", "replication"), "master_link_status:up") && strings.Contains(s.redis[0].Text("INFO", "replication"), "state=online")
	})
}

// addrs are where clients lock.
func (s servers) addrs() (all []string) {
	if s.etcd != nil {
		return []string{s.etcd.Endpoint()}
	}
	for _, r := range s.redis {
		all = append(all, r.Addr())
	}
	if len(all) == 2 {
		all = all[:1]
	}
	return all
}

func (s servers) proxy(t *testing.T, addr string) *faults.Proxy {
	if s.etcd != nil {
		return faults.NewProxyOf(t, addr, faults.Raw)
	}
	return faults.NewProxy(t, addr)
}

// A fault is one that happens to the holder, or to its server while it works.
type fault struct {
	name    string
	happens func(r *run, i int)
}

const (
	brief = 300 * time.Millisecond // work that no lease is too short for
	long  = 600 * time.Millisecond // and that ends before the first renewal
	later = 750 * time.Millisecond // after that
	soon  = time.Minute            // for an operator
)

// faultsOf are those that a lock can meet: etcd's leases follow no wall clock.
func faultsOf(lock string) []fault {
	all := []fault{
		{"paused", (*run).pauses}, {"killed", (*run).kills}, {"cut off", (*run).cutsOff}, {"failed over", (*run).failsOver},
		{"forced out", (*run).forces},
	}
	if lock != onEtcd {
		all = append(all, fault{"clock steps", (*run).steps})
	}
	return all
}

// pauses stops the holder between the question whether it holds and the write, until its lease is over.
func (r *run) pauses(int) {
	d, victim := r.holder(answer{Slow: brief})
	select {
	case <-d.asks:
	case <-time.After(patience):
		r.Fatalf("%s: the holder does not ask", r.lock)
	}
	victim.stop()
	time.Sleep(lasts) // Nobody renews.
	r.goesOn(workers)
	victim.wakes()
}

func (r *run) kills(int) {
	_, victim := r.holder(answer{Work: brief})
	victim.kill()
	for i, w := range r.workers {
		if w == victim {
			r.workers[i] = r.newWorker()
		}
	}
}

// cutsOff lets nothing between the holder and its server get through, while it works for longer than its lease.
func (r *run) cutsOff(int) {
	_, victim := r.holder(answer{Work: lasts + brief})
	for _, p := range victim.proxies {
		p.Freeze()
	}
	time.Sleep(lasts + 2*brief) // The work.
	for _, p := range victim.proxies {
		p.Heal()
	}
}

// failsOver has a master die, and a replica take its place that knows of no hold: the lease of an earlier one would keep the
// others out. Or a node of redlock comes back without its data, or etcd restarts.
func (r *run) failsOver(i int) {
	s := &r.servers
	switch {
	case s.etcd != nil:
		r.holder(answer{Work: long})
		s.etcd.Kill()
		require.NoError(r.T, s.etcd.Run())
	case r.lock == nodes:
		r.holder(answer{Work: long})
		s.redis[i%len(s.redis)].Restart()
	default:
		goOn := r.nobodyHolds()
		s.redis[0].Do("WAIT", "1", "0")
		s.redis[1].Do("REPLICAOF", "127.0.0.1", "1") // Nobody listens there.
		goOn()
		r.next(answer{Work: long}, lasts) // With WithReplicas nobody holds now.
		s.redis[0].Kill()
		s.redis[1].Do("REPLICAOF", "NO", "ONE")
		s.redis[0], s.redis[1] = s.redis[1], s.redis[0]
		s.clocks[0], s.clocks[1] = s.clocks[1], s.clocks[0]
		for _, w := range r.workers {
			w.proxies[0].Lead(s.redis[0].Addr())
			w.proxies[0].Cut()
		}
		time.Sleep(long) // The work.
		s.redis[1].Restart()
		s.follow(r.T)
	}
}

// forces takes the lock away from its holder, as an operator does who thinks that it hangs, between two renewals.
func (r *run) forces(int) {
	r.holder(answer{Work: 2 * long})
	time.Sleep(later) // The holder works meanwhile.
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	var err error
	switch r.lock {
	case plainly, fenced, replicas:
		_, err = fairlock.New(kit.Dial(r.T, r.servers.redis[0]), name).ForceRelease(ctx, 0)
	case nodes:
		var clients []*headwaiter.Client
		for _, s := range r.servers.redis {
			clients = append(clients, kit.Dial(r.T, s))
		}
		_, err = redlock.New(clients, name).ForceRelease(ctx, 0)
	case onEtcd:
		var c *clientv3.Client
		if c, err = clientv3.New(clientv3.Config{Endpoints: r.servers.addrs(), Logger: zap.NewNop()}); err == nil {
			defer c.Close()
			var all *clientv3.GetResponse
			if all, err = c.Get(ctx, name, append(clientv3.WithFirstCreate(), clientv3.WithPrefix())...); err == nil && len(all.Kvs) > 0 {
				_, err = c.Delete(ctx, string(all.Kvs[0].Key))
			}
		}
	default:
		for _, key := range r.servers.redis[0].List("KEYS", "*"+name+"*") {
			r.servers.redis[0].Do("DEL", key)
		}
	}
	require.NoError(r.T, err)
}

// steps sets the clock of the master, or of one node, an hour ahead.
func (r *run) steps(i int) {
	r.holder(answer{Work: long})
	clock := r.servers.clocks[0]
	if r.lock == nodes {
		clock = r.servers.clocks[i%len(r.servers.clocks)]
	}
	clock.Shift(time.Duration(i+1) * time.Hour)
	time.Sleep(long) // The work.
}
