package redistest

import (
	"os"
	"strings"
	"testing"
)

// An Option changes how a server is started. Where several servers are, each gets it.
type Option func(*Server)

// WithArgs adds arguments to the command line of redis-server, where they override those before:
// WithArgs("--appendonly", "yes", "--appendfsync", "always") keeps the data over a Restart.
func WithArgs(args ...string) Option {
	return func(s *Server) { s.extra = append(s.extra, args...) }
}

// WithPassword makes the server ask for a password, in the way of requirepass.
func WithPassword(password string) Option {
	return func(s *Server) { s.admin.password = password }
}

// operatorPassword is the default user's on servers that have other users, so that a client that forgets to
// log in is refused.
const operatorPassword = "operator"

// WithUser makes a user with the given rights, as in ACL SETUSER, as whom Option logs in. The commands of
// the test itself keep all rights.
func WithUser(name, password string, rules ...string) Option {
	return func(s *Server) {
		s.user, s.userPassword = name, password
		s.extra = append(s.extra, "--user", name, "on", ">"+password)
		s.extra = append(s.extra, rules...)
		if s.admin.password == "" {
			s.admin.password = operatorPassword
		}
	}
}

// WithUnixSocket makes the server listen on a socket in the file system, and on nothing else. Servers that
// know each other need ports.
func WithUnixSocket() Option {
	return func(s *Server) { s.socket = socketFolder(s.t) }
}

// socketFolder makes a folder with a short name: the path of a socket may have about a hundred bytes, and
// the folder of a test is named for the test.
func socketFolder(t testing.TB) string {
	dir, err := os.MkdirTemp("", "redis")
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// WithoutCommands takes commands away by renaming them, as providers do: to clients they are unknown. The
// commands of the test itself have them under their own names.
//
// A command inside another, such as PUBSUB SHARDNUMSUB, cannot be taken away so.
func WithoutCommands(names ...string) Option {
	return func(s *Server) {
		for _, name := range names {
			own := strings.ToUpper(name)
			s.renamed[own] = "redistest." + own
			s.extra = append(s.extra, "--rename-command", own, s.renamed[own])
		}
	}
}

// WithoutRESP3 makes a server that knows RESP2 only, as before Redis 6.
func WithoutRESP3() Option { return WithoutCommands("HELLO") }

// WithoutShardedChannels stands for a cluster before Redis 7, and is nothing on one. The version is the one
// that it is, and PUBSUB SHARDNUMSUB still answers, that nobody listens.
func WithoutShardedChannels() Option {
	if Before7() {
		return func(*Server) {}
	}
	return WithoutCommands("SSUBSCRIBE", "SUNSUBSCRIBE", "SPUBLISH")
}
