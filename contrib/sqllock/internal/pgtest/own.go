package pgtest

import (
	"testing"

	"github.com/headwaiter/headwaiter/internal/testenv/postgres"
)

// Own starts a server for this test alone, which may be restarted.
func Own(t testing.TB) *postgres.Server {
	t.Helper()
	s, err := postgres.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}
