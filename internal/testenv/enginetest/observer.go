package enginetest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/observe"
)

// A Trier is a lock of an engine.
type Trier interface {
	Lock(ctx context.Context) (*lease.Lease, error)
	TryLock(ctx context.Context) (*lease.Lease, error)
}

// AnObserverIsTold lets o, which the client of mine tells, see each way in which a call and a hold of the name can go:
// theirs is the same lock of another client. away, if not nil, takes the lock from its holder; where it is nil, a call does
// not know that it waits either.
func AnObserverIsTold(t testing.TB, o *kit.Observer, name string, mine, theirs Trier, away func() error) {
	t.Helper()
	course := []observe.EventKind{observe.Began, observe.Queued, observe.Granted, observe.Failed, observe.Released, observe.Lost}
	told := func(want ...observe.EventKind) (last kit.Told) {
		t.Helper()
		kit.Eventually(t, "the observer to be told", func() bool {
			return len(o.Of(course...)) >= len(want)
		})
		all := o.Of(course...)
		var moments []observe.EventKind
		for _, x := range all {
			require.Equal(t, "lock", x.Kind)
			require.Equal(t, name, x.Name)
			moments = append(moments, x.Event)
		}
		require.Equal(t, want, moments)
		return all[len(all)-1]
	}
	l, err := mine.Lock(t.Context())
	require.NoError(t, err)
	require.Equal(t, l.Token(), told(observe.Began, observe.Granted).Token)
	kit.Release(t, l)
	so := []observe.EventKind{observe.Began, observe.Granted, observe.Released}
	require.NoError(t, told(so...).Err)

	other, err := theirs.Lock(t.Context())
	require.NoError(t, err)
	_, err = mine.TryLock(t.Context())
	require.ErrorIs(t, err, lease.ErrBusy)
	so = append(so, observe.Began, observe.Failed)
	require.ErrorIs(t, told(so...).Err, lease.ErrBusy)

	call := kit.Lock(t.Context(), mine.Lock)
	so = append(so, observe.Began)
	if away != nil {
		so = append(so, observe.Queued)
	}
	if waits := told(so...); away != nil {
		require.Equal(t, 1, waits.Place)
	}
	kit.Release(t, other)
	l = call.Value(t)
	so = append(so, observe.Granted)
	granted := told(so...)
	require.Positive(t, granted.Waited)
	require.Equal(t, l.Token(), granted.Token)
	if away == nil {
		l.Unlock()
		so = append(so, observe.Released)
		told(so...)
		return
	}
	require.NoError(t, away())
	require.ErrorIs(t, kit.Lost(t, l), lease.ErrLost)
	so = append(so, observe.Lost)
	lost := told(so...)
	require.ErrorIs(t, lost.Err, lease.ErrLost)
	require.Equal(t, l.Token(), lost.Token)
	require.Error(t, l.Release(t.Context()))
	told(so...)
}
