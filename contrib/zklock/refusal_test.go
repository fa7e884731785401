package zklock_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/contrib/zklock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/zktest"
	"github.com/headwaiter/headwaiter/lease"
)

func proved(user string) func(*zklock.Options) {
	return func(o *zklock.Options) { o.Auth = []zklock.Auth{{Scheme: "digest", Secret: []byte(user + ":secret")}} }
}

func TestOnlyWhoMayGetsIn(t *testing.T) {
	t.Parallel()
	s := zktest.Shared(t)
	r := zktest.NewRelay(t, s)
	a, b := zklock.New(dial(t, s, proved("a"), through(r)), "one"), zklock.New(dial(t, s, proved("a")), "one")
	l := locked(t, a)
	waits := queued(t, b, 1)
	acl, _, err := admin(t, s).GetACL(one(t))
	require.ErrorIs(t, err, zk.ErrNoAuth, "%v", acl)
	for _, user := range []func(*zklock.Options){proved("b"), func(*zklock.Options) {}} {
		other := zklock.New(dial(t, s, user), "one")
		for _, call := range []*kit.Call[struct{}]{
			kit.Run(func() error { _, err := other.Lock(t.Context()); return err }),
			kit.Run(func() error { _, err := other.TryLock(t.Context()); return err }),
			kit.Run(func() error { _, err := other.Inspect(t.Context()); return err }),
			kit.Run(func() error { _, err := other.ForceRelease(t.Context(), 0); return err }),
		} {
			err := call.Err(t)
			require.ErrorIs(t, err, zk.ErrNoAuth)
			require.ErrorContains(t, err, "Options.Auth")
		}
	}
	r.Cut() // The next connection proves itself too.
	kit.Release(t, l)
	kit.Release(t, waits.Value(t))
	kit.Release(t, locked(t, a))
}

// The caller's nodes are not always the client's to change.
func TestAPrefixThatIsNotTheClientsIsRefused(t *testing.T) {
	t.Parallel()
	s := zktest.Shared(t)
	root := admin(t, s)
	_, err := root.Create(prefix(t), nil, zk.FlagPersistent, zk.WorldACL(zk.PermRead|zk.PermAdmin))
	require.NoError(t, err)
	_, err = zklock.New(dial(t, s), "one").Lock(t.Context())
	require.ErrorIs(t, err, zk.ErrNoAuth)
	require.ErrorContains(t, err, `zklock: lock "one": waited`)
	require.ErrorContains(t, err, one(t)+" is refused")
}

func TestSchemesAndACLsThatAreNoneAreRefused(t *testing.T) {
	t.Parallel()
	s := zktest.Shared(t)
	_, err := zklock.New(dial(t, s, func(o *zklock.Options) { o.Auth = []zklock.Auth{{Scheme: "unheard"}} }), "one").Lock(t.Context())
	require.ErrorIs(t, err, zk.ErrAuthFailed)
	require.ErrorContains(t, err, "the identity of scheme unheard is refused")
	_, err = zklock.New(dial(t, s, func(o *zklock.Options) { o.ACL = zk.AuthACL(zk.PermAll) }), "one").Lock(t.Context())
	require.ErrorIs(t, err, zk.ErrInvalidACL)
	require.ErrorContains(t, err, "Options.ACL")
}

func TestAddressesWhereNoZooKeeperIs(t *testing.T) {
	t.Parallel()
	s := zktest.Shared(t)
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, nobody.Close())
	web := httptest.NewServer(nil)
	defer web.Close()
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer mute.Close()
	for address, want := range map[string]string{
		nobody.Addr().String():       "connection refused",
		web.Listener.Addr().String(): "", // It answers as it likes.
		"nobody.invalid":             "nobody.invalid",
		mute.Addr().String():         "ended the connection before it answered",
		"127.0.0.1:1":                "connection refused",
	} {
		m := zklock.New(dial(t, s, func(o *zklock.Options) { o.Servers, o.Lease = []string{address}, zklock.MinLease }), "one")
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second/2)
		begun := time.Now()
		_, err := m.Lock(ctx)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Less(t, time.Since(begun), 5*time.Second)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "last error")
	}
}

// What does not speak the protocol is told apart, before it is believed how much it is going to say.
func TestAnAnswerThatIsNoneIsTold(t *testing.T) {
	t.Parallel()
	s := zktest.Shared(t)
	strange, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := strange.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 400 Bad Request\r\n\r\n")
			all.Go(func() { _, _ = io.Copy(io.Discard, conn); conn.Close() })
		}
	})
	t.Cleanup(func() { strange.Close(); all.Wait() })
	m := zklock.New(dial(t, s, func(o *zklock.Options) { o.Servers = []string{strange.Addr().String()} }), "one")
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = m.Lock(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "does not answer as ZooKeeper does")
}

