package fence_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/fence"
	"github.com/headwaiter/headwaiter/internal/testenv/fenced"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/leaks"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// locks are a lock of the test, by two clients: a hold by the first ends by itself, soon.
func locks(t *testing.T, s redistest.Backend) (short, lock fenced.Lock) {
	name := kit.Name(t)
	return fairlock.New(kit.Dial(t, s), name, headwaiter.WithMaxHold(300*time.Millisecond)).Lock,
		fairlock.New(kit.Dial(t, s), name).Lock
}

// connect returns a plain client of s.
func connect(t testing.TB, s redistest.Backend) rueidis.Client {
	t.Helper()
	c, err := rueidis.NewClient(s.Option())
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// stale requires that an error is a refusal for these numbers.
func stale(t testing.TB, err error, token, highest uint64) {
	t.Helper()
	require.ErrorIs(t, err, fence.ErrStale)
	var e *fence.StaleError
	require.ErrorAs(t, err, &e)
	require.Equal(t, fence.StaleError{Token: token, Highest: highest}, *e)
}

// hold returns a lease with a token, and what ends it.
func hold(t testing.TB, token uint64, shared bool) (*lease.Lease, *lease.Keeper) {
	t.Helper()
	k := lease.New(context.Background(), lease.Terms{
		Token: token, Shared: shared, Until: lease.Until{Deadline: time.Now().Add(time.Hour)},
	})
	t.Cleanup(k.End)
	return k.Lease(), k
}

// refusesWhatIsNoToken holds a guard to what all guards refuse.
func refusesWhatIsNoToken(t *testing.T, g fence.Guard) {
	t.Helper()
	require.ErrorIs(t, g.Admit(t.Context(), 0), lease.ErrInvalid)
	require.ErrorIs(t, g.Admit(t.Context(), 1<<63), lease.ErrInvalid)

	permit, _ := hold(t, 7, true)
	require.ErrorIs(t, g.Admit(permit.Context(), 7), fence.ErrShared)
	cause := context.DeadlineExceeded
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	err := g.Admit(ctx, 7)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, cause)

	require.NoError(t, g.Admit(t.Context(), 6), "something above was remembered")
	require.NoError(t, g.Admit(permit.Context(), 8), "the token of another lease than the context's")
	require.NoError(t, g.Admit(t.Context(), fence.MaxToken))
	require.ErrorIs(t, g.Admit(t.Context(), fence.MaxToken-1), fence.ErrStale)
}
