package certmagic_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	locks "github.com/headwaiter/headwaiter/contrib/certmagic"
	"github.com/headwaiter/headwaiter/headwaitertest"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
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
		s.Force("certmagic:" + name)
		require.ErrorIs(t, kit.Lost(t, old), lease.ErrForced)
		<-from.begun
		require.NoError(t, locker.Lease(name).Context().Err())
		require.Greater(t, locker.Lease(name).Token(), old.Token())
		other, err := locks.New(s.Client(t)).TryLock(t.Context(), name)
		require.NoError(t, err)
		require.False(t, other)
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
		value, err := files.Load(t.Context(), "a/b")
		require.NoError(t, err)
		require.Equal(t, "c", string(value))

		require.NoError(t, storage.Lock(t.Context(), "x"))
		require.NotNil(t, locker.Lease("x"))
		free, err := files.TryLock(t.Context(), "x")
		require.NoError(t, err)
		require.True(t, free, "the storage's own lock is used as well")
		require.NoError(t, files.Unlock(t.Context(), "x"))
		taken, err := storage.TryLock(t.Context(), "x")
		require.NoError(t, err)
		require.False(t, taken)
		require.NoError(t, storage.RenewLockLease(t.Context(), "x", time.Hour))
		require.NoError(t, storage.Unlock(t.Context(), "x"))
		require.ErrorIs(t, storage.RenewLockLease(t.Context(), "x", time.Hour), locks.ErrNotLocked)
		synctime.Pass(10 * time.Second) // A lock file is kept fresh by a goroutine, which ends when it finds none.
	})
}

func TestLockKeepsToItsContext(t *testing.T) {
	bubble(t, func(t *testing.T, s *headwaitertest.Server) {
		client := s.Client(t)
		one, two := locks.New(client), locks.New(s.Client(t))
		ctx, cancel := context.WithCancel(t.Context())
		require.NoError(t, one.Lock(ctx, "x"))
		cancel()
		soon, done := context.WithTimeout(t.Context(), time.Second)
		defer done()
		require.ErrorIs(t, two.Lock(soon, "x"), context.DeadlineExceeded)
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
		s.Force("certmagic:x")
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
		s.Force("certmagic:x")
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
			free, err := l.TryLock(t.Context(), name)
			require.NoError(t, err)
			require.False(t, free)
			require.NoError(t, l.Unlock(t.Context(), name))
		}
	})
}
