package redistest

import (
	"slices"
	"strings"
	"testing"

	"github.com/redis/rueidis"
)

// A Target is a deployment of Redis that belongs to one test: a [Server], a [RedisSentinel] or a
// [RedisCluster]. It is what all of them can keep to. Statistics are not here, because those of a server
// under sentinels count what these ask; nor is it for commands without a key, which on a cluster are for
// one node.
type Target interface {
	// Option leads a client to the deployment. The caller may add to it.
	Option() rueidis.ClientOption

	// Do and the others run one command with a key on the master that has it; see [Backend].
	Do(args ...string) any
	Try(args ...string) (any, error)
	Int(args ...string) int64
	Text(args ...string) string
	List(args ...string) []string
	// Keys returns the names of all keys on all masters.
	Keys() []string

	// Kill ends all of it at once.
	Kill()
	// Restart kills what runs and starts all of it again, at the same addresses, with the roles that it had,
	// and without data unless its arguments say otherwise.
	Restart()
}

var (
	_ Target = (*Server)(nil)
	_ Target = (*RedisSentinel)(nil)
	_ Target = (*RedisCluster)(nil)
)

// A Deployment is a way in which Redis is run, with what a test must know of it.
type Deployment struct {
	Name    string
	RESP3   bool // whether clients may speak RESP3; all may speak RESP2
	Cluster bool
	Sharded bool // whether it is a cluster with sharded channels

	// Start starts one for the test, with further options for each server, such as [WithUser].
	Start func(t testing.TB, opts ...Option) Target
}

// Deployments are the ways in which Redis is run, without TLS where the redis-server was built so.
func Deployments() []Deployment {
	single := func(also func(t testing.TB) []Option) func(testing.TB, ...Option) Target {
		return func(t testing.TB, opts ...Option) Target {
			t.Helper()
			return Start(t, append(also(t), opts...)...)
		}
	}
	these := func(opts ...Option) func(testing.TB) []Option {
		return func(testing.TB) []Option { return opts }
	}
	cluster := func(also ...Option) func(testing.TB, ...Option) Target {
		return func(t testing.TB, opts ...Option) Target {
			t.Helper()
			return Cluster(t, append(also[:len(also):len(also)], opts...)...)
		}
	}
	overTLS := func(t testing.TB) []Option {
		return []Option{WithTLS(NewCertificates(t)), WithClientCertificates(), WithPassword("secret")}
	}
	sentinel := func(t testing.TB, opts ...Option) Target {
		t.Helper()
		return Sentinel(t, opts...)
	}
	all := []Deployment{
		{Name: "single", RESP3: true, Start: single(these())},
		{Name: "RESP2 only", Start: single(these(WithoutRESP3()))},
		{Name: "no CONFIG and CLIENT", RESP3: true, Start: single(these(WithoutCommands("CONFIG", "CLIENT")))},
		{Name: "TLS, client certificates, password", RESP3: true, Start: single(overTLS)},
		{Name: "unix socket", RESP3: true, Start: single(these(WithUnixSocket()))},
		{Name: "Sentinel", RESP3: true, Start: sentinel},
		{Name: "cluster", RESP3: true, Cluster: true, Sharded: !Before7(), Start: cluster()},
		{Name: "cluster without sharded channels", RESP3: true, Cluster: true, Start: cluster(WithoutShardedChannels())},
	}
	if !speaksTLS() {
		all = slices.DeleteFunc(all, func(d Deployment) bool { return strings.HasPrefix(d.Name, "TLS") })
	}
	return all
}
