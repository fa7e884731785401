package redistest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
)

const (
	// sentinelSet is the name of the master to the sentinels.
	sentinelSet = "headwaiter"
	// sentinelReplicas and sentinels are the smallest set that goes on after the loss of any one.
	sentinelReplicas = 2
	sentinels        = 3
	// downAfter, in milliseconds, is how long a server may be silent before it is down. It is more than the
	// second from ping to ping: else each new master is down for a moment.
	downAfter = "1500"
	// failoverTimeout, in milliseconds, is after what time sentinels give a failover up, without a word. Twice
	// as long is the pause after an election without a result.
	failoverTimeout = "3000"
	// promotion is what a failover may take before it is asked for once more.
	promotion = 5 * time.Second
)

// sentinelTimes are the sentinels' own clocks, in milliseconds, which Redis 7 lets one set. As they are
// by default, it takes a set ten seconds to be whole again after each failover, and a sentinel that was
// late by two does nothing for half a minute. They hang together: a replica whose INFO is older than three
// of its periods, or five of the pings', is not made a master; and a server that says it is a master, and
// should not be one, is made a replica after four of the periods of publishing, which must be longer than
// the second from a promotion to the news of it.
var sentinelTimes = []string{
	"info-period", "500", "ping-period", "500", "publish-period", "500", "ask-period", "200",
	"tilt-trigger", "15000", "tilt-period", "1000",
}

// RedisSentinel is a master with two replicas under three sentinels. Its commands go to the master.
type RedisSentinel struct {
	commands
	servers   []*Server
	sentinels []*Server
}

// Sentinel starts a master, two replicas and three sentinels, two of which must agree, and returns when all
// of them know each other. A master that is silent for a second and a half is replaced. Options
// are for the servers; the sentinels take over TLS, and know the password.
func Sentinel(t testing.TB, opts ...Option) *RedisSentinel {
	t.Helper()
	// Sentinels write who follows whom into the servers' files.
	inFile := func(s *Server) { s.file = true }
	r := &RedisSentinel{servers: startAll(t, 1+sentinelReplicas, append([]Option{copies, inFile}, opts...)...)}
	r.commands = commands{t: t, try: r.route}
	master := r.servers[0]
	for _, s := range r.servers[1:] {
		s.follow(master)
	}
	settle(t, "the replicas of a Sentinel set", r.servers, func() error {
		return errors.Join(follows(master, r.servers[1]), follows(master, r.servers[2]))
	})
	r.sentinels = startAll(t, sentinels, func(s *Server) { watchOver(s, master) })
	r.Settle()
	return r
}

// watchOver makes a server that was not started yet a sentinel of the master.
func watchOver(s, master *Server) {
	s.file, s.certificates, s.clientCertificates = true, master.certificates, master.clientCertificates
	s.sentinel = []string{
		"--sentinel", "monitor", sentinelSet, "127.0.0.1", master.port(), "2",
		"--sentinel", "down-after-milliseconds", sentinelSet, downAfter,
		"--sentinel", "failover-timeout", sentinelSet, failoverTimeout,
		"--sentinel", "parallel-syncs", sentinelSet, "2",
	}
	if p := master.admin.password; p != "" {
		s.sentinel = append(s.sentinel, "--sentinel", "auth-pass", sentinelSet, p)
	}
	if Before7() {
		return // They have their own times: slow, but right.
	}
	s.tune = func() error {
		_, err := s.Try(append([]string{"SENTINEL", "DEBUG"}, sentinelTimes...)...)
		return err
	}
}

// Option leads a client to the sentinels.
func (r *RedisSentinel) Option() rueidis.ClientOption {
	o := r.servers[0].access()
	for _, s := range r.sentinels {
		o.InitAddress = append(o.InitAddress, s.addr)
	}
	o.Sentinel = rueidis.SentinelOption{MasterSet: sentinelSet, TLSConfig: o.TLSConfig}
	return o
}

// Servers are the master and the replicas, whether they run or not.
func (r *RedisSentinel) Servers() []*Server { return slices.Clone(r.servers) }

// Sentinels are those that watch over the servers, whether they run or not.
func (r *RedisSentinel) Sentinels() []*Server { return slices.Clone(r.sentinels) }

// Master waits until all sentinels that run name the same master, and returns it. It may be down.
func (r *RedisSentinel) Master() *Server {
	r.t.Helper()
	var master *Server
	settle(r.t, "a master", r.sentinels, func() (err error) {
		master, err = r.agreed()
		return err
	})
	return master
}

// route sends a command to the master, as soon as there is one.
func (r *RedisSentinel) route(args ...string) (any, error) {
	if len(running(r.sentinels)) == 0 {
		return nil, errors.New("redistest: no sentinel runs")
	}
	return r.Master().Try(args...)
}

