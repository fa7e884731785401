package etcdlock_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/headwaiter/headwaiter/contrib/etcdlock"
	"github.com/headwaiter/headwaiter/internal/engine"
	"github.com/headwaiter/headwaiter/internal/testenv/enginetest"
	"github.com/headwaiter/headwaiter/internal/testenv/etcdtest"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
)

// as makes a client a user, whose password is the name.
func as(user string) func(*etcdlock.Options) {
	return func(o *etcdlock.Options) { o.Etcd.Username, o.Etcd.Password = user, user }
}

// users turns rights on, with a root, "app" that may read and write below the test's prefix, and "guest" that may not.
func users(t *testing.T, s *etcdtest.Server) {
	t.Helper()
	c, ctx := admin(t, s), t.Context()
	for _, user := range []string{"root", "app", "guest"} {
		require.NoError(t, kit.Err(c.UserAdd(ctx, user, user)))
	}
	require.NoError(t, kit.Err(c.RoleAdd(ctx, "root")))
	require.NoError(t, kit.Err(c.UserGrantRole(ctx, "root", "root")))
	require.NoError(t, kit.Err(c.RoleAdd(ctx, "locks")))
	_, err := c.RoleGrantPermission(ctx, "locks", prefix(t), clientv3.GetPrefixRangeEnd(prefix(t)),
		clientv3.PermissionType(clientv3.PermReadWrite))
	require.NoError(t, err)
	require.NoError(t, kit.Err(c.UserGrantRole(ctx, "app", "locks")))
	require.NoError(t, kit.Err(c.AuthEnable(ctx)))
}

// root returns connections of the root user, made now: etcd's client cannot go on where a server of 3.4 starts again.
func root(t *testing.T, s *etcdtest.Server) *clientv3.Client {
	t.Helper()
	c := kit.Got(clientv3.New(clientv3.Config{Endpoints: []string{s.Endpoint()}, Username: "root", Password: "root", Logger: quiet}))(t)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestRightsBelowThePrefixAreEnough(t *testing.T) {
	t.Parallel()
	s := etcdtest.Own(t)
	users(t, s)
	a, b := dial(t, s, as("app"), lasting(kit.Patience)), dial(t, s, as("app"), lasting(kit.Patience))
	m, n := etcdlock.New(a, "one"), etcdlock.New(b, "one")
	l, waits := locked(t, m), queued(t, n, 1)
	next := kit.Next(t, l, waits)
	require.NoError(t, kit.Err(m.ForceRelease(t.Context(), 0)))
	require.ErrorIs(t, kit.Lost(t, next), lease.ErrForced)

	// A server that starts again knows no tokens of before, except from writes that it had not put into its
	// database yet. It does that when it is defragmented.
	l, last := locked(t, m), queued(t, n, 1)
	require.NoError(t, kit.Err(root(t, s).Defragment(t.Context(), s.Endpoint())))
	s.Kill()
	require.NoError(t, s.Run())
	require.NoError(t, l.Release(t.Context()))
	kit.Release(t, last.Value(t))
	empty(t, root(t, s))
}

func TestAUserWithoutRightsIsRefused(t *testing.T) {
	t.Parallel()
	s := etcdtest.Own(t)
	users(t, s)
	c := dial(t, s, as("guest"), lasting(kit.Patience))
	m := etcdlock.New(c, "one")
	_, tried := m.TryLock(t.Context())
	_, inspected := m.Inspect(t.Context())
	_, acquired := etcdlock.NewSemaphore(c, "one", 2).Acquire(t.Context(), 1)
	_, led := etcdlock.NewElection(c, "one").Campaign(t.Context(), "me")
	locked := kit.Lock(t.Context(), m.Lock).Err(t)
	for _, err := range []error{locked, tried, inspected, acquired, led} {
		kit.Fails(t, err, rpctypes.ErrPermissionDenied, `"one"`, "permission denied")
	}
	require.NoError(t, c.Shutdown(t.Context()))
	require.Zero(t, keys(t, root(t, s)).Count)
	require.Empty(t, kit.Got(root(t, s).Leases(t.Context()))(t).Leases)

	_, err := etcdlock.Dial(etcdlock.Options{Etcd: clientv3.Config{
		Endpoints: []string{s.Endpoint()}, Username: "app", Password: "wrong", Logger: quiet,
	}})
	require.ErrorContains(t, err, "authentication failed")
}

// An authority makes certificates.
type authority struct {
	t    *testing.T
	dir  string
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, dir: t.TempDir()}
	a.cert, a.key = a.issue("ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

// file is where a certificate is, or a key.
func (a *authority) file(name string) string { return filepath.Join(a.dir, name+".pem") }

// issue makes a certificate, by itself if there is none that could sign it, and the files of it and its key.
func (a *authority) issue(name string, c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	key := kit.Got(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(a.t)
	c.SerialNumber, c.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: name}
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	// etcd calls itself with the server's.
	c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der := kit.Got(x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer))(a.t)
	private := kit.Got(x509.MarshalPKCS8PrivateKey(key))(a.t)
	a.write(name, "CERTIFICATE", der)
	a.write(name+"-key", "PRIVATE KEY", private)
	return kit.Got(x509.ParseCertificate(der))(a.t), key
}

func (a *authority) write(name, kind string, der []byte) {
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	require.NoError(a.t, os.WriteFile(a.file(name), text, 0o600))
}

// client makes a client whose certificate the authority has signed.
func (a *authority) client(o *etcdlock.Options) {
	a.issue("client", &x509.Certificate{})
	pair := kit.Got(tls.LoadX509KeyPair(a.file("client"), a.file("client-key")))(a.t)
	o.Etcd.TLS = a.trust()
	o.Etcd.TLS.Certificates = []tls.Certificate{pair}
}

// trust is of servers alone.
func (a *authority) trust() *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return &tls.Config{RootCAs: pool}
}

