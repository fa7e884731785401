package certmagic_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/headwaiter/headwaiter"
	locks "github.com/headwaiter/headwaiter/contrib/certmagic"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/headwaitertest"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/leaks"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
)

// unlocked is a storage whose locks let everybody in.
type unlocked struct{ certmagic.Storage }

func (unlocked) Lock(context.Context, string) error   { return nil }
func (unlocked) Unlock(context.Context, string) error { return nil }

func TestServersThatShareTheirStorageObtainACertificateOnce(t *testing.T) {
	for name, c := range map[string]struct {
		storage func(t *testing.T, s *headwaitertest.Server, files certmagic.Storage) certmagic.Storage
		most    int64
	}{
		"with locks": {func(t *testing.T, s *headwaitertest.Server, files certmagic.Storage) certmagic.Storage {
			return locks.WithLocks(files, locks.New(s.Client(t)))
		}, 1},
		"without": {func(_ *testing.T, _ *headwaitertest.Server, files certmagic.Storage) certmagic.Storage {
			return unlocked{files}
		}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *headwaitertest.Server) {
				files, from := &certmagic.FileStorage{Path: t.TempDir()}, newIssuer(t)
				var wg sync.WaitGroup
				for range 3 {
					config := configure(t, c.storage(t, s, files), from)
					wg.Go(func() {
						err := config.ManageSync(context.Background(), []string{"shop.example"})
						if c.most == 1 { // Else the key of one may have met the certificate of another.
							assert.NoError(t, err)
						}
					})
				}
				wg.Wait()
				require.Equal(t, c.most, from.most.Load(), "at a time")
				require.Equal(t, c.most, from.handedOut.Load())
			})
		})
	}
}

func TestAllServersRenewACertificateOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *headwaitertest.Server) {
		files, from := &certmagic.FileStorage{Path: t.TempDir()}, newIssuer(t)
		var servers []*certmagic.Config
		for range 2 {
			servers = append(servers, configure(t, locks.WithLocks(files, locks.New(s.Client(t))), from))
		}
		require.NoError(t, servers[0].ObtainCertSync(t.Context(), "shop.example"))
		require.NoError(t, servers[1].ObtainCertSync(t.Context(), "shop.example"))
		require.EqualValues(t, 1, from.handedOut.Load())
		var wg sync.WaitGroup
		for _, config := range servers {
			wg.Go(func() { assert.NoError(t, config.RenewCertSync(context.Background(), "shop.example", true)) })
		}
		wg.Wait()
		require.EqualValues(t, 1, from.most.Load(), "forced renewals go one by one")
		require.EqualValues(t, 3, from.handedOut.Load())
	})
}

func TestAServerThatDiesIsFollowedByAnother(t *testing.T) {
	bubble(t, func(t *testing.T, s *headwaitertest.Server) {
		files, from := &certmagic.FileStorage{Path: t.TempDir()}, newIssuer(t)
		dead := s.Client(t)
		ctx, kill := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		first := configure(t, locks.WithLocks(files, locks.New(dead)), from)
		go func() { ended <- first.ObtainCertSync(ctx, "shop.example") }()
		<-from.begun
		s.Pause(dead)
		kill()
		require.Error(t, <-ended)
		began := time.Now()
		second := configure(t, locks.WithLocks(files, locks.New(s.Client(t))), from)
		require.NoError(t, second.ObtainCertSync(t.Context(), "shop.example"))
		require.Less(t, time.Since(began), issueTime+20*time.Second, "it waits for the lease, and no longer")
		require.EqualValues(t, 1, from.handedOut.Load())
	})
}

// In the background certmagic tries again after a failure, and asks for its lock before that.
func TestALockThatIsLostBetweenAttemptsIsTakenAgain(t *testing.T) {
	bubble(t, func(t *testing.T, s *headwaitertest.Server) {
		files, from := &certmagic.FileStorage{Path: t.TempDir()}, newIssuer(t)
		from.fail.Store(1)
		locker := locks.New(s.Client(t))
		config := configure(t, locks.WithLocks(files, locker), from)
		ended := make(chan error, 1)
		go func() { ended <- config.ObtainCertAsync(context.Background(), "shop.example") }()
		<-from.begun
		const name = "issue_cert_shop.example"
		old := locker.Lease(name)
		require.NotNil(t, old, "certmagic calls its locks otherwise")
		synctime.Pass(issueTime + time.Second) // It has failed, and waits.
		s.ForceRelease("certmagic:" + name)
		require.ErrorIs(t, kit.Lost(t, old), lease.ErrForced)
		<-from.begun
		require.NoError(t, locker.Lease(name).Context().Err())
		require.Greater(t, locker.Lease(name).Token(), old.Token())
		require.False(t, kit.Got(locks.New(s.Client(t)).TryLock(t.Context(), name))(t))
		require.NoError(t, <-ended)
		synctime.Pass(issueTime + time.Second)
		require.EqualValues(t, 1, from.handedOut.Load())
		synctest.Wait()
		require.Nil(t, locker.Lease(name))
	})
}

