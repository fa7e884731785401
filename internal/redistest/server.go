package redistest

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/redis/rueidis"
)

// Ports are taken from below the range from which systems take the local ports of connections (32768 and
// up on Linux, 49152 elsewhere), so that a restarted server finds its port free again. The nodes of a
// cluster talk to each other on a second port, which is always that much higher.
const (
	firstPort   = 20000
	lastPort    = 30000
	lastBusPort = 32768
	busDistance = 10000
)

// Server is a redis-server process on a loopback port, with its data in a folder of the test.
type Server struct {
	admin
	dir   string
	extra []string
	env   []string // added to its environment

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

	mu      sync.Mutex // guards the fields below
	proc    *process   // nil while the server is down
	stopped bool
}

// Start runs a redis-server for the test, empty and without persistence, and returns when it answers.
// It ends with the test. The binary is redis-server from the PATH, or what HEADWAITER_REDIS_SERVER names;
// if there is none the test fails.
func Start(t testing.TB, opts ...Option) *Server {
	t.Helper()
	s := newServer(t, opts...)
	if err := s.open(); err != nil {
		t.Fatal(err)
	}
	return s
}

// newServer makes a server that was not started yet.
func newServer(t testing.TB, opts ...Option) *Server {
	t.Helper()
	s := &Server{dir: t.TempDir()}
	s.admin.bind(t, s.dial)
	s.renamed = map[string]string{}
	for _, o := range opts {
		o(s)
	}
	t.Cleanup(s.Kill)
	return s
}

// startAll starts several servers at once.
func startAll(t testing.TB, n int, opts ...Option) []*Server {
	t.Helper()
	servers := make([]*Server, n)
	for i := range servers {
		servers[i] = newServer(t, opts...)
	}
	if err := all(servers, (*Server).open); err != nil {
		t.Fatal(err)
	}
	return servers
}

// open finds a place for the server and starts it there.
func (s *Server) open() error {
	// Between the look for a free port and the server's own bind another test may take it: then the next.
	for {
		if err := s.place(); err != nil {
			return err
		}
		err := s.start()
		if err == nil || !strings.Contains(err.Error(), portTakenText) {
			return err
		}
	}
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

func (s *Server) place() (err error) {
	if s.socket != "" {
		s.addr = filepath.Join(s.socket, "redis.sock")
		return nil
	}
	if s.addr, err = free(s.bus); err != nil || !s.file {
		return err
	}
	return os.WriteFile(s.config(), []byte(lines(s.args())), 0o600)
}

// freeAddr returns a loopback address on which nobody listens.
func freeAddr(t testing.TB) string {
	t.Helper()
	addr, err := free(false)
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

// free returns a loopback address on which nobody listens, with a second port for the bus of a cluster.
func free(bus bool) (string, error) {
	last := lastPort
	if bus {
		last = lastBusPort - busDistance
	}
	span := last - firstPort
	first := rand.IntN(span)
	for i := range span {
		port := firstPort + (first+i)%span
		if listens(port) || bus && listens(port+busDistance) {
			continue
		}
		return loopback(port), nil
	}
	return "", fmt.Errorf("redistest: no free port from %d to %d", firstPort, last)
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// listens says whether somebody has the port.
func listens(port int) bool {
	l, err := net.Listen("tcp", loopback(port))
	if err == nil {
		l.Close()
	}
	return err != nil
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

// access is what a client needs for this server beside its address.
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
	s.mu.Lock()
	if s.proc != nil {
		s.proc.kill()
		s.proc, s.stopped = nil, false
	}
	s.mu.Unlock()
	s.admin.hangUp()
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
	proc, err := launch(s.command(), s.env...)
	s.mu.Lock()
	s.proc = proc
	s.mu.Unlock()
	if err != nil {
		return err
	}
	if s.keep {
		if _, err := s.Try("PING"); err != nil {
			return err
		}
	}
	if s.tune != nil {
		return s.tune()
	}
	return nil
}

// Running says whether the server can answer: it was not killed or stopped, and has not ended by itself.
func (s *Server) Running() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc != nil && !s.stopped && s.proc.running()
}

// Stop suspends the server with SIGSTOP: its connections stay open and nothing answers.
func (s *Server) Stop() {
	s.t.Helper()
	s.signal(syscall.SIGSTOP)
}

// Cont lets a stopped server go on.
func (s *Server) Cont() {
	s.t.Helper()
	s.signal(syscall.SIGCONT)
}

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		s.t.Fatalf("redistest: %v for a server that is down", sig)
	}
	if err := s.proc.signal(sig); err != nil {
		s.t.Fatalf("redistest: %v: %v", sig, err)
	}
	s.stopped = sig == syscall.SIGSTOP
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
