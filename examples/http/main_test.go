package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/observe"
)

// atTheGrant calls itself when a call gets its lock.
type atTheGrant func()

func (f atTheGrant) Observe(_ context.Context, o observe.Observation) {
	if o.Event == observe.Granted {
		f()
	}
}

// One hot customer does not take the service down: what it cannot be served is told at once, and others are served.
func TestOneHotCustomerIsTurnedAwayAndTheOthersAreServed(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		locks := kit.Dial(t, s)
		hot, other := kit.Name(t)+":hot", kit.Name(t)+":other"
		held := kit.Got(fairlock.New(locks, "customer:"+hot).Lock(t.Context()))(t)
		ctx, hangUp := context.WithCancel(t.Context())
		ask := func(ctx context.Context, customer string) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			serve(locks, w, httptest.NewRequestWithContext(ctx, http.MethodPost, "/?customer="+customer, nil))
			return w
		}
		const waiting, flood = 20, 60
		answers := make(chan *httptest.ResponseRecorder, flood)
		for range flood {
			go func() { answers <- ask(ctx, hot) }()
		}
		for range flood - waiting {
			w := <-answers
			require.Equal(t, http.StatusTooManyRequests, w.Code)
		}
		kit.Waiting(t, waiting, fairlock.New(locks, "customer:"+hot).Inspect)
		require.Equal(t, http.StatusOK, ask(t.Context(), other).Code)
		hangUp()
		for range waiting {
			<-answers
		}
		kit.Release(t, held)
	})
}

// A customer who waits for others is told something else than one who waits for Redis.
func TestAnOutageIsNotBusy(t *testing.T) {
	kit.EachBehind(t, func(t *testing.T, s redistest.Backend, p *faults.Proxy) {
		locks, customer := kit.Dial(t, s, kit.Through(p)), kit.Name(t)
		held := kit.Got(fairlock.New(kit.Dial(t, s), "customer:"+customer).Lock(t.Context()))(t)
		ask := func() int {
			w := httptest.NewRecorder()
			r := httptest.NewRequestWithContext(kit.Within(t, time.Second), http.MethodPost, "/?customer="+customer, nil)
			serve(locks, w, r)
			return w.Code
		}
		require.Equal(t, http.StatusServiceUnavailable, ask())
		p.Away()
		require.Equal(t, http.StatusBadGateway, ask())
		p.Heal()
		kit.Release(t, held)
	})
}

func TestAClientThatGoesAwayWithTheGrantLeavesNoLockBehind(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		ctx, hangUp := context.WithCancel(t.Context())
		locks, customer := kit.Dial(t, s, kit.Observed(atTheGrant(hangUp))), kit.Name(t)

		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/?customer="+customer, nil)
		serve(locks, httptest.NewRecorder(), r)
		require.Error(t, ctx.Err(), "the client stayed: this shows nothing")
		held, err := fairlock.New(locks, "customer:"+customer).TryLock(t.Context())
		require.NoError(t, err, "nobody works, and the lock is held")
		kit.Release(t, held)
	})
}