// agreed returns the master that all running sentinels name.
func (r *RedisSentinel) agreed() (*Server, error) {
	var master *Server
	for _, s := range running(r.sentinels) {
		its, err := s.pairs("SENTINEL", "MASTER", sentinelSet)
		if err != nil {
			return nil, err
		}
		named := r.byPort(its["port"])
		if named == nil || master != nil && named != master {
			return nil, fmt.Errorf("a sentinel names port %s, another a different one", its["port"])
		}
		master = named
	}
	if master == nil {
		return nil, errors.New("no sentinel runs")
	}
	return master, nil
}

func (r *RedisSentinel) byPort(port string) *Server {
	for _, s := range r.servers {
		if s.port() == port {
			return s
		}
	}
	return nil
}

// Failover asks the sentinels for another master, waits until all servers and sentinels have come to terms
// with it, the old master included if it runs, and returns the new one.
func (r *RedisSentinel) Failover() *Server {
	r.t.Helper()
	old := r.Master()
	changed := func() error {
		master, err := r.agreed()
		if err == nil && master == old {
			err = fmt.Errorf("%s is still the master", old.addr)
		}
		return err
	}
	settle(r.t, "a failover", append(r.Servers(), r.sentinels...), func() error {
		// It may refuse for a while: one is under way, or what it knows of the replicas is old.
		if _, err := running(r.sentinels)[0].Try("SENTINEL", "FAILOVER", sentinelSet); err != nil {
			return errors.Join(err, changed())
		}
		return until(promotion, changed)
	})
	r.Settle()
	return r.Master()
}

// Settle waits until all that run know each other and who the master is, which runs too, and the replicas
// follow it.
func (r *RedisSentinel) Settle() {
	r.t.Helper()
	settle(r.t, "a Sentinel set", append(r.Servers(), r.sentinels...), r.unsettled)
}

func (r *RedisSentinel) unsettled() error {
	master, err := r.agreed()
	if err != nil {
		return err
	}
	for _, s := range running(r.sentinels) {
		if err := r.unaware(s); err != nil {
			return fmt.Errorf("the sentinel %s: %w", s.addr, err)
		}
	}
	for _, s := range running(r.servers) {
		if s == master {
			continue
		}
		if err := follows(master, s); err != nil {
			return err
		}
	}
	return nil
}

// unaware says what a sentinel has not noticed yet.
func (r *RedisSentinel) unaware(sentinel *Server) error {
	for _, look := range []struct {
		command, flags string
		servers        []*Server
		count          int
	}{
		{"MASTERS", "master", r.servers, 1},
		{"REPLICAS", "slave", r.servers, sentinelReplicas},
		{"SENTINELS", "sentinel", r.sentinels, sentinels - 1},
	} {
		args := []string{"SENTINEL", look.command}
		if look.command != "MASTERS" {
			args = append(args, sentinelSet)
		}
		reply, err := sentinel.Try(args...)
		if err != nil {
			return err
		}
		entries, _ := reply.([]any)
		if len(entries) != look.count {
			return fmt.Errorf("%s has %d entries, not %d", look.command, len(entries), look.count)
		}
		for _, e := range entries {
			its := pairs(e)
			up := slices.ContainsFunc(look.servers, func(s *Server) bool { return s.port() == its["port"] && s.Running() })
			// A sentinel of Valkey 9.1 can remember for ever that another one once saw the master as down.
			if flags := strings.TrimSuffix(its["flags"], ",master_down"); up != (flags == look.flags) {
				return fmt.Errorf("%s has port %s as %s", look.command, its["port"], its["flags"])
			}
			// What it has not heard yet, it may mend in the middle of the next failover.
			if role, ok := its["role-reported"]; up && ok && role != look.flags {
				return fmt.Errorf("%s has port %s as one that says it is a %s", look.command, its["port"], role)
			}
		}
	}
	return nil
}

// pairs is Try for a reply that is a list of names and values.
func (s *Server) pairs(args ...string) (map[string]string, error) {
	reply, err := s.Try(args...)
	return pairs(reply), err
}

func pairs(reply any) map[string]string {
	list, _ := reply.([]any)
	found := map[string]string{}
	for i := 0; i+1 < len(list); i += 2 {
		name, _ := list[i].(string)
		found[name], _ = list[i+1].(string)
	}
	return found
}

// Keys returns the names of all keys on the master.
func (r *RedisSentinel) Keys() []string {
	r.t.Helper()
	return r.Master().Keys()
}

// Kill ends all servers and sentinels at once.
func (r *RedisSentinel) Kill() { killAll(append(r.Servers(), r.sentinels...)) }

// Restart kills what runs and starts the set again as it was, without its data.
func (r *RedisSentinel) Restart() {
	r.t.Helper()
	r.Kill()
	// Servers first, or the sentinels begin with a master that is down.
	if err := all(r.servers, (*Server).start); err != nil {
		r.t.Fatal(err)
	}
	if err := all(r.sentinels, (*Server).start); err != nil {
		r.t.Fatal(err)
	}
	r.Settle()
}
