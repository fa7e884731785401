package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

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
		accounts, err := rueidis.NewClient(s.Option())
		require.NoError(t, err)
		t.Cleanup(accounts.Close)
		ctx, hangUp := context.WithCancel(t.Context())
		locks := kit.Dial(t, s, kit.Observed(atTheGrant(hangUp)))
		shop := &shop{locks, accounts, kit.Name(t), newPayments()}

		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/customers/ada/points", nil)
		shop.handler().ServeHTTP(httptest.NewRecorder(), r)
		require.Error(t, ctx.Err(), "the client stayed: this shows nothing")
		held, err := shop.lock("ada").TryLock(t.Context()) // It never overtakes the Unlock of its own client.
		require.NoError(t, err, "nobody works, and the lock is held")
		kit.Release(t, held)
	})
}
