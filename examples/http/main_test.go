package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/observe"
)

// atTheGrant calls itself when a call gets its lock.
type atTheGrant func()

func (f atTheGrant) Observe(_ context.Context, o observe.Observation) {
	if o.Moment == observe.Granted {
		f()
	}
}

func TestAClientThatGoesAwayWithTheGrantLeavesNoLockBehind(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		ctx, hangUp := context.WithCancel(t.Context())
		locks := kit.Dial(t, s, kit.Observed(atTheGrant(hangUp)))
		customer := kit.Name(t)

		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/?customer="+customer, nil)
		shop(locks)(httptest.NewRecorder(), r)
		require.Error(t, ctx.Err(), "the client stayed: this shows nothing")
		held, err := fairlock.New(locks, "customer:"+customer).TryLock(t.Context())
		require.NoError(t, err, "nobody works, and the lock is held")
		kit.Release(t, held)
	})
}
