package fence_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/fence"
	"github.com/headwaiter/headwaiter/internal/testenv/fenced"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

// variable is a number in this process, behind a guard if there is one.
type variable struct {
	guard fence.Runner
	n     atomic.Int64
}

func (v *variable) Show(ctx context.Context, token uint64) error {
	if v.guard == nil {
		return nil
	}
	return v.guard.Admit(ctx, token)
}

func (v *variable) Read(context.Context) (int64, error) { return v.n.Load(), nil }

func (v *variable) Write(ctx context.Context, token uint64, n int64) error {
	if v.guard == nil {
		v.n.Store(n)
		return nil
	}
	return v.guard.Do(ctx, token, func(context.Context) error {
		v.n.Store(n)
		return nil
	})
}

func TestMemoryLosesNothingToAPausedHolder(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		short, lock := locks(t, s)
		count, refused := fenced.PausedHolder(t, short, lock, &variable{guard: fence.NewMemory(1).Key("n")})
		require.ErrorIs(t, refused, fence.ErrStale)
		require.Equal(t, int64(2), count)

		count, refused = fenced.PausedHolder(t, short, lock, &variable{})
		require.NoError(t, refused)
		require.Equal(t, int64(1), count, "without the check nothing was lost: the test shows nothing")
	})
}

// unshown is a resource whose holders do not show their tokens before they read.
type unshown struct{ fenced.Resource }

func (unshown) Show(context.Context, uint64) error { return nil }

// The late write comes between the read and the write of the next holder, whose token nobody has seen yet.
func TestATokenThatIsNotShownBeforeTheReadLeavesAHole(t *testing.T) {
	t.Parallel()
	for _, shows := range []bool{true, false} {
		var r fenced.Resource = &variable{guard: fence.NewMemory(1).Key("n")}
		if !shows {
			r = unshown{r}
		}
		ctx := t.Context()
		require.NoError(t, r.Show(ctx, 1))
		require.NoError(t, r.Write(ctx, 1, 10))
		require.NoError(t, r.Show(ctx, 2))
		seen, err := r.Read(ctx)
		require.NoError(t, err)
		late := r.Write(ctx, 1, 20)
		require.NoError(t, r.Write(ctx, 2, seen+1))
		if shows {
			require.ErrorIs(t, late, fence.ErrStale)
		} else {
			require.NoError(t, late)
		}
		got, err := r.Read(ctx)
		require.NoError(t, err)
		require.Equal(t, int64(11), got, "20 was admitted: %v, and is gone", late == nil)
	}
}

func TestAMemoryGoesByTheHighestTokenInAnyOrder(t *testing.T) {
	t.Parallel()
	fenced.Interleavings(t, 10_000, 4, func(int) fenced.Resource {
		return &variable{guard: fence.NewMemory(1).Key("n")}
	})
	m := fence.NewMemory(2)
	require.NoError(t, m.Key("a").Admit(t.Context(), 5))
	require.NoError(t, m.Key("b").Admit(t.Context(), 1), "keys are not apart")
	require.NoError(t, m.Key("a").Admit(t.Context(), 5), "an equal token is of the same hold")
	err := m.Key("a").Admit(t.Context(), 4)
	stale(t, err, 4, 5)
	require.EqualError(t, err, `fence: admit to "a": stale fencing token: 4, where 5 was seen`)
}

func TestAMemoryRefusesWhatIsNoToken(t *testing.T) {
	t.Parallel()
	refusesWhatIsNoToken(t, fence.NewMemory(1).Key("n"))
	require.Panics(t, func() { fence.NewMemory(0) })
}

// list is a list of tokens without a lock of its own: the race detector sees it if a guard lets two in.
type list struct {
	guard  fence.Runner
	tokens []uint64
}

func (l *list) Read(context.Context) ([]uint64, error) { return l.tokens, nil }

func (l *list) Write(ctx context.Context, token uint64) error {
	return l.guard.Do(ctx, token, func(context.Context) error {
		l.tokens = append(l.tokens, token)
		return nil
	})
}

func TestAMemoryKeepsACrowdInOrder(t *testing.T) {
	t.Parallel()
	fenced.Crowd(t, 8, 2000, &list{guard: fence.NewMemory(1).Key("n")})
}

func TestAMemoryThatForgetsRefusesRatherThanAdmits(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	m := fence.NewMemory(2)
	require.NoError(t, m.Key("a").Admit(ctx, 10))
	require.NoError(t, m.Key("b").Admit(ctx, 20))
	require.NoError(t, m.Key("a").Admit(ctx, 11)) // Now b is the one that was not used for longest.
	require.NoError(t, m.Key("c").Admit(ctx, 5))  // And forgotten.
	stale(t, m.Key("b").Admit(ctx, 19), 19, 20)
	stale(t, m.Key("d").Admit(ctx, 19), 19, 20) // Never seen; it cannot be told from b.
	require.NoError(t, m.Key("a").Admit(ctx, 11), "a refusal made it forget")
	require.NoError(t, m.Key("c").Admit(ctx, 5), "a key that is known goes by its own mark")
	require.NoError(t, m.Key("b").Admit(ctx, 20))
}

func TestAWriteKeepsNewerTokensWaitingAndOlderOnesOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		m := fence.NewMemory(1)
		k := m.Key("n")
		begun, goOn := make(chan struct{}), make(chan struct{})
		wrong := errors.New("wrong")
		write := kit.Run(func() error {
			return k.Do(ctx, 2, func(context.Context) error {
				close(begun)
				<-goOn
				return wrong
			})
		})
		<-begun
		stale(t, k.Admit(ctx, 1), 1, 2)
		// One key more than there is room for: the one that is written is not forgotten.
		require.NoError(t, m.Key("other").Admit(ctx, 1), "keys are not apart")
		newer := kit.Run(func() error { return k.Admit(ctx, 3) })
		synctest.Wait()
		require.False(t, newer.Returned(), "a newer holder reads while an older one writes")
		gone, cancel := context.WithCancel(ctx)
		cancelled := kit.Run(func() error { return k.Admit(gone, 4) })
		synctest.Wait()
		require.False(t, cancelled.Returned())
		cancel()
		require.ErrorIs(t, cancelled.Err(t), context.Canceled)
		close(goOn)
		require.ErrorIs(t, write.Err(t), wrong)
		stale(t, newer.Err(t), 3, 4) // The one that gave up holds since.
		require.NoError(t, k.Admit(ctx, 4))
	})
}

func TestAWriteThatPanicsLetsTheNextIn(t *testing.T) {
	t.Parallel()
	k := fence.NewMemory(1).Key("n")
	require.Panics(t, func() {
		_ = k.Do(t.Context(), 1, func(context.Context) error { panic("so") })
	})
	require.NoError(t, kit.Run(func() error { return k.Admit(t.Context(), 2) }).Err(t))
}
