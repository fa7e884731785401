package goredis_test

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/contrib/goredis"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/leaks"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// works lets the go-redis client ask the server something, and two clients of Headwaiter with these options hand a lock on.
// It returns one of them.
func works(t *testing.T, rdb redis.UniversalClient, o headwaiter.Options, err error) *headwaiter.Client {
	t.Helper()
	require.NoError(t, err)
	t.Cleanup(func() { _ = rdb.Close() })
	require.NoError(t, rdb.Set(t.Context(), "of go-redis", "1", 0).Err())
	var clients [2]*headwaiter.Client
	for i := range clients {
		clients[i], err = headwaiter.Dial(o)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, clients[i].Shutdown(context.Background())) })
	}
	held := kit.Got(fairlock.New(clients[0], "orders").Lock(t.Context()))(t)
	next := kit.Run(func() error {
		return fairlock.New(clients[1], "orders").Do(t.Context(), func(context.Context) error { return nil })
	})
	require.NoError(t, held.Release(t.Context()))
	require.NoError(t, next.Err(t))
	return clients[0]
}

// connections are the lines of CLIENT LIST with the name.
func connections(list, name string) (found []string) {
	for line := range strings.Lines(list) {
		if strings.Contains(line, " name="+name+" ") {
			found = append(found, line)
		}
	}
	return found
}

func TestAServerWithPasswordAndDatabase(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.WithPassword("secret"))
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr(), Password: "secret", DB: 3, ClientName: "importer", IdentitySuffix: "orders"})
	o, err := goredis.Options(rdb)
	works(t, rdb, o, err)
	ours := connections(s.Text("CLIENT", "LIST"), "importer")
	require.Greater(t, len(ours), 3, "those of go-redis, and more")
	for _, line := range ours {
		require.Contains(t, line, " db=3 ")
	}
	locks := kit.Got(rdb.Keys(t.Context(), "headwaiter:*").Result())(t)
	require.NotEmpty(t, locks, "the locks are in another database")
}

func TestAUserAndRESP2(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.WithUser("app", "secret", "~*", "&*", "+@all"))
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr(), Username: "app", Password: "secret", Protocol: 2, ClientName: "importer"})
	o, err := goredis.Options(rdb)
	works(t, rdb, o, err)
	for _, line := range connections(s.Text("CLIENT", "LIST"), "importer") {
		require.Contains(t, line, " user=app ")
		require.Contains(t, line, " resp=2")
	}
}

// go-redis logs nobody in without a password, as with redis://user@host.
func TestAUserWithoutAPasswordIsNotLoggedIn(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr(), Username: "nobody"})
	o, err := goredis.Options(rdb)
	works(t, rdb, o, err)
}

func TestAServerThatWantsClientCertificates(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.WithTLS(redistest.NewCertificates(t)), redistest.WithClientCertificates())
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr(), TLSConfig: s.Option().TLSConfig})
	o, err := goredis.Options(rdb)
	works(t, rdb, o, err)
}

func TestAUnixSocket(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.WithUnixSocket(), redistest.WithPassword("secret"))
	for _, network := range []string{"unix", ""} {
		rdb := redis.NewClient(&redis.Options{Network: network, Addr: s.Addr(), Password: "secret"})
		o, err := goredis.Options(rdb)
		works(t, rdb, o, err)
	}
	u := kit.Got(redis.ParseURL("unix://:secret@" + s.Addr()))(t)
	o, err := goredis.From(u)
	works(t, redis.NewClient(u), o, err)
}

// The caller's function makes each connection; TLS is its own affair.
func TestADialer(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.WithTLS(redistest.NewCertificates(t)))
	var dialled atomic.Int32
	options := &redis.Options{Addr: "redis.invalid:1", Dialer: func(ctx context.Context, network, address string) (net.Conn, error) {
		dialled.Add(1)
		require.Equal(t, "tcp redis.invalid:1", network+" "+address)
		return (&tls.Dialer{Config: s.Option().TLSConfig}).DialContext(ctx, network, s.Addr())
	}}
	o := kit.Got(goredis.From(options))(t)
	rdb := redis.NewClient(options)
	works(t, rdb, o, nil)
	require.Greater(t, dialled.Load(), int32(3), "those of go-redis, and more")
	o = kit.Got(goredis.Options(rdb))(t)
	require.NotNil(t, o.Redis.DialCtxFn, "a client has the Dialer that it was given")
}