func TestLocksByTLS(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	ca.issue("server", &x509.Certificate{})
	s := etcdtest.Own(t, "--cert-file", ca.file("server"), "--key-file", ca.file("server-key"),
		"--trusted-ca-file", ca.file("ca"), "--client-cert-auth")
	m, n := etcdlock.New(dial(t, s, ca.client), "one"), etcdlock.New(dial(t, s, ca.client), "one")
	kit.PassOn(t, locked(t, m), queued(t, n, 1))

	for name, change := range map[string]func(*etcdlock.Options){
		"no TLS":                  func(*etcdlock.Options) {},
		"no certificate":          func(o *etcdlock.Options) { o.Etcd.TLS = ca.trust() },
		"a certificate of others": newAuthority(t).client,
		"a server of others":      func(o *etcdlock.Options) { ca.client(o); o.Etcd.TLS.RootCAs = newAuthority(t).trust().RootCAs },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		_, err := etcdlock.New(dial(t, s, change), "one").Lock(ctx)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded, name)
	}
	kit.Release(t, locked(t, m)) // So it was not the server's fault.
}

func TestDialWaitsForASilentServerNoLongerThanALease(t *testing.T) {
	t.Parallel()
	silent := kit.Got(net.Listen("tcp", "127.0.0.1:0"))(t) // It takes connections, and never says a word.
	defer silent.Close()
	dialled := kit.Run(func() error {
		_, err := etcdlock.Dial(etcdlock.Options{
			Etcd: clientv3.Config{
				Endpoints: []string{silent.Addr().String()}, Username: "app", Password: "app", Logger: quiet,
			},
			Lease: etcdlock.MinLease,
		})
		return err
	})
	require.ErrorIs(t, dialled.Err(t), context.DeadlineExceeded)
}

// quiet is no log: clients speak of each connection that breaks.
var quiet = zap.NewNop()

// rig is what the tests that are shared with other engines need.
func rig(t testing.TB, s *etcdtest.Server) enginetest.Rig {
	return enginetest.Rig{
		Server: s,
		Dial: func(t testing.TB, lasts time.Duration) enginetest.Client {
			c := dial(t, s, lasting(lasts))
			return enginetest.Client{Close: c.Shutdown, Mutex: func(name string, ends engine.Limits) enginetest.Mutex {
				return etcdlock.New(c, name, etcdlock.WithMaxHold(ends.Hold), etcdlock.WithMaxStall(ends.Stall))
			}}
		},
		Empty: func(t testing.TB) { empty(t, admin(t, s)) },
	}
}

// wired leads a client to a server by wires that can be cut.
func wired(w *enginetest.Wires, s *etcdtest.Server) clientv3.Config {
	connect := func(ctx context.Context, address string) (net.Conn, error) { return w.Connect(ctx, "tcp", address) }
	return clientv3.Config{
		Endpoints: []string{s.Endpoint()}, Logger: quiet, DialOptions: []grpc.DialOption{grpc.WithContextDialer(connect)},
	}
}

// shared is the server that parallel tests use.
func shared(t *testing.T) *etcdtest.Server {
	t.Parallel()
	return etcdtest.Shared(t)
}

