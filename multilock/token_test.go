package multilock_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/multilock"
)

// ahead gives a name a last token that lies an hour ahead of the server's clock.
func ahead(t *testing.T, s redistest.Backend, name string) uint64 {
	t.Helper()
	token := uint64(time.Now().Add(time.Hour).UnixMicro())
	keys := lua.Fairlock.Keys("headwaiter", name)
	s.Do("HSET", keys.Lock, "token", fmt.Sprint(token), "kept", "0", "version", "3")
	s.Do("PEXPIRE", keys.Lock, "60000")
	return token
}

// Whoever guards something by one of the names has seen the token of all: the next holder of that name comes in.
func TestTheNextHolderOfANameHasAHigherToken(t *testing.T) {
	next := func(t *testing.T, s redistest.Backend, token uint64, all []string) {
		t.Helper()
		for _, name := range all {
			// A client of its own, which has not seen any token.
			l, err := fairlock.New(kit.Dial(t, s), name).Lock(t.Context())
			require.NoError(t, err)
			require.Greater(t, l.Token(), token, name)
			kit.Release(t, l)
		}
	}
	t.Run("free", func(t *testing.T) {
		kit.Each(t, func(t *testing.T, s redistest.Backend) {
			all := names(t, 3)
			last := ahead(t, s, all[1])
			l, err := multilock.New(kit.Dial(t, s), all).Lock(t.Context())
			require.NoError(t, err)
			require.Greater(t, l.Token(), last)
			for _, name := range all {
				info, err := fairlock.New(kit.Dial(t, s), name).Inspect(t.Context())
				require.NoError(t, err)
				require.Greater(t, info.Token, last, "the asks that find all free give all one height")
			}
			kit.Release(t, l)
			next(t, s, l.Token(), all)
		})
	})
	t.Run("taken one after the other", func(t *testing.T) {
		kit.Each(t, func(t *testing.T, s redistest.Backend) {
			all := names(t, 3)
			c := kit.Dial(t, s)
			held, err := fairlock.New(c, all[1]).Lock(t.Context())
			require.NoError(t, err)
			call := kit.Lock(t.Context(), multilock.New(kit.Dial(t, s), all, multilock.WithBound(kit.Patience)).Lock)
			kit.Waiting(t, 1, fairlock.New(c, all[1]).Inspect)
			last := ahead(t, s, all[1])
			kit.Release(t, held)
			l := call.Value(t)
			require.Greater(t, l.Token(), last)
			// The first ends while somebody waits for it, the others while nobody does.
			waits := kit.Lock(t.Context(), fairlock.New(kit.Dial(t, s), all[0]).Lock)
			kit.Waiting(t, 1, fairlock.New(c, all[0]).Inspect)
			kit.Release(t, l)
			after := waits.Value(t)
			require.Greater(t, after.Token(), l.Token())
			kit.Release(t, after)
			next(t, s, l.Token(), all)
		})
	})
	for end, how := range map[string]func(t *testing.T, c *headwaiter.Client, l *lease.Lease, names []string){
		"unlocked": func(_ *testing.T, _ *headwaiter.Client, l *lease.Lease, _ []string) { l.Unlock() },
		"closed": func(t *testing.T, c *headwaiter.Client, _ *lease.Lease, _ []string) {
			require.NoError(t, c.Close(t.Context()))
		},
		"lost": func(t *testing.T, c *headwaiter.Client, l *lease.Lease, names []string) {
			_, err := fairlock.New(c, names[2]).ForceRelease(t.Context(), 0)
			require.NoError(t, err)
			require.ErrorIs(t, kit.Lost(t, l), lease.ErrForced)
		},
	} {
		t.Run("taken one after the other, and "+end, func(t *testing.T) {
			kit.Each(t, func(t *testing.T, s redistest.Backend) {
				all := names(t, 3)
				c, mine := kit.Dial(t, s), kit.Dial(t, s)
				held, err := fairlock.New(c, all[1]).Lock(t.Context())
				require.NoError(t, err)
				call := kit.Lock(t.Context(), multilock.New(mine, all, multilock.WithBound(kit.Patience)).Lock)
				kit.Waiting(t, 1, fairlock.New(c, all[1]).Inspect)
				last := ahead(t, s, all[1])
				kit.Release(t, held)
				l := call.Value(t)
				require.Greater(t, l.Token(), last)
				how(t, mine, l, all)
				next(t, s, l.Token(), all[:2]) // Who takes the third away by force has not seen the token.
			})
		})
	}
	t.Run("in a cluster", func(t *testing.T) {
		s := redistest.Cluster(t)
		all := names(t, 6)
		last := ahead(t, s, all[1])
		l, err := multilock.New(kit.Dial(t, s), all).Lock(t.Context())
		require.NoError(t, err)
		require.Greater(t, l.Token(), last)
		kit.Release(t, l)
		next(t, s, l.Token(), all)
	})
}