func TestAStorageIsOtherwiseTheOneItWas(t *testing.T) {
	bubble(t, func(t *testing.T, s *headwaitertest.Server) {
		files := &certmagic.FileStorage{Path: t.TempDir()}
		locker := locks.New(s.Client(t))
		storage := locks.WithLocks(files, locker)
		require.NoError(t, storage.Store(t.Context(), "a/b", []byte("c")))
		require.Equal(t, "c", string(kit.Got(files.Load(t.Context(), "a/b"))(t)))

		require.NoError(t, storage.Lock(t.Context(), "x"))
		require.NotNil(t, locker.Lease("x"))
		require.True(t, kit.Got(files.TryLock(t.Context(), "x"))(t), "the storage's own lock is used as well")
		require.NoError(t, files.Unlock(t.Context(), "x"))
		require.False(t, kit.Got(storage.TryLock(t.Context(), "x"))(t))
		require.NoError(t, storage.RenewLockLease(t.Context(), "x", time.Hour))
		require.NoError(t, storage.Unlock(t.Context(), "x"))
		require.ErrorIs(t, storage.RenewLockLease(t.Context(), "x", time.Hour), locks.ErrNotLocked)
		synctime.Pass(10 * time.Second) // A lock file is kept fresh by a goroutine, which ends when it finds none.
	})
}

// For so long a name stays locked when its server dies.
func TestALockHasTheLeaseOfItsOptions(t *testing.T) {
	for lasts, opts := range map[time.Duration][]fairlock.Option{
		lease.DefaultLease: nil,
		19 * time.Second:   {headwaiter.WithLease(19 * time.Second)},
	} {
		t.Run(lasts.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, s *headwaitertest.Server) {
				client := s.Client(t)
				l, other := locks.New(client, opts...), locks.New(s.Client(t))
				require.NoError(t, l.Lock(t.Context(), "x"))
				require.NoError(t, kit.Err(l.TryLock(t.Context(), "y")))
				s.Pause(client)
				synctime.Pass(lasts - time.Millisecond)
				for _, name := range []string{"x", "y"} {
					require.False(t, kit.Got(other.TryLock(t.Context(), name))(t))
				}
				synctime.Pass(2 * time.Millisecond)
				for _, name := range []string{"x", "y"} {
					require.True(t, kit.Got(other.TryLock(t.Context(), name))(t))
				}
				s.Resume(client)
			})
		})
	}
}

func TestLockKeepsToItsContext(t *testing.T) {
	bubble(t, func(t *testing.T, s *headwaitertest.Server) {
		client := s.Client(t)
		one, two := locks.New(client), locks.New(s.Client(t))
		ctx, cancel := context.WithCancel(t.Context())
		require.NoError(t, one.Lock(ctx, "x"))
		cancel()
		require.ErrorIs(t, two.Lock(kit.Within(t, time.Second), "x"), context.DeadlineExceeded)
		require.NoError(t, one.Lease("x").Context().Err(), "its context is for the wait")
		s.Pause(client)
		time.AfterFunc(time.Second, func() { s.Resume(client) })
		require.NoError(t, one.Unlock(ctx, "x"), "also with a context that has ended")
		require.NoError(t, two.Lock(t.Context(), "x"))
		require.NoError(t, two.Unlock(t.Context(), "x"))
	})
}

func TestALostLockFreesNobodyElses(t *testing.T) {
	bubble(t, func(t *testing.T, s *headwaitertest.Server) {
		// Both in one process, where a name does not say whose it is.
		l := locks.New(s.Client(t))
		require.NoError(t, l.Lock(t.Context(), "x"))
		first := l.Lease("x")
		s.ForceRelease("certmagic:x")
		require.ErrorIs(t, kit.Lost(t, first), lease.ErrForced)
		require.NoError(t, l.Lock(t.Context(), "x"))
		second := l.Lease("x")
		require.ErrorIs(t, l.Unlock(t.Context(), "x"), lease.ErrLost)
		require.NoError(t, second.Context().Err())
		require.NoError(t, l.Unlock(t.Context(), "x"))
		require.ErrorIs(t, l.Unlock(t.Context(), "x"), locks.ErrNotLocked)
	})
}

