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

	"github.com/headwaiter/headwaiter/contrib/etcdlock"
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
		_, err := c.UserAdd(ctx, user, user)
		require.NoError(t, err)
	}
	_, err := c.RoleAdd(ctx, "root")
	require.NoError(t, err)
	_, err = c.UserGrantRole(ctx, "root", "root")
	require.NoError(t, err)
	_, err = c.RoleAdd(ctx, "locks")
	require.NoError(t, err)
	_, err = c.RoleGrantPermission(ctx, "locks", prefix(t), clientv3.GetPrefixRangeEnd(prefix(t)),
		clientv3.PermissionType(clientv3.PermReadWrite))
	require.NoError(t, err)
	_, err = c.UserGrantRole(ctx, "app", "locks")
	require.NoError(t, err)
	_, err = c.AuthEnable(ctx)
	require.NoError(t, err)
}

// root returns connections of the root user, made now: etcd's client cannot go on where a server of 3.4 starts again.
func root(t *testing.T, s *etcdtest.Server) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Endpoint()}, Username: "root", Password: "root", Logger: quiet})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestRightsBelowThePrefixAreEnough(t *testing.T) {
	t.Parallel()
	s := etcdtest.Own(t)
	users(t, s)
	a, b := dial(t, s, as("app"), lasting(kit.Patience)), dial(t, s, as("app"), lasting(kit.Patience))
	m, n := etcdlock.New(a, "one"), etcdlock.New(b, "one")
	l := locked(t, m)
	waits := queued(t, n, 1)
	kit.Release(t, l)
	next := waits.Value(t)
	_, err := m.ForceRelease(t.Context(), 0)
	require.NoError(t, err)
	require.ErrorIs(t, kit.Lost(t, next), lease.ErrForced)

	// A server that starts again knows no tokens of before, but for those of writes that it had not put into its
	// database yet. It does that when it is defragmented.
	l, last := locked(t, m), queued(t, n, 1)
	_, err = root(t, s).Defragment(t.Context(), s.Endpoint())
	require.NoError(t, err)
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
		require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)
		require.ErrorContains(t, err, `"one"`)
		require.ErrorContains(t, err, "permission denied")
	}
	require.NoError(t, c.Close(t.Context()))
	require.Zero(t, keys(t, root(t, s)).Count)
	left, err := root(t, s).Leases(t.Context())
	require.NoError(t, err)
	require.Empty(t, left.Leases)

	_, err = etcdlock.Dial(etcdlock.Options{Etcd: clientv3.Config{
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
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	c.SerialNumber, c.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: name}
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	// etcd calls itself with the server's.
	c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	require.NoError(a.t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(a.t, err)
	a.write(name, "CERTIFICATE", der)
	a.write(name+"-key", "PRIVATE KEY", private)
	cert, err := x509.ParseCertificate(der)
	require.NoError(a.t, err)
	return cert, key
}

func (a *authority) write(name, kind string, der []byte) {
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	require.NoError(a.t, os.WriteFile(a.file(name), text, 0o600))
}

// client makes a client whose certificate the authority has signed.
func (a *authority) client(o *etcdlock.Options) {
	a.issue("client", &x509.Certificate{})
	pair, err := tls.LoadX509KeyPair(a.file("client"), a.file("client-key"))
	require.NoError(a.t, err)
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
	l := locked(t, m)
	waits := queued(t, n, 1)
	kit.Release(t, l)
	kit.Release(t, waits.Value(t))

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
	silent, err := net.Listen("tcp", "127.0.0.1:0") // It takes connections, and never says a word.
	require.NoError(t, err)
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
