package redistest

import (
	"bufio"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/redis/rueidis"
)

// Ports are taken from below the range from which systems take the local ports of connections (32768 and
// up on Linux, 49152 elsewhere), so that a restarted server finds its port free again.
const (
	firstPort = 20000
	lastPort  = 32000
)

// An Option changes how [Start] starts a server.
type Option func(*Server)

// WithArgs adds arguments to the command line of redis-server, where they override those before:
// WithArgs("--appendonly", "yes", "--appendfsync", "always") keeps the data over a Restart.
func WithArgs(args ...string) Option {
	return func(s *Server) { s.extra = append(s.extra, args...) }
}

// Server is a redis-server process on a loopback port, with its data in a folder of the test.
type Server struct {
	admin
	dir   string
	extra []string
	env   []string // added to its environment
	addr  string   // set before Start returns

	mu   sync.Mutex // guards proc
	proc *process   // nil while the server is down
}

// Start runs a redis-server for the test, empty and without persistence, and returns when it answers.
// It ends with the test. The binary is redis-server from the PATH, or what HEADWAITER_REDIS_SERVER names;
// if there is none the test fails.
func Start(t testing.TB, opts ...Option) *Server {
	t.Helper()
	s := &Server{dir: t.TempDir()}
	s.admin.t = t
	s.admin.dial = func() (net.Conn, error) { return net.Dial("tcp", s.addr) }
	for _, o := range opts {
		o(s)
	}
	t.Cleanup(s.Kill)
	// Between the look for a free port and the server's own bind another test may take it: then the next.
	for {
		s.addr = freeAddr(t)
		err := s.start()
		if err == nil {
			return s
		}
		if !strings.Contains(err.Error(), portTakenText) {
			t.Fatal(err)
		}
	}
}

// freeAddr returns a loopback address on which nobody listens.
func freeAddr(t testing.TB) string {
	t.Helper()
	span := lastPort - firstPort
	first := rand.IntN(span)
	for i := range span {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(firstPort+(first+i)%span))
		if l, err := net.Listen("tcp", addr); err == nil {
			l.Close()
			return addr
		}
	}
	t.Fatalf("redistest: no free port from %d to %d", firstPort, lastPort)
	return ""
}

func (s *Server) args() []string {
	host, port, _ := net.SplitHostPort(s.addr)
	args := []string{
		"--bind", host, "--port", port, "--dir", s.dir,
		"--save", "", "--appendonly", "no", "--daemonize", "no", "--logfile", "",
	}
	args = append(args, debugArgs()...)
	return append(args, s.extra...)
}

// Addr returns host and port of the server, the same over restarts.
func (s *Server) Addr() string { return s.addr }

// Option leads a client to the server.
func (s *Server) Option() rueidis.ClientOption {
	return rueidis.ClientOption{InitAddress: []string{s.addr}, ForceSingleClient: true, DisableCache: true}
}

// Kill ends the server with SIGKILL, also a stopped one, and returns when it is gone.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc != nil {
		s.proc.kill()
		s.proc = nil
	}
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
	proc, err := launch(s.args(), s.env...)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proc = proc
	return err
}

// Stop suspends the server with SIGSTOP: its connections stay open and nothing answers.
func (s *Server) Stop() { s.signal(syscall.SIGSTOP) }

// Cont lets a stopped server go on.
func (s *Server) Cont() { s.signal(syscall.SIGCONT) }

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
