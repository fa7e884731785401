package enginetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
)

// TheServerIsSeenToGoAndComeBack has the server die, hang and come back while a client that o observes takes turns.
func (r Rig) TheServerIsSeenToGoAndComeBack(t *testing.T, o *kit.Requests, lock func(context.Context) (*lease.Lease, error), engine string) {
	ctx, cancel := context.WithCancel(t.Context())
	turns := kit.Run(func() error {
		for ctx.Err() == nil {
			takeTurn(ctx, lock)
		}
		return nil
	})
	kit.Eventually(t, "an answer", o.Up)
	down := func() bool { return !o.Up() }
	r.Server.Kill()
	kit.Eventually(t, "no answer of a server that is dead", down)
	require.NoError(t, r.Server.Run())
	kit.Eventually(t, "an answer of the one that was started", o.Up)
	require.NoError(t, r.Server.Freeze())
	kit.Eventually(t, "no answer of a server that hangs", down)
	require.NoError(t, r.Server.Thaw())
	kit.Eventually(t, "an answer after that", o.Up)
	cancel()
	require.NoError(t, turns.Err(t))
	for _, made := range o.Made() {
		require.Equal(t, engine, made.Engine)
		require.Equal(t, "observed", made.Client)
		require.Equal(t, o.Made()[0].Server, made.Server)
		require.NotEmpty(t, made.Server)
		if made.Err == nil {
			require.Positive(t, made.Took)
		}
	}
}

// takeTurn holds for as long as a client needs to ask whether the server is there.
func takeTurn(ctx context.Context, lock func(context.Context) (*lease.Lease, error)) {
	within, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	l, err := lock(within)
	if err != nil {
		return
	}
	defer l.Unlock()
	select {
	case <-time.After(time.Second):
	case <-l.Context().Done():
	case <-ctx.Done():
	}
}
