// Package redistest gives tests a Redis: a real redis-server of their own ([Start]), an embedded one on
// loopback ([Mini]), or an embedded one without any socket for testing/synctest bubbles ([Bubble]).
//
// It also starts what Redis is in production: servers with TLS, users, a socket, or commands taken away
// ([Option]), a master with replicas ([Replicated]), a set under sentinels ([Sentinel]), a cluster
// ([Cluster]); [Deployments] lists them for tests that must pass on all. A sentinel is redis-server with
// another argument, so that is the one program needed.
//
// Every server belongs to one test, is empty when it starts and ends with the test. A missing
// redis-server fails the test; nothing here skips.
//
// What the embedded server cannot do, so that a test needs a real one: sharded channels, CLIENT KILL,
// CONFIG, DEBUG, rights, limits of memory, persistence, replicas, and the classes of errors in scripts.
package redistest

import (
	"testing"

	"github.com/redis/rueidis"
)

// A Backend is a Redis server that belongs to one test, real or embedded.
type Backend interface {
	// Option leads a client to the server. The caller may add to it.
	Option() rueidis.ClientOption

	// Do runs one command on a connection of its own and returns the reply: an int64, a string, nil or
	// a []any of these. An error fails the test at once.
	Do(args ...string) any
	// Try is Do for commands that may fail.
	Try(args ...string) (any, error)
	// Int is Do for replies that are a number.
	Int(args ...string) int64
	// Text is Do for replies that are a string; nil is "".
	Text(args ...string) string
	// List is Do for replies that are a list of strings.
	List(args ...string) []string

	// CommandStats counts the commands that ran since the start or the last ResetStats, by name in lower
	// case, those inside scripts too, those of this interface not: "evalsha", "pubsub|numsub". PING is left out: a
	// client asks with it, by its clock, whether its connection lives.
	CommandStats() map[string]int64
	// ResetStats starts CommandStats again from zero.
	ResetStats()

	// Kill ends the server at once; its connections break.
	Kill()
	// Restart kills the server if it runs and starts it again at the same address, empty unless its
	// arguments say otherwise.
	Restart()
}

var (
	_ Backend = (*Server)(nil)
	_ Backend = (*Embedded)(nil)
)

// Each runs a case twice: as subtest "miniredis" on an embedded server and as subtest "redis" on a real
// one.
func Each(t *testing.T, run func(t *testing.T, s Backend)) {
	t.Helper()
	t.Run("miniredis", func(t *testing.T) { run(t, Mini(t)) })
	t.Run("redis", func(t *testing.T) { run(t, Start(t)) })
}
