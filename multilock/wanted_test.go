package multilock_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/multilock"
)

func TestAHoldOfSeveralNamesIsToldWhenSomebodyWaitsForOneOfThem(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		all := names(t, 3)
		l, err := multilock.New(kit.Dial(t, s), all).Lock(t.Context())
		require.NoError(t, err)
		select {
		case <-l.Wanted():
			t.Fatal("nobody waits")
		default:
		}
		next := kit.Lock(t.Context(), fairlock.New(kit.Dial(t, s), all[1]).Lock)
		kit.Await(t, l.Wanted(), "the word that somebody waits for one of them")
		kit.Release(t, l)
		kit.Release(t, next.Value(t))
	})
}