// One of several servers is enough.
func TestServersThatAreAwayArePassedOver(t *testing.T) {
	t.Parallel()
	s := zktest.Shared(t)
	r := zktest.NewRelay(t, s)
	m := zklock.New(dial(t, s, lasting(kit.Patience), func(o *zklock.Options) {
		o.Servers = []string{"127.0.0.1:1", r.Addr(), "127.0.0.1:2", s.Address()}
	}), "one")
	for range 3 {
		l := locked(t, m)
		r.Cut()
		kit.Release(t, l)
		r.Away()
		kit.Release(t, locked(t, m))
		r.Heal()
	}
}

// A server that is encrypted, as far as the client sees: behind one that ends TLS.
func TestConnectionsAreEncrypted(t *testing.T) {
	t.Parallel()
	s := zktest.Shared(t)
	web := httptest.NewUnstartedServer(nil)
	web.StartTLS() // For its certificate, which names example.com and 127.0.0.1.
	defer web.Close()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: web.TLS.Certificates})
	require.NoError(t, err)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { relay(client, s.Address()) })
		}
	})
	t.Cleanup(func() { l.Close(); all.Wait() })
	roots := x509.NewCertPool()
	roots.AddCert(web.Certificate())
	encrypted := func(config *tls.Config) func(*zklock.Options) {
		return func(o *zklock.Options) { o.Servers, o.TLS = []string{l.Addr().String()}, config }
	}
	for _, name := range []string{"", "example.com"} {
		m := zklock.New(dial(t, s, encrypted(&tls.Config{RootCAs: roots, ServerName: name})), "one")
		kit.Release(t, locked(t, m))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = zklock.New(dial(t, s, encrypted(&tls.Config{})), "one").Lock(ctx)
	require.ErrorContains(t, err, "certificate")
}

// relay passes everything on.
func relay(client net.Conn, address string) {
	defer client.Close()
	server, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { _, _ = io.Copy(server, client); server.Close() })
	both.Go(func() { _, _ = io.Copy(client, server); client.Close() })
	both.Wait()
}

func TestOptionsThatCannotBe(t *testing.T) {
	t.Parallel()
	here := []string{"127.0.0.1:1"}
	for want, o := range map[string]zklock.Options{
		"no servers":                   {},
		`the server "a:b:c"`:           {Servers: []string{"a:b:c:"}},
		"a lease of 1ms":               {Servers: here, Lease: time.Millisecond},
		"a lease of 48h":               {Servers: here, Lease: 48 * time.Hour},
		"does not begin with a slash":  {Servers: here, Prefix: "locks"},
		"that no node may be called":   {Servers: here, Prefix: "/a/../b"},
		"bytes that cannot be printed": {Servers: here, Prefix: "/a\nb"},
	} {
		_, err := zklock.Dial(o)
		require.ErrorContains(t, err, "zklock: ")
		require.ErrorContains(t, err, strings.TrimSuffix(want, `c"`))
	}
	c, err := zklock.Dial(zklock.Options{Servers: append(here, "localhost", "::1", "[::1]")})
	require.NoError(t, err)
	_, err = zklock.New(c, "one", zklock.WithMaxHold(-1)).Lock(t.Context())
	require.ErrorIs(t, err, lease.ErrInvalid)
	_, err = zklock.New(c, "one", zklock.WithMaxStall(time.Microsecond)).Lock(t.Context())
	require.ErrorIs(t, err, lease.ErrInvalid)
	require.Equal(t, "one", zklock.New(c, "one").Name())
	require.NoError(t, c.Close(t.Context()))
	_, err = zklock.New(c, "one").Lock(t.Context())
	require.ErrorIs(t, err, lease.ErrClosed)
}

// Names that are paths, or parts of them, are names like others, below any prefix.
func TestNamesAndPrefixes(t *testing.T) {
	t.Parallel()
	s := zktest.Shared(t)
	for _, below := range []string{prefix(t), prefix(t) + "/", prefix(t) + "/a/b", "/"} {
		c := dial(t, s, func(o *zklock.Options) { o.Prefix = below })
		for _, name := range []string{"a", "a/b", ".", "..", "/", "zookeeper", kit.Name(t)} {
			kit.Release(t, locked(t, zklock.New(c, name)))
		}
	}
	for _, name := range []string{"", "a\x00", "\uf8ff", "\xff", "\u0085"} {
		_, err := zklock.New(dial(t, s), name).Lock(t.Context())
		require.ErrorIs(t, err, lease.ErrInvalid)
	}
}
