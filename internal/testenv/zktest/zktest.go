package zktest

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/headwaiter/headwaiter/internal/testenv/daemon"
)

// shared is the server of this process.
var shared = daemon.Shared[*Server]{Start: func() (*Server, error) { return Start() }}

// Main runs the tests of a package, ends the server, and fails the package if goroutines are left.
func Main(m *testing.M) { goleak.VerifyTestMain(shared.Around(m)) }

// Shared returns the server that all tests of a package use. Its first call starts it; it ends with [Main].
func Shared(t testing.TB) *Server {
	t.Helper()
	return shared.For(t)
}

// Own returns a server for one test, which may kill it.
func Own(t testing.TB) *Server {
	t.Helper()
	return daemon.Own(t, func() (*Server, error) { return Start() })
}