// The functions are asked again for each new connection.
func TestCredentialsThatChange(t *testing.T) {
	t.Parallel()
	var password atomic.Value
	for name, options := range map[string]*redis.Options{
		"without a context": {CredentialsProvider: func() (string, string) { return "app", password.Load().(string) }},
		"with a context": {CredentialsProviderContext: func(context.Context) (string, string, error) {
			return "app", password.Load().(string), nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := redistest.Start(t, redistest.WithUser("app", "old", "~*", "&*", "+@all"))
			password.Store("old")
			options.Addr = s.Addr()
			rdb := redis.NewClient(options)
			o, err := goredis.Options(rdb)
			c := works(t, rdb, o, err)
			s.Do("ACL", "SETUSER", "app", "resetpass", ">new")
			password.Store("new")
			s.Do("CLIENT", "KILL", "USER", "app")
			held := kit.Got(fairlock.New(c, "orders").Lock(t.Context()))(t)
			require.NoError(t, held.Release(t.Context()))
		})
	}
}

// The sentinels have a user of their own, also where a function has the credentials of the servers.
func TestSentinels(t *testing.T) {
	t.Parallel()
	s := redistest.Sentinel(t, redistest.WithTLS(redistest.NewCertificates(t)), redistest.WithClientCertificates(),
		redistest.WithPassword("secret"))
	options := &redis.FailoverOptions{
		MasterName: s.Option().Sentinel.MasterSet, TLSConfig: s.Option().TLSConfig, DB: 2, ClientName: "importer",
		SentinelUsername: "sentry", SentinelPassword: "of sentinels",
		CredentialsProvider: func() (string, string) { return "default", "secret" },
	}
	for _, sentinel := range s.Sentinels() {
		sentinel.Do("ACL", "SETUSER", "sentry", "on", ">of sentinels", "allchannels", "+@all")
		options.SentinelAddrs = append(options.SentinelAddrs, sentinel.Addr())
	}
	o, err := goredis.From(options)
	c := works(t, redis.NewFailoverClient(options), o, err)
	asked := 0
	for _, sentinel := range s.Sentinels() {
		for _, line := range connections(sentinel.Text("CLIENT", "LIST"), "importer") {
			asked++
			require.Contains(t, line, " user=sentry ")
		}
	}
	require.NotZero(t, asked)

	s.Failover()
	held, err := fairlock.New(c, "orders").Lock(t.Context())
	require.NoError(t, err)
	require.NoError(t, held.Release(t.Context()))

	universal := &redis.UniversalOptions{
		Addrs: options.SentinelAddrs, MasterName: options.MasterName, TLSConfig: options.TLSConfig, Password: "secret",
		SentinelUsername: "sentry", SentinelPassword: "of sentinels",
	}
	o, err = goredis.From(universal)
	works(t, redis.NewUniversalClient(universal), o, err)
}

func TestACluster(t *testing.T) {
	t.Parallel()
	s := redistest.Cluster(t, redistest.WithTLS(redistest.NewCertificates(t)), redistest.WithPassword("secret"))
	universal := &redis.UniversalOptions{
		Addrs: s.Option().InitAddress, TLSConfig: s.Option().TLSConfig, Password: "secret", RouteByLatency: true,
	}
	o, err := goredis.From(universal)
	works(t, redis.NewUniversalClient(universal), o, err)

	// One node tells of the others.
	one := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: s.Option().InitAddress[:1], TLSConfig: s.Option().TLSConfig,
		CredentialsProvider: func() (string, string) { return "", "secret" },
		Dialer: func(ctx context.Context, network, address string) (net.Conn, error) {
			return (&tls.Dialer{Config: s.Option().TLSConfig}).DialContext(ctx, network, address)
		},
	})
	o, err = goredis.Options(one)
	works(t, one, o, err)
}
