package deploy

import (
	"context"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// hearsOfForce waits until a client hears on its own channel, which must not depend on the next renewal.
func hearsOfForce(t *testing.T, option rueidis.ClientOption, c *headwaiter.Client) {
	t.Helper()
	option.DisableCache = true
	other, err := rueidis.NewClient(option)
	require.NoError(t, err)
	defer other.Close()
	heard := c.Stats().Messages
	kit.Eventually(t, "the client to hear on its own channel", func() bool {
		cmd := other.B().Publish().Channel(lua.ClientChannel("headwaiter", c.ID())).Message("F x x").Build()
		_ = other.Do(context.Background(), cmd).Error() // Behind a failover a node may be gone.
		return c.Stats().Messages > heard
	})
}

// Nobody waits, and the next renewal is further away than the test's patience.
func TestForceIsToldAtOnceOnEveryDeployment(t *testing.T) {
	t.Parallel()
	for _, d := range redistest.Deployments() {
		t.Run(d.Name, func(t *testing.T) {
			t.Parallel()
			s := d.Start(t)
			c := kit.Dial(t, s)
			held, err := fairlock.New(c, "forced", headwaiter.WithLease(time.Hour)).Lock(t.Context())
			require.NoError(t, err)
			hearsOfForce(t, s.Option(), c)
			_, err = fairlock.New(kit.Dial(t, s), "forced").ForceRelease(t.Context(), held.Token())
			require.NoError(t, err)
			require.ErrorIs(t, kit.Lost(t, held), lease.ErrForced)
		})
	}
}

// The channel is heard at the node that has the name of a hold: where that goes, it goes too.
func TestForceIsHeardBehindAFailover(t *testing.T) {
	t.Parallel()
	s := redistest.Cluster(t)
	c := kit.Dial(t, s)
	held, err := fairlock.New(c, "forced", headwaiter.WithLease(10*time.Second)).Lock(t.Context())
	require.NoError(t, err)
	hearsOfForce(t, s.Option(), c)
	old := s.MasterOf("headwaiter:lock:{forced}")
	s.Failover(old)
	old.Kill()
	hearsOfForce(t, s.Option(), c)
	require.NoError(t, held.Context().Err())
	kit.Release(t, held)
}
