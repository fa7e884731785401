package doctor

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headwaiter/headwaiter/lua"
)

// What counts as too much or too little, each with its reason.
const (
	// clocksApart is what the clocks of servers may differ by: a failover lengthens or shortens leases by it. A
	// tenth of a second is more than machines that are kept in step are apart, and a hundredth of the default lease.
	clocksApart = 100 * time.Millisecond
	// memoryFull is the part of maxmemory, in percent, from which on it is nearly full.
	memoryFull = 90
	// spareClients are connections for some clients more, at three each.
	spareClients = 16
	// replicaLate is how old the last word of a replica may be. Replicas speak every second.
	replicaLate = 5 * time.Second
	// soonCut is the longest time for which a connection is idle before its client asks it.
	soonCut = 20 * time.Second
	// soonBusy is a time that a script may take where the machine is loaded.
	soonBusy = 100 * time.Millisecond
	// A wake-up is below a kilobyte, but there may be one for each of some thousand waiting calls of a client.
	leastHardBuffer = 1 << 20
	leastSoftBuffer = 256 << 10
)

// A judgement collects warnings; the same one about several servers is one.
type judgement struct {
	report   *Report
	warnings []Warning
}

// judge says what endangers locks, the worst first. It looks at nothing but the report.
func judge(r *Report) []Warning {
	j := &judgement{report: r, warnings: []Warning{}}
	j.access()
	for i := range r.Servers {
		s := &r.Servers[i]
		if !s.Reachable {
			j.silent(s)
			continue
		}
		j.kind(s)
		if s.Role.Is("sentinel") {
			continue
		}
		j.memory(s)
		j.disk(s)
		j.persistence(s)
		j.replication(s)
		j.cluster(s)
		j.connections(s)
	}
	j.clocks()
	j.identities()
	rank := []Severity{Danger, Caution, Notice}
	slices.SortStableFunc(j.warnings, func(a, b Warning) int {
		return cmp.Compare(slices.Index(rank, a.Severity), slices.Index(rank, b.Severity))
	})
	return j.warnings
}

// add notes a warning about a server, or about all if it is nil.
func (j *judgement) add(severity Severity, s *ServerReport, setting, value, why, remedy string) {
	w := Warning{Severity: severity, Setting: setting, Value: value, Why: why, Remedy: remedy, Servers: []string{}}
	at := slices.IndexFunc(j.warnings, func(o Warning) bool {
		return o.Severity == severity && o.Setting == setting && o.Value == value && o.Why == why && o.Remedy == remedy
	})
	if at < 0 {
		at = len(j.warnings)
		j.warnings = append(j.warnings, w)
	}
	if s != nil {
		j.warnings[at].Servers = append(j.warnings[at].Servers, s.Address)
	}
}

