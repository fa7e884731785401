// Package pgtest gives tests a Postgres: one server for the tests of a package, and a database of its own for each
// test. A missing Postgres fails the test; nothing here skips.
package pgtest

import (
	"database/sql"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // The driver.
	"go.uber.org/goleak"

	"github.com/headwaiter/headwaiter/internal/postgres"
)

// shared is the server of this process.
var shared struct {
	once   sync.Once
	server *postgres.Server
	err    error
	made   atomic.Int64 // databases
}

// Main runs the tests of a package, ends the server, and fails the package if goroutines stay behind.
func Main(m *testing.M) {
	goleak.VerifyTestMain(stopping{m}, goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"))
}

// stopping is a run of tests with the end of the server behind it.
type stopping struct{ *testing.M }

func (s stopping) Run() int {
	defer func() {
		if shared.server != nil {
			shared.server.Stop()
		}
	}()
	return s.M.Run()
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
	shared.once.Do(func() { shared.server, shared.err = postgres.Start() })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	name := fmt.Sprintf("test_%d_%d", os.Getpid(), shared.made.Add(1))
	admin := open(t, shared.server.URL("postgres"))
	if _, err := admin.ExecContext(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	return shared.server.URL(name)
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
