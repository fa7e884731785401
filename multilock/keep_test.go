package multilock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/multilock"
)

func TestATryCallsTheClientsThatKeepSomeOfTheNames(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		a, b := kit.Name(t)+" a", kit.Name(t)+" b"
		m := multilock.New(kit.Dial(t, s), []string{a, b})
		var kept []*fairlock.Mutex
		for _, name := range []string{a, b} {
			kept = append(kept, fairlock.New(kit.Dial(t, s), name, fairlock.WithKeep(time.Minute)))
		}
		hold := func(i int) *lease.Lease {
			l, err := kept[i].Lock(t.Context())
			require.NoError(t, err)
			return l
		}
		hold(0).Unlock()
		hold(1).Unlock()
		l, err := m.TryLock(t.Context())
		require.NoError(t, err)
		kit.Release(t, l)

		used := hold(1)
		hold(0).Unlock()
		begun := time.Now()
		_, err = m.TryLock(t.Context())
		require.ErrorIs(t, err, lease.ErrBusy)
		require.InDelta(t, 50*time.Millisecond, time.Since(begun), float64(20*time.Millisecond))
		kit.Release(t, used)
	})
}
