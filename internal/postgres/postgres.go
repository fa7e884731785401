// Package postgres starts a Postgres for tests and examples: on a free loopback port, with its data in a temporary
// folder, as another user where this is root. It knows no driver, so that the core module needs none.
package postgres

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// startLimit is far above what a start takes.
	startLimit = time.Minute
	// What Postgres logs when it is ready, and when somebody else has its port.
	readyText     = "database system is ready to accept connections"
	portTakenText = "Address already in use"

	// Ports are taken from below the range of the local ports of connections.
	firstPort = 20000
	lastPort  = 32000
)

// Server is a Postgres with its data in a folder of its own. It ends with this process at the latest.
type Server struct {
	dir  string
	port int
	as   *syscall.SysProcAttr

	cmd   *exec.Cmd
	guard *exec.Cmd     // ends the server if this process ends without Stop
	line  *os.File      // the guard's standard input, open as long as this process lives
	ready chan struct{} // closed when the server accepts connections
	ended chan struct{} // closed when it has ended and log is complete

	mu  sync.Mutex // guards log
	log []string
}

// Start makes a server with the user postgres and no passwords, and returns when it is ready, which takes about two
// seconds. Where Postgres is missing the error says what to install.
func Start() (*Server, error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	s := &Server{}
	if s.dir, err = os.MkdirTemp("", "headwaiter-postgres-"); err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	if err := s.unprivileged(); err != nil {
		s.Stop()
		return nil, err
	}
	initdb := exec.Command(filepath.Join(bin, "initdb"), "--pgdata", s.data(), "--username", "postgres",
		"--auth", "trust", "--encoding", "UTF8", "--no-locale", "--no-sync", "--no-instructions")
	initdb.Dir, initdb.SysProcAttr = s.dir, s.as
	if out, err := initdb.CombinedOutput(); err != nil {
		s.Stop()
		return nil, fmt.Errorf("postgres: initdb: %w\n%s", err, out)
	}
	// Between the look for a free port and the server's own bind another may take it: then the next.
	for {
		if s.port, err = freePort(); err == nil {
			err = s.run(filepath.Join(bin, "postgres"))
		}
		if err == nil {
			return s, nil
		}
		s.kill()
		if !strings.Contains(err.Error(), portTakenText) {
			s.Stop()
			return nil, err
		}
	}
}

// binaries is the folder of initdb and postgres: HEADWAITER_POSTGRES_BIN, one on the PATH, or where the packages of
// Debian and of Homebrew put it. The error says what to install.
func binaries() (string, error) {
	if dir := os.Getenv("HEADWAITER_POSTGRES_BIN"); dir != "" {
		return dir, nil
	}
	if path, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(path), nil
	}
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin/initdb", "/opt/homebrew/opt/postgresql@*/bin/initdb",
		"/usr/local/opt/postgresql@*/bin/initdb",
	} {
		found, err := filepath.Glob(pattern)
		if err == nil && len(found) > 0 {
			slices.Sort(found)
			return filepath.Dir(found[len(found)-1]), nil
		}
	}
	return "", errors.New("postgres: there is none here: install it with `apt-get install postgresql` or " +
		"`brew install postgresql@17`, or name the folder of initdb and postgres in HEADWAITER_POSTGRES_BIN")
}

// unprivileged lets the server run as another user if this is root, which Postgres refuses.
func (s *Server) unprivileged() error {
	if os.Geteuid() != 0 {
		return nil
	}
	owner, err := user.Lookup("postgres")
	if err != nil {
		if owner, err = user.Lookup("nobody"); err != nil {
			return fmt.Errorf("postgres: Postgres does not run as root, and there is nobody else: %w", err)
		}
	}
	uid, err1 := strconv.ParseUint(owner.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(owner.Gid, 10, 32)
	if err := errors.Join(err1, err2, os.Chown(s.dir, int(uid), int(gid))); err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	s.as = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	return nil
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// URL leads a client to a database. There is one of the name postgres.
func (s *Server) URL(database string) string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/%s?sslmode=disable", s.port, database)
}

// run starts the server without what makes it survive a crash of the machine, and waits until it is ready.
func (s *Server) run(binary string) error {
	settings := map[string]string{
		"listen_addresses": "127.0.0.1", "port": strconv.Itoa(s.port), "unix_socket_directories": "",
		"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "max_connections": "100",
	}
	args := []string{"-D", s.data()}
	for name, value := range settings {
		args = append(args, "-c", name+"="+value)
	}
	s.log, s.ready, s.ended = nil, make(chan struct{}), make(chan struct{})
	s.cmd = exec.Command(binary, args...)
	s.cmd.Dir, s.cmd.SysProcAttr = s.dir, s.as
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	s.cmd.Stderr = s.cmd.Stdout
	if err := s.cmd.Start(); err != nil {
		s.cmd = nil
		return fmt.Errorf("postgres: %w", err)
	}
	go s.follow(bufio.NewScanner(out))
	if err := s.watch(); err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	limit := time.NewTimer(startLimit)
	defer limit.Stop()
	select {
	case <-s.ready:
		return nil
	case <-s.ended:
		return fmt.Errorf("postgres: Postgres ended at its start:\n%s", s.text())
	case <-limit.C:
		return fmt.Errorf("postgres: Postgres was not ready within %v:\n%s", startLimit, s.text())
	}
}

// follow collects the log, and tells from it when the server is ready.
func (s *Server) follow(log *bufio.Scanner) {
	defer close(s.ended)
	ready := false
	for log.Scan() {
		s.mu.Lock()
		s.log = append(s.log, log.Text())
		s.mu.Unlock()
		if !ready && strings.Contains(log.Text(), readyText) {
			ready = true
			close(s.ready)
		}
	}
	// How it ended does not matter: it only has to be gone.
	_ = s.cmd.Wait()
}

// watch starts the guard: a shell that waits for the end of its input, which comes when this process ends in
// whatever way, and then ends the server and removes its data.
func (s *Server) watch() error {
	input, line, err := os.Pipe()
	if err != nil {
		return err
	}
	defer input.Close()
	script := `trap '' HUP INT QUIT TERM; read line; kill -QUIT "$1"; n=0
		while kill -0 "$1" 2>/dev/null && [ $n -lt 100 ]; do n=$((n+1)); sleep 0.1; done; rm -rf "$2"`
	s.guard = exec.Command("/bin/sh", "-c", script, "guard", strconv.Itoa(s.cmd.Process.Pid), s.dir)
	s.guard.Stdin, s.line = input, line
	return s.guard.Start()
}

// kill ends the server at once and waits for its end. The guard goes first: later the process id might be
// somebody else's.
func (s *Server) kill() {
	if s.guard != nil && s.guard.Process != nil {
		_ = s.guard.Process.Kill()
		_ = s.guard.Wait()
		_ = s.line.Close()
		s.guard = nil
	}
	if s.cmd != nil {
		// Immediate shutdown: its processes end too, and nobody needs the data.
		_ = s.cmd.Process.Signal(syscall.SIGQUIT)
		<-s.ended
		s.cmd = nil
	}
}

// Stop ends the server and removes its data.
func (s *Server) Stop() {
	s.kill()
	_ = os.RemoveAll(s.dir)
}

func (s *Server) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.log, "\n")
}

// freePort returns a port of the loopback address on which nobody listens.
func freePort() (int, error) {
	span := lastPort - firstPort
	first := rand.IntN(span)
	for i := range span {
		port := firstPort + (first+i)%span
		if l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			l.Close()
			return port, nil
		}
	}
	return 0, fmt.Errorf("postgres: no free port from %d to %d", firstPort, lastPort)
}
