package zklock_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/contrib/zklock"
	"github.com/headwaiter/headwaiter/internal/engine"
	"github.com/headwaiter/headwaiter/internal/testenv/enginetest"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/zktest"
	"github.com/headwaiter/headwaiter/lease"
)

func proved(user string) func(*zklock.Options) {
	return func(o *zklock.Options) { o.Auth = []zklock.Auth{{Scheme: "digest", Secret: []byte(user + ":secret")}} }
}

func TestOnlyWhoMayGetsIn(t *testing.T) {
	s := shared(t)
	r := zktest.NewRelay(t, s)
	a, b := zklock.New(dial(t, s, proved("a"), through(r)), "one"), zklock.New(dial(t, s, proved("a")), "one")
	l, waits := locked(t, a), queued(t, b, 1)
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
			kit.Fails(t, call.Err(t), zk.ErrNoAuth, "Options.Auth")
		}
	}
	r.Cut() // The next connection proves itself too.
	kit.PassOn(t, l, waits)
	kit.Release(t, locked(t, a))
}

// The caller's nodes are not always the client's to change.
func TestAPrefixThatIsNotTheClientsIsRefused(t *testing.T) {
	s := shared(t)
	root := admin(t, s)
	require.NoError(t, kit.Err(root.Create(prefix(t), nil, zk.FlagPersistent, zk.WorldACL(zk.PermRead|zk.PermAdmin))))
	_, err := zklock.New(dial(t, s), "one").Lock(t.Context())
	kit.Fails(t, err, zk.ErrNoAuth, `zklock: lock "one": waited`, one(t)+" is refused")
}

func TestSchemesAndACLsThatAreNoneAreRefused(t *testing.T) {
	s := shared(t)
	_, err := zklock.New(dial(t, s, func(o *zklock.Options) { o.Auth = []zklock.Auth{{Scheme: "unheard"}} }), "one").Lock(t.Context())
	kit.Fails(t, err, zk.ErrAuthFailed, "the identity of scheme unheard is refused")
	_, err = zklock.New(dial(t, s, func(o *zklock.Options) { o.ACL = zk.AuthACL(zk.PermAll) }), "one").Lock(t.Context())
	kit.Fails(t, err, zk.ErrInvalidACL, "Options.ACL")
}

func TestAddressesWhereNoZooKeeperIs(t *testing.T) {
	s := shared(t)
	nobody := kit.Got(net.Listen("tcp", "127.0.0.1:0"))(t)
	require.NoError(t, nobody.Close())
	web := httptest.NewServer(nil)
	defer web.Close()
	mute := kit.Got(net.Listen("tcp", "127.0.0.1:0"))(t)
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
		kit.Fails(t, err, want, "last error")
	}
}