// dial returns a client that is closed with the test, with keys of the test's own.
func dial(t testing.TB, s *etcdtest.Server, changes ...func(*etcdlock.Options)) *etcdlock.Client {
	t.Helper()
	o := etcdlock.Options{
		Etcd:   clientv3.Config{Endpoints: []string{s.Endpoint()}, Logger: quiet},
		Prefix: prefix(t), Name: "test", Lease: enginetest.Short,
	}
	for _, change := range changes {
		change(&o)
	}
	c := kit.Got(etcdlock.Dial(o))(t)
	kit.Closing(t, c.Shutdown)
	return c
}

func lasting(d time.Duration) func(*etcdlock.Options) {
	return func(o *etcdlock.Options) { o.Lease = d }
}

func prefix(t testing.TB) string { return kit.Name(t) + "/" }

// admin is etcd's own client, to look at what is there and to take it away.
func admin(t testing.TB, s *etcdtest.Server) *clientv3.Client {
	t.Helper()
	c := kit.Got(clientv3.New(clientv3.Config{Endpoints: []string{s.Endpoint()}, Logger: quiet}))(t)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// keys are those of the test, by their creation.
func keys(t testing.TB, c *clientv3.Client) *clientv3.GetResponse {
	t.Helper()
	found, err := c.Get(t.Context(), prefix(t), clientv3.WithPrefix(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	require.NoError(t, err)
	return found
}

// revoke ends the etcd lease of the client whose key is at a place in the line.
func revoke(t testing.TB, c *clientv3.Client, place int) {
	t.Helper()
	require.NoError(t, kit.Err(c.Revoke(t.Context(), clientv3.LeaseID(keys(t, c).Kvs[place].Lease))))
}

// empty waits until no key of the test is left.
func empty(t testing.TB, c *clientv3.Client) {
	t.Helper()
	kit.Eventually(t, "all keys to be gone", func() bool { return keys(t, c).Count == 0 })
}

// watches is how many watches a server has.
func watches(t *testing.T, s *etcdtest.Server) int {
	t.Helper()
	return int(kit.Got(s.Metric("etcd_debugging_mvcc_watcher_total"))(t))
}

var (
	locked = enginetest.Locked
	queued = enginetest.Queued
)

func TestMain(m *testing.M) {
	if enginetest.Child(childMutex) {
		return
	}
	etcdtest.Main(m)
}

// childMutex is the lock of a process that holds.
func childMutex(endpoint, prefix string) (enginetest.Mutex, error) {
	c, err := etcdlock.Dial(etcdlock.Options{
		Etcd:   clientv3.Config{Endpoints: []string{endpoint}, Logger: quiet},
		Prefix: prefix, Lease: enginetest.Short,
	})
	if err != nil {
		return nil, err
	}
	return etcdlock.New(c, "one"), nil
}

func TestAProcessThatWasStoppedKnowsThatItLost(t *testing.T) {
	s := shared(t)
	rig(t, s).AProcessThatWasStoppedKnowsThatItLost(t, s.Endpoint(), prefix(t))
}

func ours(b *testing.B, s *etcdtest.Server) enginetest.Locker {
	return enginetest.LockerOf(b, etcdlock.New(dial(b, s, lasting(kit.Patience)), "one"))
}

// theirs is etcd's own mutex.
func theirs(b *testing.B, s *etcdtest.Server) enginetest.Locker {
	c := admin(b, s)
	session := kit.Got(concurrency.NewSession(c, concurrency.WithTTL(20)))(b)
	b.Cleanup(func() { _ = session.Close() })
	return func() (func() error, error) {
		m := concurrency.NewMutex(session, "theirs/"+prefix(b))
		err := m.Lock(b.Context())
		return func() error { return m.Unlock(b.Context()) }, err
	}
}

// floor is what a cycle writes, without a lock.
func floor(b *testing.B, s *etcdtest.Server) enginetest.Locker {
	c := admin(b, s)
	key := "floor/" + prefix(b)
	return func() (func() error, error) {
		_, err := c.Txn(b.Context()).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).Then(clientv3.OpPut(key, "")).Commit()
		return func() error { _, err := c.Delete(b.Context(), key); return err }, err
	}
}

func BenchmarkCycle(b *testing.B) {
	s := etcdtest.Shared(b)
	enginetest.Cycles(b, ours(b, s), theirs(b, s), floor(b, s))
}

func BenchmarkHandOff(b *testing.B) {
	s := etcdtest.Shared(b)
	of := func(maker func(*testing.B, *etcdtest.Server) enginetest.Locker) func(*testing.B) enginetest.Locker {
		return func(b *testing.B) enginetest.Locker { return maker(b, s) }
	}
	enginetest.HandOffs(b, of(ours), of(theirs))
}
