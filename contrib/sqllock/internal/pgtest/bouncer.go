package pgtest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/headwaiter/headwaiter/internal/testenv/daemon"
)

// Bouncer starts a PgBouncer in transaction mode, with three connections for all, and returns the address of a database
// through it. It ends with the test.
func Bouncer(t testing.TB, address string) string {
	t.Helper()
	return bouncer(t, address, "transaction")
}

// SessionBouncer is Bouncer in session mode: three clients at a time have one connection each.
func SessionBouncer(t testing.TB, address string) string {
	t.Helper()
	return bouncer(t, address, "session")
}

const bouncerConfig = `[databases]
* = host=%s port=%s user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = %s
default_pool_size = 3
max_client_conn = 500
`

func bouncer(t testing.TB, address, mode string) string {
	t.Helper()
	binary, err := exec.LookPath("pgbouncer")
	if err != nil {
		if binary, err = exec.LookPath("/usr/sbin/pgbouncer"); err != nil {
			t.Fatalf("pgtest: PgBouncer is missing: install it with `apt-get install pgbouncer` or `brew install pgbouncer`: %v", err)
		}
	}
	u, err := url.Parse(address)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	as, err := daemon.Unprivileged("postgres", "nobody")
	if err != nil {
		t.Fatalf("pgtest: PgBouncer does not run as root: %v", err)
	}
	host, port := u.Hostname(), u.Port() // Of Postgres: from here on the address leads to PgBouncer.
	var s *daemon.Server
	file := func() string { return filepath.Join(s.Dir(), "pgbouncer.ini") }
	s, err = daemon.New(daemon.Options{
		Name: "PgBouncer", Ports: 1, Attr: as,
		Place: func() error {
			u.Host = s.Address(0)
			// Whoever it runs as has to read it.
			return os.WriteFile(file(), fmt.Appendf(nil, bouncerConfig, host, port, s.Port(0), mode), 0o644)
		},
		Command: func() (*exec.Cmd, error) { return exec.Command(binary, file()), nil },
		Ready:   func(ctx context.Context) bool { return answers(ctx, u.String()) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("PgBouncer:\n%s", s.Log())
		}
		s.Stop()
	})
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	return u.String()
}

// answers says whether one can connect to an address.
func answers(ctx context.Context, address string) bool {
	config, err := pgx.ParseConfig(address)
	if err != nil {
		return false
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return false
	}
	_ = conn.Close(ctx)
	return true
}