// access judges rights, and how the client gets in.
func (j *judgement) access() {
	r := j.report
	if len(r.Missing) > 0 {
		j.add(Danger, nil, "ACL SETUSER", "the user may not "+strings.Join(r.Missing, ", "),
			"Scripts fail where they need it, and nobody gets a lock.",
			"give the user the rights that docs/deploy.md lists")
	}
	if r.Unfit != "" && !r.Servers[0].Role.Is("sentinel") {
		why, remedy, _ := strings.Cut(r.Unfit, ": ")
		j.add(Danger, nil, "server", "keeps no locks", strings.ToUpper(why[:1])+why[1:]+".", remedy)
	}
	if r.TwoMasters.Is(true) {
		j.add(Danger, nil, "address", "leads to two masters",
			"Each of them grants the same lock, so two hold it, and each says of the other's holds that it knows none.",
			"an address that leads to one of them alone; of a Kubernetes Service, a selector that only the master has")
	}
	if r.Aside.Is(true) {
		j.add(Danger, nil, "scripts", "two on one key at the same time", "Scripts lock no keys there, or the address leads to two servers: so two may hold one lock.",
			"an address that leads to one server; lua-transaction-mode (Garnet), or Redis 6.2 or newer, or Valkey")
	}
	switch {
	case r.Polls:
		j.add(Notice, nil, "SUBSCRIBE", "not used",
			"Waiters look for their grants: after a long hold that takes up to 0.7 s, and a dead waiter costs one grant lease, 2 s.",
			"a server with subscriptions, and no WithoutSubscribe")
	case !r.Skips && !(r.Mode == "cluster" && r.Sharded.Is(false)):
		j.add(Notice, nil, "PUBSUB NUMSUB", "not asked",
			"Subscribers are not counted, so a dead waiter is not skipped: each process that died costs one grant lease, 2 s.",
			"a server whose scripts may call it, and no WithoutSkip")
	}
	if r.Numbers.Is(false) {
		j.add(Notice, nil, "CLIENT ID", "not answered",
			"If a process is resumed twice from one image, nobody finds out, and both may hold with one token.",
			"allow +client|id to the user; Client.Restored, where a process knows of its restore")
	}
	if r.Protocol.Is(2) {
		j.add(Notice, nil, "HELLO", "RESP2",
			"Everything works.", "Redis 6 or newer with HELLO allowed gives RESP3")
	}
	if slices.ContainsFunc(r.Servers, func(s ServerReport) bool { return !local(s.Address) }) {
		if r.TLS.Is(false) {
			j.add(Notice, nil, "TLS", "off",
				"Passwords and tokens can be read and changed on the way.", "connect with rediss:// where the network is not trusted")
		}
		if r.Open.Is(true) {
			j.add(Caution, nil, "requirepass", "none: the default user needs no password",
				"Whoever reaches the server can release locks, grant them, and change settings.",
				"requirepass, with the same as masterauth for replicas and as auth-pass for sentinels; "+
					"and for the locks a user of their own with the rights that docs/deploy.md lists")
		}
	}
	if r.Mode == "cluster" && r.Sharded.Is(false) {
		j.add(Caution, nil, "SSUBSCRIBE, SPUBLISH", "not there",
			"Subscribers cannot be counted, so a dead waiter is not skipped: each process that died costs one grant lease, 2 s.",
			"Redis 7 or newer, with sharded channels allowed")
	}
}

func (j *judgement) silent(s *ServerReport) {
	switch {
	case s.Role.Is("master") && s.idle:
		j.add(Caution, s, "reachable", "no", "It is an old master: its slots have another one now, and there is a replica less.",
			"see to the server, or to the way there; CLUSTER FORGET if it is gone for good")
	case s.Role.Is("master"):
		j.add(Danger, s, "reachable", "no", "Nobody gets a lock there, and holders lose theirs.", "see to the server, or to the way there")
	case s.Role.Is("replica"):
		j.add(Caution, s, "reachable", "no", "It may be missing when its master fails, or out of reach when it takes over.",
			"see to the server, or to the way there")
	default:
		j.add(Caution, s, "reachable", "no", "What it is for, nobody said.", "see to the server, or to the way there")
	}
}

// kind judges what the server is, and whether it is what the client takes it for.
func (j *judgement) kind(s *ServerReport) {
	asked := j.report.Mode != "cluster" && s.Address == j.report.Servers[0].Address
	switch {
	case s.Role.Is("sentinel"):
		j.add(Danger, s, "address", "a sentinel",
			"A sentinel has no data, so there are no locks.", "name the master set too: master_set=NAME in the URL, Sentinel.MasterSet in the options")
		return
	case asked && s.Kind.Is("cluster"):
		j.add(Danger, s, "CLUSTER SLOTS", "not asked",
			"The server is a node of a cluster, and the client takes it for a single one: names that live at other nodes fail.",
			"allow +cluster|slots and +cluster|shards to the user, and leave ForceSingleClient off")
	case asked && s.Role.Is("replica") && s.Settings["replica-read-only"] == "no":
		j.add(Danger, s, "replica-read-only", "no, on a replica",
			"What is locked at this replica, its master does not know: others hold the same there.",
			"connect to the master"+named(s.Master))
	case asked && s.Role.Is("replica"):
		j.add(Danger, s, "address", "a replica", "It refuses writes, so nobody gets a lock.", "connect to the master"+named(s.Master))
	case s.Role.Is("replica") && s.Settings["replica-read-only"] == "no":
		j.add(Caution, s, "replica-read-only", "no",
			"A client that connects to this replica by mistake holds locks that others hold at the master.", "replica-read-only yes")
	}
	switch {
	case !s.Product.Known:
	case s.Product.Is("valkey"):
		if s.Version.Known && tears.MatchString(s.Version.Value) {
			j.add(Notice, s, "version", s.Version.Value,
				"On a connection that publishes and subscribes Valkey 9.0 to 9.1.1 tears messages of 16,384 bytes and more. "+
					"Those of this library are shorter; one of yours, on a client that you share with it, breaks that connection.",
				"Valkey 9.1.2 or newer")
		}
	case !s.Product.Is("redis"):
		j.add(Notice, s, "version", s.Product.Value+" "+s.Version.String(), "This library is tested with Redis and Valkey.", "try what you rely on")
	case older(s.Version, 6, 2):
		j.add(Danger, s, "version", s.Version.Value, "Scripts need commands that came with 6.2.", "Redis 6.2 or newer")
	}
}

