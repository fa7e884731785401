package etcdlock_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/contrib/etcdlock"
	"github.com/headwaiter/headwaiter/internal/testenv/etcdtest"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
)

// leader returns which of the members leads.
func leader(t *testing.T, all []*etcdtest.Server) *etcdtest.Server {
	t.Helper()
	root := admin(t, all[0])
	at := slices.IndexFunc(all, func(s *etcdtest.Server) bool {
		status, err := root.Status(t.Context(), s.Endpoint())
		require.NoError(t, err)
		return status.Leader == status.Header.MemberId
	})
	require.GreaterOrEqual(t, at, 0)
	return all[at]
}

// everywhere lets a client know all members.
func everywhere(all []*etcdtest.Server) func(*etcdlock.Options) {
	return func(o *etcdlock.Options) {
		o.Etcd.Endpoints = nil
		for _, s := range all {
			o.Etcd.Endpoints = append(o.Etcd.Endpoints, s.Endpoint())
		}
	}
}

// A cluster that loses its leader, dead or hanging, keeps what is held, who waits, and the order.
func TestHoldsAndPlacesOutliveTheLeader(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*etcdtest.Server) error{
		"killed": func(s *etcdtest.Server) error { s.Kill(); return nil },
		"hangs":  (*etcdtest.Server).Freeze,
	} {
		t.Run(name, func(t *testing.T) {
			all := etcdtest.Cluster(t)
			// An election on a busy machine takes some seconds.
			const lasts = 12 * time.Second
			a, b := dial(t, all[0], everywhere(all), lasting(lasts)), dial(t, all[0], everywhere(all), lasting(lasts))
			m, n := etcdlock.New(a, "one"), etcdlock.New(b, "one")
			l := locked(t, m)
			second := queued(t, n, 1)
			third := queued(t, m, 2)
			certain := l.Deadline()
			require.NoError(t, fail(leader(t, all)))
			kit.Eventually(t, "a renewal by another member", func() bool {
				require.NoError(t, l.Context().Err())
				return l.Deadline().After(certain.Add(lasts / 4))
			})
			require.NoError(t, l.Release(t.Context()))
			next := second.Value(t)
			require.Greater(t, next.Token(), l.Token())
			require.False(t, third.Returned())
			kit.Release(t, next)
			kit.Release(t, third.Value(t))
		})
	}
}

// Connections to a member that hangs are found to be dead later than a lease of nine seconds ends.
func TestAReleaseGoesRoundAMemberThatHangs(t *testing.T) {
	t.Parallel()
	all := etcdtest.Cluster(t)
	c := dial(t, all[0], everywhere(all), lasting(9*time.Second))
	held := make([]*lease.Lease, 2*len(all)) // Requests go to the members in turn.
	for i := range held {
		held[i] = locked(t, etcdlock.New(c, fmt.Sprint("lock ", i)))
	}
	leads := leader(t, all)
	follows := slices.IndexFunc(all, func(s *etcdtest.Server) bool { return s != leads })
	require.NoError(t, all[follows].Freeze())
	var releases sync.WaitGroup
	for _, l := range held {
		releases.Go(func() { assert.NoError(t, l.Release(t.Context())) })
	}
	releases.Wait()
}
