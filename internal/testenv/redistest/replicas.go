package redistest

import (
	"fmt"
	"testing"

	"github.com/redis/rueidis"
)

// copies lets a master begin a copy for a replica when it asks, and what it writes after that go on at once.
// The diskless way that is the default waits five seconds before the copy, and up to one after it. The
// price is a file, in which a server that is restarted would find its data; see [Server.forgets].
func copies(s *Server) {
	s.copies = true
	s.extra = append(s.extra, "--repl-diskless-sync", "no")
}

// RedisReplicas is a master with replicas, and nobody who watches over them. Its commands go to the master.
// A server that is restarted follows nobody until [RedisReplicas.Rejoin].
type RedisReplicas struct {
	commands
	servers []*Server // the master first
}

// Replicated starts a master with replicas and returns when all are linked.
func Replicated(t testing.TB, replicas int, opts ...Option) *RedisReplicas {
	t.Helper()
	r := &RedisReplicas{servers: startAll(t, 1+replicas, append([]Option{copies}, opts...)...)}
	r.commands = commands{t: t, try: func(args ...string) (any, error) { return r.Master().Try(args...) }}
	for _, s := range r.Replicas() {
		s.follow(r.Master())
	}
	for _, s := range r.Replicas() {
		r.linked(s)
	}
	return r
}

// follow makes a server a replica.
func (s *Server) follow(master *Server) {
	s.t.Helper()
	s.Do("REPLICAOF", "127.0.0.1", master.port())
}

func (r *RedisReplicas) linked(replica *Server) {
	r.t.Helper()
	master := r.Master()
	settle(r.t, "a replica", r.servers, func() error { return follows(master, replica) })
}

// Option leads a client to the master.
func (r *RedisReplicas) Option() rueidis.ClientOption { return r.Master().Option() }

// Master is the master, whether it runs or not.
func (r *RedisReplicas) Master() *Server { return r.servers[0] }

// Replicas are the other servers, also those that were cut off.
func (r *RedisReplicas) Replicas() []*Server { return r.servers[1:] }

// Cut ends the replica's link to its master: it keeps what it has and hears nothing more. What the master
// writes from now on is not on it. A replica that is only stopped would find it in its socket.
func (r *RedisReplicas) Cut(replica *Server) {
	r.t.Helper()
	replica.Do("REPLICAOF", "127.0.0.1", "1") // Nobody listens there.
	master := r.Master()
	settle(r.t, "a replica to be cut off", r.servers, func() error {
		if !master.Running() {
			return nil
		}
		state, err := master.replica(replica)
		if err == nil && state != "" {
			err = fmt.Errorf("%s is %q to its master", replica.addr, state)
		}
		return err
	})
}

// Rejoin makes a server follow the present master, which may cost it what it wrote itself, and returns when
// it has what the master has.
func (r *RedisReplicas) Rejoin(replica *Server) {
	r.t.Helper()
	replica.follow(r.Master())
	r.linked(replica)
}