// tears finds the versions of Valkey that tear messages (https://github.com/valkey-io/valkey/issues/4231).
var tears = regexp.MustCompile(`^9\.(0|1\.[01])\b`)

func named(address Fact[string]) string {
	if !address.Known {
		return ""
	}
	return ", " + address.Value
}

// memory judges what the server does when its memory is full. A replica does nothing of it before it takes over.
func (j *judgement) memory(s *ServerReport) {
	limit, _ := strconv.ParseInt(s.Settings["maxmemory"], 10, 64)
	policy := s.Settings["maxmemory-policy"]
	evicts := policy != "" && policy != "noeviction"
	worst, when := Danger, ""
	if s.Role.Is("replica") {
		worst, when = Caution, " This replica does so once it has taken over."
	}
	switch _, have := s.Settings["maxmemory"]; {
	case policy == "":
		j.add(Caution, s, "maxmemory-policy", "unknown",
			"With any other than noeviction, locks are evicted like any other keys. Providers of caches like to set another.",
			"ask who runs the server, or allow +config|get or +info to the user")
	case evicts && have && limit == 0:
		j.add(Caution, s, "maxmemory-policy", policy,
			"Nothing is evicted while maxmemory is 0. With a limit, locks go like any other keys, and then two hold them.",
			"maxmemory-policy noeviction")
	case evicts:
		why := "Locks are evicted like any other keys, and then two hold them."
		if strings.HasPrefix(policy, "volatile-") {
			why = "Keys that expire are evicted first, and all keys of a lock do. Then two hold it."
		}
		if s.EvictedKeys.Known && s.EvictedKeys.Value > 0 {
			why += fmt.Sprintf(" %d keys went this way since the server started.", s.EvictedKeys.Value)
		}
		j.add(worst, s, "maxmemory-policy", policy, why+when, "maxmemory-policy noeviction, or a server for locks alone")
	}
	if limit <= 0 || !s.UsedMemory.Known || evicts {
		return
	}
	const why = "At the limit new calls fail; releases, hand-offs and renewals go on."
	if full := float64(s.UsedMemory.Value) / float64(limit) * 100; full >= 100 {
		j.add(worst, s, "maxmemory", "reached", why+when, "raise maxmemory, or see what fills it")
	} else if full >= memoryFull {
		j.add(Caution, s, "maxmemory", fmt.Sprintf("%.0f %% of it used", full), why+when, "raise maxmemory, or see what fills it")
	}
}

// disk judges whether what the server wrote last got to its disk. A master refuses writes where it did not.
func (j *judgement) disk(s *ServerReport) {
	const remedy = "see the server's log and its disk"
	replica := s.Role.Is("replica")
	if s.AppendOK.Is(false) && s.Settings["appendonly"] != "no" {
		const value = "yes, and the last write failed"
		if replica {
			j.add(Caution, s, "appendonly", value,
				"Its master serves, but this replica may end, and if it takes over it refuses writes until it can append.", remedy)
		} else {
			j.add(Danger, s, "appendonly", value,
				"Redis refuses writes until it can append: nobody gets a lock, and releases fail.", remedy)
		}
	}
	if save, have := s.Settings["save"]; !s.SaveOK.Is(false) || have && save == "" {
		return
	}
	switch stop := s.Settings["stop-writes-on-bgsave-error"]; {
	case stop == "yes" && replica:
		j.add(Caution, s, "stop-writes-on-bgsave-error", "yes, and the last save failed",
			"Its master serves, but this replica may end, and if it takes over it refuses writes until a save succeeds.",
			remedy+"; stop-writes-on-bgsave-error no")
	case stop == "yes":
		j.add(Danger, s, "stop-writes-on-bgsave-error", "yes, and the last save failed",
			"Redis refuses writes until a save succeeds: nobody gets a lock, and releases fail.", remedy+"; stop-writes-on-bgsave-error no")
	case stop == "no" && replica:
		j.add(Caution, s, "save", "the last one failed", "If it takes over, a restart would bring back an older state still.", remedy)
	case stop == "no":
		j.add(Caution, s, "save", "the last one failed", "A restart would bring back an older state still.", remedy)
	case replica:
		j.add(Caution, s, "save", "the last one failed",
			"If it takes over, and stop-writes-on-bgsave-error is set, it refuses writes until a save succeeds.", remedy)
	default:
		j.add(Caution, s, "save", "the last one failed",
			"If stop-writes-on-bgsave-error is set, Redis refuses writes until a save succeeds.", remedy)
	}
}

