package etcdtest

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/headwaiter/headwaiter/internal/testenv/daemon"
)

// unsynced has a server answer before its disk does: a busy disk may need longer than a lease, and no test cuts the power.
const unsynced = "--unsafe-no-fsync"

// shared is the server of this process.
var shared = daemon.Shared[*Server]{Start: func() (*Server, error) { return Start(unsynced) }}

// Main runs the tests of a package, ends the server, and fails the package if goroutines are left.
func Main(m *testing.M) { goleak.VerifyTestMain(shared.Around(m)) }

// Shared returns the server that all tests of a package use. Its first call starts it; it ends with [Main].
func Shared(t testing.TB) *Server {
	t.Helper()
	return shared.For(t)
}

// Own returns a server for one test, which may kill it; args are as with [Start].
func Own(t testing.TB, args ...string) *Server {
	t.Helper()
	return daemon.Own(t, func() (*Server, error) { return Start(append(args, unsynced)...) })
}

// Cluster returns three members for one test.
func Cluster(t testing.TB) []*Server {
	t.Helper()
	all, err := StartCluster(3, unsynced)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(all) })
	return all
}