func TestWhoRenewsALostLockLeavesThatOfAnotherToIt(t *testing.T) {
	bubble(t, func(t *testing.T, s *headwaitertest.Server) {
		l, other := locks.New(s.Client(t)), locks.New(s.Client(t))
		require.NoError(t, l.Lock(t.Context(), "x"))
		first := l.Lease("x")
		far := kit.Run(func() error { return other.Lock(t.Context(), "x") })
		synctest.Wait()
		near := kit.Run(func() error { return l.Lock(t.Context(), "x") })
		synctest.Wait()
		s.ForceRelease("certmagic:x")
		require.ErrorIs(t, kit.Lost(t, first), lease.ErrForced)
		require.NoError(t, far.Err(t))
		again := kit.Run(func() error { return l.RenewLockLease(t.Context(), "x", time.Hour) })
		synctest.Wait()
		require.NoError(t, other.Unlock(t.Context(), "x"))
		require.NoError(t, near.Err(t))
		require.NoError(t, l.Unlock(t.Context(), "x"), "it had its lock all the time")
		require.NoError(t, again.Err(t))
		require.NoError(t, l.Unlock(t.Context(), "x"))
		require.ErrorIs(t, l.Unlock(t.Context(), "x"), locks.ErrNotLocked)
	})
}

func TestAnyNameCanBeLocked(t *testing.T) {
	bubble(t, func(t *testing.T, s *headwaitertest.Server) {
		l := locks.New(s.Client(t))
		long := string(make([]byte, 5000))
		for _, name := range []string{"issue_cert_*.shop.example", "", "}", "a\nb", "\xff", long, long + "x"} {
			require.NoError(t, l.Lock(t.Context(), name), "%.20q", name)
		}
		for _, name := range []string{"issue_cert_*.shop.example", "", "}", "a\nb", "\xff", long, long + "x"} {
			require.False(t, kit.Got(l.TryLock(t.Context(), name))(t))
			require.NoError(t, l.Unlock(t.Context(), name))
		}
	})
}

func TestMain(m *testing.M) { leaks.Main(m) }

// bubble runs a case with a server in a bubble, where certmagic has its clock.
func bubble(t *testing.T, run func(t *testing.T, s *headwaitertest.Server)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { run(t, headwaitertest.Start(t)) })
}

// issueTime is longer than a lease.
const issueTime = 25 * time.Second

// An issuer signs certificates by itself, and counts how many it has been asked for and has issued.
type issuer struct {
	key             *ecdsa.PrivateKey
	authority       *x509.Certificate
	fail            atomic.Int64 // how many of the next calls
	begun           chan struct{}
	calls, inside   atomic.Int64
	most, handedOut atomic.Int64
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key := kit.Got(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	name := pkix.Name{CommonName: "test authority"}
	return &issuer{
		key: key, authority: &x509.Certificate{SerialNumber: big.NewInt(1), Subject: name}, begun: make(chan struct{}, 100),
	}
}

func (i *issuer) IssuerKey() string { return "test" }

func (i *issuer) Issue(ctx context.Context, request *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	serial := i.calls.Add(1)
	i.most.Store(max(i.most.Load(), i.inside.Add(1)))
	defer i.inside.Add(-1)
	i.begun <- struct{}{}
	select {
	case <-time.After(issueTime):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if i.fail.Add(-1) >= 0 {
		return nil, errors.New("the authority is down")
	}
	certificate := &x509.Certificate{
		SerialNumber: big.NewInt(serial + 1), Subject: pkix.Name{CommonName: request.DNSNames[0]}, DNSNames: request.DNSNames,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(90 * 24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, certificate, i.authority, request.PublicKey, i.key)
	if err != nil {
		return nil, err
	}
	i.handedOut.Add(1)
	return &certmagic.IssuedCertificate{
		Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
	}, nil
}

// configure is one server with certmagic: its own cache, and a storage and an issuer that it may share.
func configure(t *testing.T, storage certmagic.Storage, from *issuer) *certmagic.Config {
	t.Helper()
	var config *certmagic.Config
	cache := certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return config, nil },
		Logger:           zap.NewNop(),
	})
	t.Cleanup(cache.Stop)
	config = certmagic.New(cache, certmagic.Config{
		Storage: storage, Issuers: []certmagic.Issuer{from}, Logger: zap.NewNop(),
		OCSP: certmagic.OCSPConfig{DisableStapling: true},
	})
	return config
}
