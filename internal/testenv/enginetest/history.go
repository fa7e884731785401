package enginetest

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/verify/check"
	"github.com/headwaiter/headwaiter/lease"
)

// AHistoryInTrouble has clients take turns while their server stands still, for less and for more than a lease, and while
// it is away; and judges what they saw. The server keeps what it knew.
func (r Rig) AHistoryInTrouble(t *testing.T) {
	const clients, enough = 4, 40
	recorder := check.NewRecorder()
	ctx, finish := context.WithTimeout(t.Context(), 2*kit.Patience)
	defer finish()
	var mu sync.Mutex // guards unexpected
	var unexpected []error
	var work sync.WaitGroup
	for lane := range clients {
		m := r.one(t, Short)
		rng := rand.New(rand.NewPCG(uint64(lane), 11))
		work.Go(func() {
			for ctx.Err() == nil {
				if err := turn(ctx, recorder, m, lane, rng); err != nil {
					mu.Lock()
					unexpected = append(unexpected, err)
					mu.Unlock()
				}
			}
		})
	}
	m := r.one(t, Short)
	for _, trouble := range []func(){
		func() { r.still(t, Short/8) },
		func() {
			r.Server.Kill()
			require.NoError(t, r.Server.Run())
		},
		func() {
			l, err := recorder.Acquire(check.Want{Name: "one", Lane: clients}, func() (*lease.Lease, error) { return m.Lock(ctx) })
			require.NoError(t, err)
			r.still(t, Short+Short/4)
			require.ErrorIs(t, l.Release(ctx), lease.ErrLost)
		},
		func() { r.still(t, Short/8) },
	} {
		before := len(recorder.Holds("one"))
		kit.Eventually(t, "the lock to go round", func() bool { return len(recorder.Holds("one")) >= before+enough/4 })
		trouble()
	}
	kit.Eventually(t, "the lock to go round at the end", func() bool { return len(recorder.Holds("one")) >= enough })
	finish()
	kit.All(t, &work)
	require.Empty(t, unexpected)
	holds := recorder.Holds("one")
	require.Empty(t, holds.Wrong(1))
	judged := check.Linearizable(t, check.Mutex, recorder.History())
	lost := 0
	for _, h := range holds {
		if h.Lost != check.Never {
			lost++
		}
	}
	t.Logf("%d holds, %d of them lost, %d operations", len(holds), lost, judged)
	r.Empty(t)
}

// still stops the server for so long.
func (r Rig) still(t *testing.T, d time.Duration) {
	t.Helper()
	require.NoError(t, r.Server.Freeze())
	time.Sleep(d) // How long the trouble lasts.
	require.NoError(t, r.Server.Thaw())
}

// turn takes the lock, or gives up, and gives it back some time later. It returns an error that nobody expects.
func turn(ctx context.Context, recorder *check.Recorder, m Mutex, lane int, rng *rand.Rand) error {
	limit := kit.Patience
	if rng.IntN(5) == 0 {
		limit = time.Duration(1+rng.IntN(40)) * time.Millisecond
	}
	wait, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	w := check.Want{Name: "one", Lane: lane, Try: rng.IntN(6) == 0}
	lock := m.Lock
	if w.Try {
		lock = m.TryLock
	}
	l, err := recorder.Acquire(w, func() (*lease.Lease, error) { return lock(wait) })
	switch {
	case err == nil:
	case errors.Is(err, lease.ErrBusy), errors.Is(err, context.DeadlineExceeded), errors.Is(err, lease.ErrLost),
		errors.Is(err, lease.ErrOutcomeUnknown):
		return nil
	case w.Try && unreached(err): // A try does not wait for the server to come back.
		return nil
	default:
		return err
	}
	hold := time.NewTimer(time.Duration(rng.IntN(30)) * time.Millisecond)
	defer hold.Stop()
	select {
	case <-hold.C:
	case <-l.Context().Done():
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), kit.Patience)
	defer cancel()
	_ = l.Release(end) // The recorder judges it.
	return nil
}

// unreached reports whether an error says that there was no connection, or that it broke.
func unreached(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}
