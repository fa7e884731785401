package doctor

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/waitqueue"
)

const (
	// reportSamples is how often a server is asked for its time: an odd number has a median, which one or two slow
	// answers do not disturb.
	reportSamples = 11
	// reportAtOnce is how many servers are asked at the same time. More would get into each other's way, which
	// shows in their round trips.
	reportAtOnce = 4
)

// reportSettings are what CONFIG GET is asked for, one by one: before Redis 7 it takes one at a time, and some
// providers allow some of them.
var reportSettings = []string{
	"maxmemory", "maxmemory-policy",
	"appendonly", "appendfsync", "save", "stop-writes-on-bgsave-error",
	"min-replicas-to-write", "min-replicas-max-lag", "replica-read-only",
	"maxclients", "timeout", "client-output-buffer-limit",
	"busy-reply-threshold", "lua-time-limit",
	"cluster-require-full-coverage",
}

// askServers asks every server that there is to know of. The error is why none answered.
func askServers(ctx context.Context, w waitqueue.Wiring) ([]ServerReport, error) {
	if w.Redis.Mode() == rueidis.ClientModeCluster {
		return askCluster(ctx, w)
	}
	address := ""
	for a := range w.Redis.Nodes() {
		address = max(address, a) // There is one, except for a client that sends reads to replicas.
	}
	if w.Bare {
		s := newServerReport(address)
		err := w.Redis.Do(ctx, w.Redis.B().Ping().Build()).Error()
		if err != nil {
			s.note("connection", err)
		}
		s.Reachable, s.protocol = err == nil, known[int64](2)
		s.note("HELLO, INFO, CONFIG", errBare)
		return []ServerReport{s}, err
	}
	main, err := ask(ctx, address, w.Redis)
	if err != nil {
		return []ServerReport{main}, err
	}
	if len(main.Replicas) > 0 && !w.Own {
		main.note("replicas", errNotOwn)
		return []ServerReport{main}, nil
	}
	servers := make([]ServerReport, 1+len(main.Replicas))
	servers[0] = main
	severally(len(main.Replicas), func(i int) {
		servers[i+1] = askReplica(ctx, w, main.Replicas[i].Address, main)
	})
	return servers, nil
}

// severally calls f for 0 to n-1, some at the same time, and waits for all.
func severally(n int, f func(i int)) {
	var work sync.WaitGroup
	free := make(chan struct{}, reportAtOnce)
	for i := range n {
		free <- struct{}{}
		work.Go(func() {
			f(i)
			<-free
		})
	}
	work.Wait()
}

// askReplica asks a replica that a master names, on a connection of its own.
func askReplica(ctx context.Context, w waitqueue.Wiring, address string, master ServerReport) ServerReport {
	s := newServerReport(address)
	s.Role, s.Master = known("replica"), Fact[string]{master.Address, master.Address != ""}
	rc, end, err := w.Dial(ctx, address)
	if err != nil {
		s.note("connection", err)
		return s
	}
	defer end()
	found, _ := ask(ctx, address, rc)
	if found.RunID.Known && found.RunID == master.RunID {
		// A tunnel, or a dial function that does not look at the address.
		s.note("connection", errors.New("this address leads to the master"))
		return s
	}
	if !found.Reachable {
		found.Role, found.Master = s.Role, s.Master
	}
	return found
}

// askCluster asks all nodes of the cluster.
func askCluster(ctx context.Context, w waitqueue.Wiring) ([]ServerReport, error) {
	nodes := w.Redis.Nodes()
	addresses := slices.Sorted(maps.Keys(nodes))
	servers := make([]ServerReport, len(addresses))
	failures := make([]error, len(addresses))
	severally(len(addresses), func(i int) {
		servers[i], failures[i] = ask(ctx, addresses[i], nodes[addresses[i]])
	})
	if len(addresses) == 0 {
		return servers, errors.New("the cluster names no node that has slots")
	}
	first := slices.IndexFunc(failures, func(err error) bool { return err == nil })
	if first < 0 {
		return servers, errors.Join(failures...)
	}
	rc := nodes[addresses[first]]
	text, err := plainText(rc.Do(ctx, rc.B().ClusterNodes().Build()))
	if err != nil {
		servers[first].note("CLUSTER NODES", err)
	}
	servers = askUnlisted(ctx, w, servers, parseClusterNodes(text))
	shard := func(s ServerReport) string {
		if s.Master.Known {
			return s.Master.Value
		}
		return s.Address
	}
	slices.SortFunc(servers, func(a, b ServerReport) int {
		return cmp.Or(
			cmp.Compare(shard(a), shard(b)),
			cmp.Compare(a.Role.String(), b.Role.String()), // A master comes before its replicas by luck of the alphabet.
			cmp.Compare(a.Address, b.Address))
	})
	return servers, nil
}

