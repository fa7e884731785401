package pgtest

import (
	"testing"

	"github.com/headwaiter/headwaiter/internal/testenv/daemon"
	"github.com/headwaiter/headwaiter/internal/testenv/postgres"
)

// Own starts a server for this test alone, which may be restarted.
func Own(t testing.TB) *postgres.Server {
	t.Helper()
	return daemon.Own(t, postgres.Start)
}
