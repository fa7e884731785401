// Package mariadb starts a MariaDB for tests: on a free loopback port, with its data in a temporary folder, as another
// user where this is root. It knows no driver, so that the core module needs none.
package mariadb

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/headwaiter/headwaiter/internal/testenv/daemon"
)

// readyText is what MariaDB logs when it is ready.
const readyText = "ready for connections"

// Server is a MariaDB with its data in a folder of its own. It ends with this process at the latest.
type Server struct {
	// Server has Stop, which removes the data.
	*daemon.Server

	server string // mariadbd
}

// Start makes a server with the user root and no passwords, and returns when it is ready, which takes some seconds.
// Where MariaDB is missing the error says what to install.
func Start() (*Server, error) {
	binary, install, err := binaries()
	if err != nil {
		return nil, err
	}
	as, err := daemon.Unprivileged("mysql", "nobody")
	if err != nil {
		return nil, fmt.Errorf("mariadb: it does not run as root: %w", err)
	}
	s := &Server{server: binary}
	s.Server, err = daemon.New(daemon.Options{
		Name: "MariaDB", Ports: 1, Attr: as, Command: s.command, Texts: []string{readyText},
	})
	if err != nil {
		return nil, err
	}
	fill := exec.Command(install, "--no-defaults", "--datadir="+s.data(), "--auth-root-authentication-method=normal",
		"--skip-test-db", "--skip-name-resolve", "--innodb-flush-log-at-trx-commit=0")
	fill.Dir, fill.SysProcAttr = s.Dir(), as
	if out, err := fill.CombinedOutput(); err != nil {
		s.Stop()
		return nil, fmt.Errorf("mariadb: mariadb-install-db: %w\n%s", err, out)
	}
	if err := s.Start(); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

// binaries are mariadbd and mariadb-install-db: those in HEADWAITER_MARIADB_BIN, on the PATH, or where the packages of
// Debian put them. The error says what to install.
func binaries() (server, install string, err error) {
	look := func(name string) string {
		if dir := os.Getenv("HEADWAITER_MARIADB_BIN"); dir != "" {
			return filepath.Join(dir, name)
		}
		for _, place := range []string{name, "/usr/sbin/" + name} {
			if path, err := exec.LookPath(place); err == nil {
				return path
			}
		}
		return ""
	}
	if server, install = look("mariadbd"), look("mariadb-install-db"); server == "" || install == "" {
		return "", "", errors.New("mariadb: there is none here: install it with `apt-get install mariadb-server` or " +
			"`brew install mariadb`, or name the folder of mariadbd and mariadb-install-db in HEADWAITER_MARIADB_BIN")
	}
	return server, install, nil
}

func (s *Server) data() string { return filepath.Join(s.Dir(), "data") }

// Address is where it serves: a loopback address and a port.
func (s *Server) Address() string { return s.Server.Address(0) }

// command runs the server without what makes it survive a crash of the machine.
func (s *Server) command() (*exec.Cmd, error) {
	return exec.Command(s.server, "--no-defaults", "--datadir="+s.data(), "--bind-address=127.0.0.1",
		"--port="+strconv.Itoa(s.Port(0)), "--socket="+filepath.Join(s.Dir(), "socket"),
		"--pid-file="+filepath.Join(s.Dir(), "pid"), "--skip-name-resolve",
		"--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=32M"), nil
}
