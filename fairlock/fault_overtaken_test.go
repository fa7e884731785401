package fairlock_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lua"
)

// twoLanes are connections of a caller that sends asks on one and all else on another, so that the end of a
// ticket overtakes its ask.
type twoLanes struct {
	rueidis.Client
	asks rueidis.Client
}

func (c twoLanes) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	if slices.ContainsFunc(cmd.Commands(), func(word string) bool {
		return word == lua.Fairlock.Ask.SHA || word == lua.Fairlock.Ask.Source
	}) {
		return c.asks.Do(ctx, cmd)
	}
	return c.Client.Do(ctx, cmd)
}

// An ask is on its way when its caller gives up, and the end is answered. Then the ask's connection breaks, and
// after that the ask runs: nobody may hold because of it.
func TestAnAskThatRunsAfterItsEndWasAnsweredLeavesNoHolder(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		connect := func(dial *faults.Dialer) rueidis.Client {
			o := s.Option()
			o.DialCtxFn, o.DisableCache, o.DisableRetry, o.PipelineMultiplex = dial.DialCtx, true, true, -1
			o.ConnWriteTimeout, o.Dialer.KeepAlive = time.Second, 500*time.Millisecond // When a silent connection is given up.
			rc, err := rueidis.NewClient(o)
			require.NoError(t, err)
			t.Cleanup(rc.Close)
			return rc
		}
		d := faults.NewDialer(t, s.Dial)
		client, err := headwaiter.New(twoLanes{connect(faults.NewDialer(t, s.Dial)), connect(d)}, headwaiter.Options{Name: "test"})
		require.NoError(t, err)
		t.Cleanup(func() { _ = client.Close(context.Background()) })
		late, prompt := fairlock.New(client, kit.Name(t), headwaiter.WithLease(12*time.Hour)), dialMutex(t, s)
		kit.Release(t, hold(t, late))

		d.Freeze(faults.ToServer)
		ctx, cancel := context.WithTimeout(t.Context(), given)
		defer cancel()
		ends := client.Stats().Ends
		require.ErrorIs(t, begin(ctx, late).Err(t), context.DeadlineExceeded)
		synctest.Wait()
		require.Equal(t, ends+1, client.Stats().Ends)
		synctime.Pass(2200 * time.Millisecond) // The connection is given up, the ask may still run.
		d.Heal()
		synctime.Pass(ghostLimit)
		kit.Free(t, prompt)
		kit.Release(t, hold(t, late))
		kit.Free(t, prompt)
	})
}

// A first ask that comes late queues its ticket anew, behind those whom it was ahead of. Its client's next look
// takes it back to its place (I3).
func TestALateFirstAskCostsNoPlace(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		holder, first, second := dialMutex(t, s), dialMutex(t, s), dialMutex(t, s)
		l := hold(t, holder)
		a := begin(t.Context(), first)
		queued(t, holder, 1)
		b := begin(t.Context(), second)
		queued(t, holder, 2)
		_, queue, _ := keysOf(kit.Name(t))
		tickets := s.List("ZRANGE", queue, "0", "-1")
		place := s.Text("ZSCORE", queue, tickets[0])
		s.Do("ZINCRBY", queue, "1000000", tickets[0]) // As such an ask does where the ticket was skipped.
		require.Equal(t, tickets[1], s.List("ZRANGE", queue, "0", "0")[0])
		synctime.Pass(3 * time.Second) // Both have looked.
		require.Equal(t, tickets, s.List("ZRANGE", queue, "0", "-1"))
		require.Equal(t, place, s.Text("ZSCORE", queue, tickets[0]))
		kit.Release(t, l)
		l = a.Value(t)
		require.False(t, b.Returned())
		kit.Release(t, l)
		kit.Release(t, b.Value(t))
	})
}