// askUnlisted adds the replicas that a node of the cluster knows and rueidis does not: those that have not caught up
// yet, or have failed. It also adds the masters that have failed, and says of those that did not answer what they were.
func askUnlisted(ctx context.Context, w waitqueue.Wiring, servers []ServerReport, nodes []clusterNode) []ServerReport {
	addresses := make(map[string]string, len(nodes))
	for _, n := range nodes {
		addresses[n.id] = n.address
	}
	var unlisted []int
	for _, n := range nodes {
		i := slices.IndexFunc(servers, func(s ServerReport) bool { return s.Address == n.address || s.Address == n.hostname })
		if i < 0 && n.master && !n.failed || i >= 0 && servers[i].Reachable {
			continue // Such a master has no slots, and does not matter.
		}
		if i < 0 {
			i = len(servers)
			servers = append(servers, newServerReport(n.address))
			switch {
			case n.failed:
				servers[i].note("connection", errors.New("not tried, because the cluster says that it has failed"))
			case !w.Own:
				servers[i].note("connection", errNotOwn)
			default:
				unlisted = append(unlisted, i)
			}
		}
		servers[i].Role = known("replica")
		if n.master {
			servers[i].Role, servers[i].idle = known("master"), !n.slots
		} else if of := addresses[n.of]; of != "" {
			servers[i].Master = known(of)
		}
	}
	severally(len(unlisted), func(i int) {
		s := &servers[unlisted[i]]
		*s = askReplica(ctx, w, s.Address, ServerReport{Address: s.Master.Value})
	})
	return servers
}

// errNotOwn: a server is not asked.
var errNotOwn = errors.New("not asked, because the connections are not the client's own")

// errBare: a server behind a proxy is not asked.
var errBare = errors.New("not asked, because a proxy closes connections at commands that it does not know")

// plainText is a reply that is text. As a verbatim string it has its format in front.
func plainText(res rueidis.RedisResult) (string, error) {
	text, err := res.ToString()
	return strings.TrimPrefix(text, "txt:"), err
}

func newServerReport(address string) ServerReport {
	return ServerReport{Address: address, Replicas: []ReplicaReport{}, Settings: map[string]string{}, Notes: []string{}}
}

func (s *ServerReport) note(what string, err error) {
	s.Notes = append(s.Notes, what+": "+brief(err))
}

// brief is the text of an error without the arguments of a command that the server does not know.
func brief(err error) string {
	text, _, _ := strings.Cut(err.Error(), ", with args beginning with:")
	return text
}

// ask finds out what a server tells. The error is why it did not answer at all.
func ask(ctx context.Context, address string, rc rueidis.Client) (ServerReport, error) {
	s := newServerReport(address)
	hello := rc.Do(ctx, rc.B().Arbitrary("HELLO").Build())
	if err := hello.NonRedisError(); err != nil {
		s.note("connection", err)
		return s, err
	}
	s.Reachable = true
	s.greeted(hello)
	if s.Kind.Is("sentinel") {
		return s, nil // What else there is to know is about the sentinel.
	}
	b := rc.B()
	asks := []rueidis.Completed{b.Info().Build(), b.ClusterInfo().Build()}
	for _, name := range reportSettings {
		asks = append(asks, b.ConfigGet().Parameter(name).Build())
	}
	answers := rc.DoMulti(ctx, asks...)
	s.configured(answers[2:])
	if text, err := plainText(answers[0]); err != nil {
		s.note("INFO", err)
	} else {
		s.informed(parseInfo(text))
	}
	if text, err := plainText(answers[1]); err == nil {
		i := parseInfo(text)
		s.ClusterState, s.ClusterSlots = i.text("cluster_state"), i.number("cluster_slots_ok")
	} else if s.Kind.Is("cluster") {
		s.note("CLUSTER INFO", err)
	}
	s.time(ctx, rc)
	return s, nil
}