// persistence judges what is left after a restart. It is a master's matter: a replica that restarts asks its master.
func (j *judgement) persistence(s *ServerReport) {
	save, have := s.Settings["save"]
	if s.Role.Is("replica") {
		return
	}
	const remedy = "CONFIG SET appendonly yes and CONFIG REWRITE while the server runs: a start with a new appendonly yes begins empty; " +
		"or WithSafeRestart on the locks, which then wait a lease, and need +info for the user"
	switch aof := s.Settings["appendonly"]; {
	case aof == "":
		j.add(Notice, s, "appendonly", "unknown", "What a restart forgets is not known.", "ask who runs the server")
	case aof == "no" && have && save == "":
		j.add(Caution, s, "appendonly", "no, and no save",
			"A restart forgets all holds: others may hold before the holders know.", remedy)
	case aof == "no":
		j.add(Caution, s, "appendonly", "no",
			"A restart forgets the holds since the last snapshot, if there is one, and brings back those that were released since.", remedy)
	case aof == "yes" && s.Settings["appendfsync"] == "no":
		j.add(Caution, s, "appendfsync", "no",
			"If the machine fails, a restart forgets the holds of the last half minute or so.",
			"appendfsync always, or everysec where a second is nothing")
	case aof == "yes" && s.Settings["appendfsync"] == "everysec":
		j.add(Notice, s, "appendfsync", "everysec",
			"If the machine fails, a restart may forget the holds of the last second or two.", "appendfsync always, where that is too much")
	}
}

func (j *judgement) replication(s *ServerReport) {
	if s.LinkUp.Is(false) {
		j.add(Caution, s, "master_link_status", "down", "What is locked meanwhile is forgotten if this replica takes over.",
			"see to the way to its master")
	}
	if s.Role.Is("replica") {
		return
	}
	if len(s.Replicas) > 0 {
		j.add(Caution, nil, "WithReplicas", "a matter of each lock",
			"Replicas follow a moment later, so a failover may forget the newest holds: then two hold, until the next renewal of the first, or until an old master that still answers it steps down.",
			"WithReplicas(n, timeout) on the locks for which that is too much, and fencing tokens at what they protect")
	}
	for _, p := range s.Replicas {
		if slices.ContainsFunc(j.report.Servers, func(o ServerReport) bool { return o.Address == p.Address && o.LinkUp.Is(false) }) {
			continue // Its own word is enough.
		}
		switch {
		case p.State.Known && p.State.Value != "online":
			j.add(Caution, s, "replica "+p.Address, p.State.Value, "It has not caught up, so it forgets holds if it takes over.", "wait, or see to it")
		case p.Lag.Known && p.Lag.Value > replicaLate:
			j.add(Caution, s, "replica "+p.Address, fmt.Sprintf("silent for %v", p.Lag.Value),
				"What is locked meanwhile is forgotten if it takes over.", "see to the way there")
		}
	}
	want, _ := strconv.ParseInt(s.Settings["min-replicas-to-write"], 10, 64)
	value := fmt.Sprintf("%d, and %s count", want, s.GoodReplicas)
	switch {
	case want > 0 && s.GoodReplicas.Known && s.GoodReplicas.Value < want:
		j.add(Danger, s, "min-replicas-to-write", value,
			"Redis refuses writes: nobody gets a lock, and releases fail.", "see to the replicas, or lower it")
	case want > 0:
		j.add(Notice, s, "min-replicas-to-write", value,
			"With fewer, Redis refuses writes, releases too. That shortens how long a master that was cut off goes on granting.",
			"as many as can be relied on")
	}
}

