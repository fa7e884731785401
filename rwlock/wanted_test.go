package rwlock_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/rwlock"
)

func TestReadersAreToldWhenAWriterWaits(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		a, b := rwlock.New(kit.Dial(t, s), kit.Name(t)), rwlock.New(kit.Dial(t, s), kit.Name(t))
		var readers []*lease.Lease
		for _, m := range []*rwlock.RWMutex{a, a, b} {
			l, err := m.RLock(t.Context())
			require.NoError(t, err)
			l.Wanted()
			readers = append(readers, l)
		}
		another, err := b.RLock(t.Context())
		require.NoError(t, err)
		another.Unlock()
		for _, l := range readers {
			select {
			case <-l.Wanted():
				t.Fatal("told of a reader that got in")
			default:
			}
		}
		writer := kit.Lock(t.Context(), b.Lock)
		for _, l := range readers {
			kit.Await(t, l.Wanted(), "the word that a writer waits")
			l.Unlock()
		}
		l := writer.Value(t)
		reader := kit.Lock(t.Context(), a.RLock)
		kit.Await(t, l.Wanted(), "the word that a reader waits")
		kit.Release(t, l)
		kit.Release(t, reader.Value(t))
	})
}