// greeted takes what HELLO tells, which a client may call whatever else is forbidden.
func (s *ServerReport) greeted(hello rueidis.RedisResult) {
	fields, err := hello.AsMap()
	if err != nil {
		s.note("HELLO", err)
		if strings.Contains(err.Error(), "unknown command") || strings.Contains(err.Error(), "unsupported command") {
			s.protocol = known[int64](2)
		}
		return
	}
	text := func(name string) Fact[string] {
		field := fields[name]
		v, err := field.ToString()
		return Fact[string]{v, err == nil && v != ""}
	}
	s.Product, s.Version, s.Kind, s.Role = text("server"), text("version"), text("mode"), roleOf(text("role").Value)
	if s.Kind.Is("sentinel") {
		s.Role = s.Kind
	}
	proto := fields["proto"]
	if v, err := proto.AsInt64(); err == nil {
		s.protocol = known(v)
	}
}

// configured takes the answers to CONFIG GET.
func (s *ServerReport) configured(answers []rueidis.RedisResult) {
	failed := make(map[string][]string)
	for i, res := range answers {
		name := reportSettings[i]
		found, err := res.AsStrMap()
		if err != nil {
			failed[brief(err)] = append(failed[brief(err)], name)
			continue
		}
		if v, ok := found[name]; ok {
			s.Settings[name] = v
		}
	}
	for _, text := range slices.Sorted(maps.Keys(failed)) {
		what := "CONFIG GET"
		if names := failed[text]; len(names) < len(answers) {
			what += " " + strings.Join(names, ", ")
		}
		s.note(what, errors.New(text))
	}
	if _, ok := s.Settings["busy-reply-threshold"]; ok {
		delete(s.Settings, "lua-time-limit") // Its old name.
	}
}

// informed takes what INFO tells.
func (s *ServerReport) informed(i told) {
	if product, version := i.product(); version.Known {
		s.Product, s.Version = product, version
	}
	if role := i.role(); role.Known {
		s.Role = role
	}
	if kind := i.text("redis_mode"); kind.Known {
		s.Kind = kind
	}
	s.Master = i.address("master_host", "master_port")
	s.RunID, s.Uptime = i.text("run_id"), i.seconds("uptime_in_seconds")
	s.UsedMemory, s.EvictedKeys = i.number("used_memory"), i.number("evicted_keys")
	s.Clients = i.number("connected_clients")
	s.SaveOK, s.AppendOK = i.is("rdb_last_bgsave_status", "ok"), i.is("aof_last_write_status", "ok")
	if id := i.text("master_replid"); id.Known && s.Role.Is("master") {
		s.origin = id.Value + " " + i["master_replid2"]
	}
	s.LinkUp, s.GoodReplicas = i.is("master_link_status", "up"), i.number("min_slaves_good_slaves")
	s.Replicas = i.replicas()
	for name, key := range map[string]string{
		"maxmemory": "maxmemory", "maxmemory-policy": "maxmemory_policy", "maxclients": "maxclients",
		"appendonly": "aof_enabled", "replica-read-only": "slave_read_only",
	} {
		v, ok := i[key]
		if _, have := s.Settings[name]; have || !ok {
			continue
		}
		if name == "appendonly" || name == "replica-read-only" {
			v = map[string]string{"1": "yes", "0": "no"}[v]
		}
		if v != "" {
			s.Settings[name] = v
		}
	}
}

// time measures the round trip, and between which bounds the server's clock is ahead. Each reading was made between
// its request and its answer, so the offset lies within the bounds of all of them.
func (s *ServerReport) time(ctx context.Context, rc rueidis.Client) {
	var trips []time.Duration
	var offset, narrow ClockOffset
	for n := range reportSamples {
		sent := time.Now()
		reading, err := rc.Do(ctx, rc.B().Time().Build()).AsStrSlice()
		trip := time.Since(sent)
		now, ok := parseTime(reading)
		if err != nil || !ok {
			s.note("TIME", cmp.Or(err, errors.New("an answer that is no time")))
			break
		}
		high := now.Sub(sent) // By the wall clock, as the other one has no other; the trip by the monotonic one.
		o := ClockOffset{high - trip, high}
		if n == 0 {
			offset, narrow = o, o
		}
		offset = ClockOffset{max(offset.Low, o.Low), min(offset.High, o.High)}
		if o.High-o.Low < narrow.High-narrow.Low {
			narrow = o
		}
		trips = append(trips, trip)
	}
	if len(trips) == 0 {
		return
	}
	slices.Sort(trips)
	s.RoundTrip = known(trips[len(trips)/2])
	if offset.Low > offset.High {
		offset = narrow // One of the clocks was set meanwhile.
	}
	s.Clock = known(offset)
}
