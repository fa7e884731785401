package redistest

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/internal/testenv/daemon"
	"github.com/headwaiter/headwaiter/internal/testenv/evidence"
)

// busDistance is how much higher the second port is on which the nodes of a cluster talk to each other.
const busDistance = 10000

// Server is a redis-server process on a loopback port, with its data in a folder of the test.
type Server struct {
	admin
	daemon *daemon.Server
	extra  []string
	env    []string // added to its environment

	user, userPassword string        // whom Option logs in, "" for the default user
	certificates       *Certificates // nil without TLS
	clientCertificates bool          // whether clients must have one
	socket             string        // the folder of its socket, "" for a port
	bus                bool          // whether it is a node of a cluster and needs a second port
	file               bool          // whether it has its arguments from a file, in which it may change them
	copies             bool          // whether its data goes to replicas by a file
	sentinel           []string      // for a sentinel: the arguments that make it one
	tune               func() error  // what is to be set after each start

	addr string // set before Start returns
}

// Start runs a redis-server for the test, empty and without persistence, and returns when it answers.
// It ends with the test. The binary is redis-server from the PATH, or what HEADWAITER_REDIS_SERVER names;
// if there is none the test fails.
func Start(t testing.TB, opts ...Option) *Server {
	t.Helper()
	s := newServer(t, opts...)
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	return s
}

// newServer makes a server that was not started yet.
func newServer(t testing.TB, opts ...Option) *Server {
	t.Helper()
	s := &Server{}
	s.admin.bind(t, s.dial)
	s.renamed = map[string]string{}
	for _, o := range opts {
		o(s)
	}
	o := daemon.Options{
		Name: "redis-server", Ports: 1, Place: s.place, Command: s.command, Texts: []string{readyText, sentinelText}, Limit: startLimit,
	}
	switch {
	case s.socket != "":
		o.Ports = 0
	case s.bus:
		o.Distances = []int{busDistance}
	}
	var err error
	if s.daemon, err = daemon.New(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.daemon.Kill()
		s.daemon.Stop()
	})
	return s
}

// startAll starts several servers at once.
func startAll(t testing.TB, n int, opts ...Option) []*Server {
	t.Helper()
	servers := make([]*Server, n)
	for i := range servers {
		servers[i] = newServer(t, opts...)
	}
	if err := all(servers, (*Server).start); err != nil {
		t.Fatal(err)
	}
	return servers
}

// all does the same to several servers at once, and returns when it is done.
func all(servers []*Server, do func(*Server) error) error {
	errs := make([]error, len(servers))
	var done sync.WaitGroup
	for i, s := range servers {
		done.Go(func() { errs[i] = do(s) })
	}
	done.Wait()
	return errors.Join(errs...)
}

// place is called when the server has its port, and none for a socket.
func (s *Server) place() error {
	if s.socket != "" {
		s.addr = filepath.Join(s.socket, "redis.sock")
		return nil
	}
	s.addr = s.daemon.Address(0)
	if !s.file {
		return nil
	}
	return os.WriteFile(s.config(), []byte(lines(s.args())), 0o600)
}

// Addr returns host and port of the server, or the path of its socket, the same over restarts.
func (s *Server) Addr() string { return s.addr }

// port is what the address ends with.
func (s *Server) port() string {
	_, port, _ := net.SplitHostPort(s.addr)
	return port
}

// dial is how the test's own commands reach the server.
func (s *Server) dial() (net.Conn, error) {
	switch {
	case s.socket != "":
		return net.Dial("unix", s.addr)
	case s.certificates != nil:
		// The limit is for the handshake: with a stopped server there is none.
		return tls.DialWithDialer(&net.Dialer{Timeout: adminLimit}, "tcp", s.addr, s.certificates.client(s.clientCertificates))
	}
	return net.Dial("tcp", s.addr)
}

// Option leads a client to the server.
func (s *Server) Option() rueidis.ClientOption {
	o := s.access()
	o.InitAddress, o.ForceSingleClient = []string{s.addr}, true
	return o
}

// access is what a client needs for this server in addition to its address.
func (s *Server) access() rueidis.ClientOption {
	o := rueidis.ClientOption{Username: s.user, Password: s.userPassword, DisableCache: true}
	if s.user == "" {
		o.Password = s.admin.password
	}
	if s.certificates != nil {
		o.TLSConfig = s.certificates.client(s.clientCertificates)
	}
	if s.socket != "" {
		o.DialCtxFn = func(ctx context.Context, path string, dialer *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", path)
		}
	}
	return o
}

// Kill ends the server with SIGKILL, also a stopped one, and returns when it is gone.
func (s *Server) Kill() {
	if s.daemon.Running() {
		evidence.Fault(s.t, "server killed", 1)
	}
	s.daemon.Kill()
}

// Restart kills the server if it runs and starts it again on its port. It is empty, unless the arguments
// made it keep its data.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	if err := s.start(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *Server) start() error {
	s.forget()
	if err := s.forgets(); err != nil {
		return err
	}
	if err := s.daemon.Start(); err != nil {
		return err
	}
	if s.tune != nil {
		return s.tune()
	}
	return nil
}

// Running says whether the server can answer: it was not killed or stopped, and has not ended by itself.
func (s *Server) Running() bool { return s.daemon.Running() }

// Stop suspends the server with SIGSTOP: its connections stay open and nothing answers.
func (s *Server) Stop() {
	s.t.Helper()
	s.done(s.daemon.Freeze())
	evidence.Fault(s.t, "server stopped", 1)
}

// Cont lets a stopped server go on.
func (s *Server) Cont() {
	s.t.Helper()
	s.done(s.daemon.Thaw())
}

func (s *Server) done(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// Keys returns the names of all keys.
func (s *Server) Keys() []string {
	s.t.Helper()
	return s.List("KEYS", "*")
}

// CommandStats reads the server's own statistics; see [Backend]. Before Redis 7 subcommands are not told
// apart.
func (s *Server) CommandStats() map[string]int64 {
	s.t.Helper()
	all := map[string]int64{}
	lines := bufio.NewScanner(strings.NewReader(s.Text("INFO", "commandstats")))
	for lines.Scan() {
		name, rest, ok := strings.Cut(strings.TrimPrefix(lines.Text(), "cmdstat_"), ":calls=")
		if !ok {
			continue
		}
		calls, _, _ := strings.Cut(rest, ",")
		n, err := strconv.ParseInt(calls, 10, 64)
		if err != nil {
			s.t.Fatalf("redistest: INFO commandstats: %q: %v", lines.Text(), err)
		}
		all[name] = n
	}
	// The INFO that was just sent is not in its own answer, but in those to come.
	all["info"]++
	return s.others(all)
}

// ResetStats starts CommandStats again from zero.
func (s *Server) ResetStats() {
	s.t.Helper()
	s.Do("CONFIG", "RESETSTAT")
	s.forget("config|resetstat") // It counts itself.
}
