package headwaitertest_test

import (
	"context"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/fence"
	"github.com/headwaiter/headwaiter/headwaitertest"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
)

func TestAClientTakesItsOptions(t *testing.T) {
	bubble(t, func(t *testing.T, s *headwaitertest.Server) {
		c := s.Client(t, func(o *headwaiter.Options) {
			o.Name = "shipping"
			o.Redis.InitAddress = nil // Not for the caller to say.
		})
		orders := fairlock.New(c, "orders")
		held := lock(t, orders)
		info, err := orders.Inspect(t.Context())
		require.NoError(t, err)
		require.Contains(t, info.Holder.Who, "shipping@")
		kit.Release(t, held)
	})
}

func TestAClientMayBeClosedByItsTest(t *testing.T) {
	bubble(t, func(t *testing.T, s *headwaitertest.Server) {
		c := s.Client(t)
		lock(t, fairlock.New(c, "orders"))
		require.NoError(t, c.Close(t.Context()))
		held, err := fairlock.New(s.Client(t), "orders").TryLock(t.Context())
		require.NoError(t, err)
		kit.Release(t, held)
	})
}

func TestAClientThatIsPausedToTheEndGivesBackWhatItHeld(t *testing.T) {
	t.Parallel()
	s := headwaitertest.Start(t)
	t.Run("paused", func(t *testing.T) {
		c := s.Client(t)
		lock(t, fairlock.New(c, "orders"))
		s.Pause(c)
	})
	held, err := fairlock.New(s.Client(t), "orders").TryLock(context.Background())
	require.NoError(t, err)
	kit.Release(t, held)
}

// A batch is read by the server while the client does nothing but write it.
func TestALargeBatchOfCommandsDoesNotStandStill(t *testing.T) {
	both(t, func(t *testing.T, s *headwaitertest.Server) {
		store, err := rueidis.NewClient(s.Redis())
		require.NoError(t, err)
		t.Cleanup(store.Close)
		var batch rueidis.Commands
		for range 5000 {
			batch = append(batch, store.B().Incr().Key("n").Build())
		}
		for _, answer := range store.DoMulti(context.Background(), batch...) {
			require.NoError(t, answer.Error())
		}
	})
}

// Redis leads to the same server: the marks of a guard are there, and an old token is refused.
func TestAFenceOnTheSameServerRefusesWhoWasExpired(t *testing.T) {
	both(t, func(t *testing.T, s *headwaitertest.Server) {
		store, err := rueidis.NewClient(s.Redis())
		require.NoError(t, err)
		t.Cleanup(store.Close)
		price := fence.NewRedis(store, "price")
		set := fence.NewScript(`return redis.call('SET', KEYS[1], ARGV[1])`)
		write := func(token uint64, value string) error {
			return price.Run(context.Background(), token, set, []string{"price"}, []string{value}).Error()
		}

		held := lock(t, fairlock.New(s.Client(t), "pricing"))
		require.NoError(t, write(held.Token(), "4.10"))
		s.Expire("pricing")
		other := lock(t, fairlock.New(s.Client(t), "pricing"))
		require.NoError(t, write(other.Token(), "4.20"))
		require.ErrorIs(t, write(held.Token(), "4.15"), fence.ErrStale)
		value, err := store.Do(context.Background(), store.B().Get().Key("price").Build()).ToString()
		require.NoError(t, err)
		require.Equal(t, "4.20", value)
	})
}
