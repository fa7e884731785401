// Package postgres starts a Postgres for tests and benchmarks: on a free loopback port, with its data in a temporary
// folder, as another user where this is root. It knows no driver, so that the core module needs none.
package postgres

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"github.com/headwaiter/headwaiter/internal/testenv/daemon"
)

// readyText is what Postgres logs when it is ready.
const readyText = "database system is ready to accept connections"

// Server is a Postgres with its data in a folder of its own. It ends with this process at the latest.
type Server struct {
	// Server knows the process that all others of the server descend from, and its Stop removes the data.
	*daemon.Server

	bin string
}

// Start makes a server with the user postgres and no passwords, and returns when it is ready, which takes about two
// seconds. Where Postgres is missing the error says what to install.
func Start() (*Server, error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	as, err := daemon.Unprivileged("postgres", "nobody")
	if err != nil {
		return nil, fmt.Errorf("postgres: it does not run as root: %w", err)
	}
	s := &Server{bin: bin}
	s.Server, err = daemon.New(daemon.Options{
		Name: "Postgres", Ports: 1, Attr: as, Command: s.command, Texts: []string{readyText},
		// Immediate shutdown: its processes end too, and nobody needs the data.
		Quit: syscall.SIGQUIT,
	})
	if err != nil {
		return nil, err
	}
	initdb := exec.Command(filepath.Join(bin, "initdb"), "--pgdata", s.data(), "--username", "postgres",
		"--auth", "trust", "--encoding", "UTF8", "--no-locale", "--no-sync", "--no-instructions")
	initdb.Dir, initdb.SysProcAttr = s.Dir(), as
	if out, err := initdb.CombinedOutput(); err != nil {
		s.Stop()
		return nil, fmt.Errorf("postgres: initdb: %w\n%s", err, out)
	}
	if err := s.Start(); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
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

func (s *Server) data() string { return filepath.Join(s.Dir(), "data") }

// URL leads a client to a database. There is one of the name postgres.
func (s *Server) URL(database string) string {
	return fmt.Sprintf("postgres://postgres@%s/%s?sslmode=disable", s.Address(0), database)
}

// command runs the server without what makes it survive a crash of the machine.
func (s *Server) command() (*exec.Cmd, error) {
	settings := map[string]string{
		"listen_addresses": "127.0.0.1", "port": strconv.Itoa(s.Port(0)), "unix_socket_directories": "",
		"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "max_connections": "400",
	}
	args := []string{"-D", s.data()}
	for name, value := range settings {
		args = append(args, "-c", name+"="+value)
	}
	return exec.Command(filepath.Join(s.bin, "postgres"), args...), nil
}

// Restart ends the server at once, without what it would do at a shutdown, and starts it again with its data and on its
// port.
func (s *Server) Restart() error {
	s.Kill()
	return s.Start()
}
