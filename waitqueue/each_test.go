package waitqueue

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// A hold that was entered again ends with its last lease, however the first is given back.
func TestAReleaseOfSeveralEndsNoHoldOfWhichAnotherLeaseIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lasts = 3 * time.Second
		s := redistest.Bubble(t)
		q := dial(t, s).Queue(lua.Reentrant, "name", Terms{Lease: lasts}).Nested(Reenters)
		outer, err := q.Acquire(t.Context())
		require.NoError(t, err)
		inner, err := q.Acquire(outer.Context())
		require.NoError(t, err)
		require.False(t, outer.Engine().(*share).let(), "another lease is left")
		require.NoError(t, outer.Context().Err())
		require.Equal(t, []error{nil}, ReleaseEach(t.Context(), outer))
		synctime.Pass(2 * lasts)
		require.NoError(t, inner.Context().Err())
		require.Equal(t, int64(1), s.Int("HEXISTS", q.keys.Lock, "owner"))
		require.Equal(t, []error{nil}, ReleaseEach(t.Context(), inner))
		require.Zero(t, s.Int("HEXISTS", q.keys.Lock, "owner"))
	})
}

func TestSeveralHoldsOfAnOwnerAreEnteredByItsOtherCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := dial(t, redistest.Bubble(t)).Queue(lua.Reentrant, "name", Terms{Lease: 3 * time.Second}).Nested(Reenters)
		outcomes := AcquireEach(WithOwner(t.Context(), "job"), q)
		require.NoError(t, outcomes[0].Err)
		inner, err := q.Try(WithOwner(context.Background(), "job"))
		require.NoError(t, err)
		require.Equal(t, outcomes[0].Lease.Token(), inner.Token())
		for _, another := range TryEach(WithOwner(t.Context(), "another"), q) {
			require.ErrorIs(t, another.Err, lease.ErrBusy)
		}
		require.Equal(t, []error{nil, nil}, ReleaseEach(t.Context(), outcomes[0].Lease, inner))
	})
}

func TestANameThatIsThereTwiceIsNotWaitedForTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := dial(t, redistest.Bubble(t))
		begun := time.Now()
		q := c.Queue(lua.Reentrant, "name", Terms{Lease: 3 * time.Second}).Nested(Reenters)
		outcomes := AcquireEach(t.Context(), q, q)
		require.NoError(t, outcomes[0].Err)
		require.ErrorIs(t, outcomes[1].Err, lease.ErrDeadlock)
		require.NoError(t, outcomes[0].Lease.Release(t.Context()))
		require.Equal(t, begun, time.Now())
	})
}

func TestAHoldThatIsLostWhileOthersAreWaitedForIsNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := redistest.Bubble(t)
		c, other := dial(t, s), dial(t, s)
		queue := func(c *Client, name string, terms Terms) Queue {
			terms.Lease = 3 * time.Second
			return c.Queue(lua.Fairlock, name, terms)
		}
		held, err := queue(other, "held", Terms{}).Acquire(t.Context())
		require.NoError(t, err)
		time.AfterFunc(time.Second, func() { _ = held.Release(context.Background()) })
		outcomes := AcquireEach(t.Context(), queue(c, "free", Terms{MaxHold: 300 * time.Millisecond}), queue(c, "held", Terms{}))
		require.ErrorIs(t, outcomes[0].Err, lease.ErrMaxHold)
		require.Nil(t, outcomes[0].Lease)
		require.NoError(t, outcomes[1].Err)
		require.Equal(t, []error{nil, nil}, ReleaseEach(t.Context(), outcomes[0].Lease, outcomes[1].Lease))
	})
}