// What does not speak the protocol is told apart, before it is believed how much it is going to say.
func TestAnAnswerThatIsNoneIsTold(t *testing.T) {
	s := shared(t)
	strange := kit.Got(net.Listen("tcp", "127.0.0.1:0"))(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() {
		for tries := 0; ; tries++ {
			conn, err := strange.Accept()
			if err != nil {
				return
			}
			if tries > 0 { // What the first was answered is known now.
				cancel()
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 400 Bad Request\r\n\r\n")
			all.Go(func() { _, _ = io.Copy(io.Discard, conn); conn.Close() })
		}
	})
	t.Cleanup(func() { strange.Close(); all.Wait() })
	m := zklock.New(dial(t, s, func(o *zklock.Options) { o.Servers = []string{strange.Addr().String()} }), "one")
	kit.Fails(t, kit.Err(m.Lock(ctx)), context.Canceled, "does not answer as ZooKeeper does")
}

// One of several servers is enough.
func TestServersThatAreAwayArePassedOver(t *testing.T) {
	s := shared(t)
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

// A server that is encrypted, as far as the client sees: a proxy in front of it ends TLS.
func TestConnectionsAreEncrypted(t *testing.T) {
	s := shared(t)
	web := httptest.NewUnstartedServer(nil)
	web.StartTLS() // For its certificate, which names example.com and 127.0.0.1.
	defer web.Close()
	l := kit.Got(tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: web.TLS.Certificates}))(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	var refused atomic.Int64
	all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			if client.(*tls.Conn).Handshake() != nil && refused.Add(1) > 1 { // What became of the first is known now.
				cancel()
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
	require.ErrorContains(t, kit.Err(zklock.New(dial(t, s, encrypted(&tls.Config{})), "one").Lock(ctx)), "certificate")
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
		kit.Fails(t, kit.Err(zklock.Dial(o)), "zklock: ", strings.TrimSuffix(want, `c"`))
	}
	c := kit.Got(zklock.Dial(zklock.Options{Servers: append(here, "localhost", "::1", "[::1]")}))(t)
	require.ErrorIs(t, kit.Err(zklock.New(c, "one", zklock.WithMaxHold(-1)).Lock(t.Context())), lease.ErrInvalid)
	require.ErrorIs(t, kit.Err(zklock.New(c, "one", zklock.WithMaxStall(time.Microsecond)).Lock(t.Context())), lease.ErrInvalid)
	require.Equal(t, "one", zklock.New(c, "one").Name())
	require.NoError(t, c.Shutdown(t.Context()))
	require.ErrorIs(t, kit.Err(zklock.New(c, "one").Lock(t.Context())), lease.ErrClosed)
}

// Names that are paths, or parts of them, are names like others, below any prefix.
func TestNamesAndPrefixes(t *testing.T) {
	s := shared(t)
	for _, below := range []string{prefix(t), prefix(t) + "/", prefix(t) + "/a/b", "/"} {
		c := dial(t, s, func(o *zklock.Options) { o.Prefix = below })
		for _, name := range []string{"a", "a/b", ".", "..", "/", "zookeeper", kit.Name(t)} {
			kit.Release(t, locked(t, zklock.New(c, name)))
		}
	}
	for _, name := range []string{"", "a\x00", "\uf8ff", "\xff", "\u0085"} {
		require.ErrorIs(t, kit.Err(zklock.New(dial(t, s), name).Lock(t.Context())), lease.ErrInvalid)
	}
}

// rig is what the tests that are shared with other engines need.
func rig(t testing.TB, s *zktest.Server) enginetest.Rig {
	return enginetest.Rig{
		Server: s,
		Dial: func(t testing.TB, lasts time.Duration) enginetest.Client {
			c := dial(t, s, lasting(lasts))
			return enginetest.Client{Close: c.Shutdown, Mutex: func(name string, ends engine.Limits) enginetest.Mutex {
				return zklock.New(c, name, zklock.WithMaxHold(ends.Hold), zklock.WithMaxStall(ends.Stall))
			}}
		},
		Empty: func(t testing.TB) { empty(t, admin(t, s)) },
	}
}

// shared is the server that parallel tests use.
func shared(t *testing.T) *zktest.Server {
	t.Parallel()
	return zktest.Shared(t)
}

// dial returns a client that is closed with the test, with nodes of the test's own.
func dial(t testing.TB, s *zktest.Server, changes ...func(*zklock.Options)) *zklock.Client {
	t.Helper()
	o := zklock.Options{Servers: []string{s.Address()}, Prefix: prefix(t), Name: "test", Lease: enginetest.Short}
	for _, change := range changes {
		change(&o)
	}
	c := kit.Got(zklock.Dial(o))(t)
	kit.Closing(t, c.Shutdown)
	return c
}

func lasting(d time.Duration) func(*zklock.Options) { return func(o *zklock.Options) { o.Lease = d } }

// through leads a client to the server of a relay.
func through(r *zktest.Relay) func(*zklock.Options) {
	return func(o *zklock.Options) { o.Servers = []string{r.Addr()} }
}

func prefix(t testing.TB) string { return "/" + kit.Name(t) }

// one is where the nodes of the lock called one are.
func one(t testing.TB) string { return prefix(t) + "/mutex/one" }

// silent logs nothing.
type silent struct{}

func (silent) Printf(string, ...any) {}

// admin is the library's own connection, to look at what is there and to take it away.
func admin(t testing.TB, s *zktest.Server) *zk.Conn {
	t.Helper()
	conn, events, err := zk.Connect([]string{s.Address()}, kit.Patience, zk.WithLogger(silent{}), zk.WithLogInfo(false))
	require.NoError(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range events {
		}
	}()
	t.Cleanup(func() { conn.Close(); <-ended })
	return conn
}

// nodes are those in line for the lock called one, in no order.
func nodes(t testing.TB, root *zk.Conn) []string {
	t.Helper()
	names, _, err := root.Children(one(t))
	if err == zk.ErrNoNode {
		return nil
	}
	require.NoError(t, err)
	return names
}

// delete1 removes the node of a ticket.
func delete1(t testing.TB, root *zk.Conn, ticket string) {
	t.Helper()
	require.NoError(t, root.Delete(path.Join(one(t), ticket), -1))
}

// empty waits until no node of the test is left, not even the name's.
func empty(t testing.TB, root *zk.Conn) {
	t.Helper()
	kit.Eventually(t, "all nodes to be gone", func() bool {
		there, _, err := root.Exists(prefix(t))
		require.NoError(t, err)
		return !there
	})
}

var (
	locked = enginetest.Locked
	queued = enginetest.Queued
)

func TestMain(m *testing.M) {
	if enginetest.Child(childMutex) {
		return
	}
	zktest.Main(m)
}

// childMutex is the lock of a process that holds.
func childMutex(address, prefix string) (enginetest.Mutex, error) {
	c, err := zklock.Dial(zklock.Options{Servers: []string{address}, Prefix: prefix, Lease: enginetest.Short})
	if err != nil {
		return nil, err
	}
	return zklock.New(c, "one"), nil
}

func TestAProcessThatWasStoppedKnowsThatItLost(t *testing.T) {
	s := shared(t)
	rig(t, s).AProcessThatWasStoppedKnowsThatItLost(t, s.Address(), prefix(t))
}

func ours(b *testing.B, s *zktest.Server) enginetest.Locker {
	return enginetest.LockerOf(b, zklock.New(dial(b, s, lasting(kit.Patience)), "one"))
}

// theirs is the library's own lock.
func theirs(b *testing.B, s *zktest.Server) enginetest.Locker {
	conn := admin(b, s)
	return func() (func() error, error) {
		l := zk.NewLock(conn, "/theirs"+prefix(b), zk.WorldACL(zk.PermAll))
		return l.Unlock, l.Lock()
	}
}

// floor is what a cycle writes, without a lock.
func floor(b *testing.B, s *zktest.Server) enginetest.Locker {
	conn := admin(b, s)
	node := "/floor-" + kit.Name(b)
	return func() (func() error, error) {
		_, err := conn.Create(node, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		return func() error { return conn.Delete(node, -1) }, err
	}
}

func BenchmarkCycle(b *testing.B) {
	s := zktest.Shared(b)
	enginetest.Cycles(b, ours(b, s), theirs(b, s), floor(b, s))
}

func BenchmarkHandOff(b *testing.B) {
	s := zktest.Shared(b)
	of := func(maker func(*testing.B, *zktest.Server) enginetest.Locker) func(*testing.B) enginetest.Locker {
		return func(b *testing.B) enginetest.Locker { return maker(b, s) }
	}
	enginetest.HandOffs(b, of(ours), of(theirs))
}
