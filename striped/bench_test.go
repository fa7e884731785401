package striped_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/striped"
)

// What a hold costs beside one of the lock alone.
func BenchmarkLock(b *testing.B) {
	c := kit.Dial(b, redistest.Start(b))
	alone, keys := fairlock.New(c, "alone"), striped.New(c, "orders", 16)
	b.Run("fairlock", func(b *testing.B) {
		for b.Loop() {
			l, err := alone.Lock(b.Context())
			require.NoError(b, err)
			require.NoError(b, l.Release(b.Context()))
		}
	})
	b.Run("striped", func(b *testing.B) {
		for b.Loop() {
			l, err := keys.Lock(b.Context(), "account:7")
			require.NoError(b, err)
			require.NoError(b, l.Release(b.Context()))
		}
	})
	b.Run("Stripe", func(b *testing.B) {
		for b.Loop() {
			keys.Stripe("account:9007199254740993")
		}
	})
}
