package deploy

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

// The two options that ask for more than the protocol need what the page adds for them, and say so without it.
func TestTheRightsOfTheOptions(t *testing.T) {
	t.Parallel()
	for use, option := range map[string]fairlock.Option{
		"`WithReplicas`":               headwaiter.WithReplicas(1, time.Second),
		"`WithSafeRestart`, `redlock`": headwaiter.WithSafeRestart(),
	} {
		t.Run(use, func(t *testing.T) {
			t.Parallel()
			user := redistest.WithUser("headwaiter", "secret", rights(t, use)...)
			s := redistest.Replicated(t, 1, user).Master()
			old(t, s, restartLease)
			m := fairlock.New(kit.Dial(t, s), kit.Name(t), headwaiter.WithLease(restartLease), option)
			l, err := m.Lock(t.Context())
			require.NoError(t, err)
			kit.Release(t, l)
			s.Do(append([]string{"ACL", "SETUSER", "headwaiter", "reset", "on", ">secret"}, rights(t)...)...)
			_, err = fairlock.New(kit.Dial(t, s), kit.Name(t), headwaiter.WithLease(restartLease), option).Lock(t.Context())
			require.ErrorContains(t, err, "the user lacks a right")
			require.ErrorContains(t, err, "docs/deploy.md")
		})
	}
}
