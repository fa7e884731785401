// Package pgtest gives tests a Postgres: one server for the tests of a package, and a database of its own for each
// test. A missing Postgres fails the test; nothing here skips.
package pgtest

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // The driver.

	"github.com/headwaiter/headwaiter/internal/testenv/daemon"
	"github.com/headwaiter/headwaiter/internal/testenv/leaks"
	"github.com/headwaiter/headwaiter/internal/testenv/postgres"
)

// shared is the server of this process.
var shared = daemon.Shared[*postgres.Server]{Start: postgres.Start}

// made counts the databases.
var made atomic.Int64

// Main runs the tests of a package, ends the server, and fails the package if goroutines are left.
func Main(m *testing.M) {
	leaks.Main(shared.Around(m))
}

// Open returns an empty database, which is closed with the test. The first call starts the server, which takes
// about two seconds; it ends with [Main].
func Open(t testing.TB) *sql.DB {
	t.Helper()
	return open(t, URL(t))
}

// URL leads to an empty database, as with [Open].
func URL(t testing.TB) string {
	t.Helper()
	url, err := Make(t.Context())
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	return url
}

// Make is URL for examples, which have no test to fail.
func Make(ctx context.Context) (string, error) {
	server, err := shared.Get()
	if err != nil {
		return "", err
	}
	name := fmt.Sprintf("test_%d_%d", os.Getpid(), made.Add(1))
	admin, err := sql.Open("pgx", server.URL("postgres"))
	if err != nil {
		return "", err
	}
	defer admin.Close()
	if _, err := admin.ExecContext(ctx, "CREATE DATABASE "+name); err != nil {
		return "", err
	}
	return server.URL(name), nil
}

func open(t testing.TB, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("pgtest: close: %v", err)
		}
	})
	return db
}