func (j *judgement) cluster(s *ServerReport) {
	full := s.Settings["cluster-require-full-coverage"]
	switch {
	case s.ClusterState.Known && s.ClusterState.Value != "ok":
		remedy := "see what CLUSTER NODES calls failed"
		if full == "yes" {
			remedy += "; with cluster-require-full-coverage no, the rest would go on without it"
		}
		j.add(Danger, s, "cluster_state", s.ClusterState.Value, "The cluster refuses requests: nobody gets a lock there.", remedy)
	case s.ClusterSlots.Known && s.ClusterState.Known && s.ClusterSlots.Value < lua.Slots:
		j.add(Danger, s, "cluster_slots_ok", fmt.Sprintf("%d of %d", s.ClusterSlots.Value, lua.Slots),
			"Names in the other slots cannot be locked.", "see what CLUSTER NODES calls failed, and give all slots to somebody")
	case full == "yes" && s.ClusterState.Known:
		j.add(Notice, s, "cluster-require-full-coverage", "yes",
			"If one shard fails, all locks of the cluster stop until it is back.", "no, if the others are to go on")
	}
}

func (j *judgement) connections(s *ServerReport) {
	limit, err := strconv.ParseInt(s.Settings["maxclients"], 10, 64)
	if spare := limit - s.Clients.Value; err == nil && s.Clients.Known && (spare < spareClients || spare < limit/10) {
		j.add(Caution, s, "maxclients", fmt.Sprintf("%d of %d connected", s.Clients.Value, limit),
			"A client takes up to three connections to a server. Those that find none wait, and lose their locks if they had to reconnect.",
			"raise maxclients")
	}
	if cut := s.duration("timeout", time.Second); cut > soonCut {
		j.add(Notice, s, "timeout", s.Settings["timeout"], "An idle connection is asked after 10 to 20 s, so none is idle for so long.", "none is needed")
	} else if cut > 0 {
		j.add(Caution, s, "timeout", s.Settings["timeout"],
			"An idle connection is asked after 10 to 20 s, so it is cut before, and made again by the next call.", "timeout 0, or a minute")
	}
	busy := "busy-reply-threshold"
	if _, ok := s.Settings[busy]; !ok {
		busy = "lua-time-limit"
	}
	if after := s.duration(busy, time.Millisecond); after > 0 && after < soonBusy {
		j.add(Caution, s, busy, s.Settings[busy],
			"A script that takes longer, on a loaded machine, has all others answered with BUSY for the moment.", busy+" 5000, the default")
	}
	b, ok := parseBufferLimit(s.Settings["client-output-buffer-limit"], "pubsub")
	if ok && (b.hard > 0 && b.hard < leastHardBuffer || b.soft > 0 && b.soft < leastSoftBuffer) {
		j.add(Caution, s, "client-output-buffer-limit", fmt.Sprintf("pubsub %d %d %.0f", b.hard, b.soft, b.after.Seconds()),
			"A client that reads late is cut off with its wake-ups, and each of its waiting calls looks for itself.",
			"client-output-buffer-limit pubsub 33554432 8388608 60, the default")
	}
}

// duration is a setting that is a time in some unit; 0 if it is not known, or off.
func (s *ServerReport) duration(setting string, unit time.Duration) time.Duration {
	n, err := strconv.ParseInt(s.Settings[setting], 10, 64)
	if err != nil || n <= 0 || n > int64(longestTime/unit) {
		return 0
	}
	return time.Duration(n) * unit
}

// clocks judges how far the clocks of the servers are certainly apart. This machine's does not matter: clients
// measure spans only.
func (j *judgement) clocks() {
	var fast, slow *ServerReport
	for i := range j.report.Servers {
		s := &j.report.Servers[i]
		if !s.Clock.Known {
			continue
		}
		if fast == nil || s.Clock.Value.Low > fast.Clock.Value.Low {
			fast = s
		}
		if slow == nil || s.Clock.Value.High < slow.Clock.Value.High {
			slow = s
		}
	}
	if fast == nil || fast == slow {
		return
	}
	apart := fast.Clock.Value.Low - slow.Clock.Value.High
	if apart > clocksApart {
		j.add(Caution, nil, "clock", fmt.Sprintf("the clock of %s is %v ahead of the clock of %s", fast.Address, apart.Round(time.Millisecond), slow.Address),
			"Leases end by the server's clock. Where another server takes over, by a failover or with a slot, they end early or late by this much.",
			"keep the servers' clocks in step (NTP)")
	}
}
