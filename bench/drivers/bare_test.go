package drivers_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/bench"
	"github.com/headwaiter/headwaiter/bench/drivers"
	"github.com/headwaiter/headwaiter/internal/testenv/must"
)

// The yardstick keeps one at a time, the order and rising tokens, in all works that it is measured in.
func TestTheBareProtocolIsALock(t *testing.T) {
	redis := must.Got(bench.StartRedis(t.Context()))(t)
	defer redis.Stop()
	option := rueidis.ClientOption{InitAddress: []string{redis.Addr}}
	report, err := bench.Run(t.Context(), bench.Config{
		Contenders: []bench.Contender{drivers.BareContender(option)}, Redis: option, Rounds: 1, Slice: 100 * time.Millisecond,
		Restless: true, Works: bench.Standard([]int{2, 8})[:5], Log: t.Logf,
	})
	require.NoError(t, err)
	require.NoError(t, report.Fault())
	require.Len(t, report.Results, 5)
	for _, r := range report.Results {
		require.NotZero(t, r.Figures.Cycles, r.Work)
	}
}

// In their order also where each comes when the others wait: in a run calls come at almost the same moment.
func TestTheBareProtocolServesTheFirstFirst(t *testing.T) {
	redis := must.Got(bench.StartRedis(t.Context()))(t)
	defer redis.Stop()
	option := rueidis.ClientOption{InitAddress: []string{redis.Addr}, DisableCache: true}
	probe := must.Got(rueidis.NewClient(option))(t)
	defer probe.Close()
	client := must.Got(drivers.Bare{Redis: option}.NewClient(t.Context()))(t)
	defer func() { require.NoError(t, client.Shutdown(t.Context())) }()
	held, err := client.Mutex("a").Lock(t.Context())
	require.NoError(t, err)
	type turn struct {
		number int
		hold   bench.Hold
		err    error
	}
	const calls = 4
	turns := make(chan turn, calls)
	for i := range calls {
		go func() {
			hold, err := client.Mutex("a").Lock(t.Context())
			turns <- turn{i, hold, err}
		}()
		require.Eventually(t, func() bool {
			waiting, err := probe.Do(t.Context(), probe.B().Zcard().Key("bare:{a}:queue").Build()).AsInt64()
			return err == nil && waiting == int64(i)+1
		}, 10*time.Second, time.Millisecond)
	}
	for i := range calls {
		require.NoError(t, held.Release(t.Context()))
		next := <-turns
		require.NoError(t, next.err)
		require.Equal(t, i, next.number)
		held = next.hold
	}
	require.NoError(t, held.Release(t.Context()))
}

// A head that nobody hears is passed over.
func TestTheBareProtocolPassesTheDeadOver(t *testing.T) {
	redis := must.Got(bench.StartRedis(t.Context()))(t)
	defer redis.Stop()
	driver := drivers.Bare{Redis: rueidis.ClientOption{InitAddress: []string{redis.Addr}}}
	client := func() bench.Client { return must.Got(driver.NewClient(t.Context()))(t) }
	holder, dead, next := client(), client(), client()
	defer func() {
		require.NoError(t, holder.Shutdown(t.Context()))
		require.NoError(t, next.Shutdown(t.Context()))
	}()
	held := must.Got(holder.Mutex("a").Lock(t.Context()))(t)
	probe := must.Got(rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{redis.Addr}, DisableCache: true}))(t)
	defer probe.Close()
	queued := func(n int64) func() bool {
		return func() bool {
			waiting, err := probe.Do(t.Context(), probe.B().Zcard().Key("bare:{a}:queue").Build()).AsInt64()
			return err == nil && waiting == n
		}
	}
	givenUp, giveUp := context.WithCancel(t.Context())
	waited := make(chan error, 1)
	go func() {
		_, err := dead.Mutex("a").Lock(givenUp)
		waited <- err
	}()
	require.Eventually(t, queued(1), 10*time.Second, time.Millisecond)
	giveUp()
	require.ErrorIs(t, <-waited, context.Canceled)
	require.NoError(t, dead.Shutdown(t.Context()))
	// The server hears of it in its own time.
	require.Eventually(t, func() bool {
		heard, err := probe.Do(t.Context(), probe.B().PubsubChannels().Pattern("bare:*").Build()).AsStrSlice()
		return err == nil && len(heard) == 1
	}, 10*time.Second, time.Millisecond)
	got := make(chan bench.Hold, 1)
	go func() {
		hold, err := next.Mutex("a").Lock(t.Context())
		if err == nil {
			got <- hold
		}
	}()
	require.Eventually(t, queued(2), 10*time.Second, time.Millisecond)
	require.NoError(t, held.Release(t.Context()))
	select {
	case hold := <-got:
		require.Greater(t, hold.Token(), held.Token())
		require.NoError(t, hold.Release(t.Context()))
	case <-time.After(10 * time.Second):
		t.Fatal("the lock went to a client that is gone")
	}
	require.ErrorContains(t, held.Release(t.Context()), "does not hold")
}
