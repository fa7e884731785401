package fairlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
)

// full is the error of a call that finds no room.
func full(t testing.TB, err error) *lease.QueueFullError {
	t.Helper()
	require.ErrorIs(t, err, lease.ErrQueueFull)
	var e *lease.QueueFullError
	require.ErrorAs(t, err, &e)
	return e
}

func TestTheCallBehindAsManyWaitersAsMayWaitIsRefused(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		const limit = 3
		m := dialMutex(t, s, headwaiter.WithQueueLimit(limit))
		other := dialMutex(t, s, headwaiter.WithQueueLimit(limit)) // It does not listen.
		l := hold(t, m)
		var calls []*call
		for i := range limit {
			calls = append(calls, begin(t.Context(), m))
			queued(t, m, i+1)
		}
		for _, m := range []*fairlock.Mutex{m, other} {
			began := time.Now()
			err := begin(t.Context(), m).Err(t)
			e := full(t, err)
			require.Equal(t, limit, e.Waiting)
			require.Positive(t, e.Oldest)
			require.Zero(t, e.Left)
			require.NotErrorIs(t, err, context.DeadlineExceeded)
			require.Regexp(t, `^fairlock: lock ".*": the queue is full: 3 wait, the first for `, err.Error())
			require.Less(t, time.Since(began), 5*time.Second)
		}
		require.Equal(t, limit, inspect(t, m).Waiting, "nothing is left of them")
		kit.Release(t, l)
		l = calls[0].Value(t)
		calls = append(calls, begin(t.Context(), other)) // There is room again.
		queued(t, m, limit)
		for _, c := range calls[1:] {
			kit.Release(t, l)
			l = c.Value(t)
		}
		kit.Release(t, l)
	})
}

// Clients that do not exist wait in their thousands, by calls without a limit.
func TestTheDeadDoNotFillAQueue(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		m := dialMutex(t, s, headwaiter.WithQueueLimit(2))
		l := hold(t, m)
		bury(t, s, kit.Name(t), dead)
		first := begin(t.Context(), m)
		kit.Eventually(t, "the first to wait", func() bool { return inspect(t, m).Waiting == dead+1 })
		second := begin(t.Context(), m)
		queued(t, m, 2)
		require.Equal(t, 2, full(t, begin(t.Context(), m).Err(t)).Waiting)
		kit.Release(t, l)
		kit.Release(t, first.Value(t))
		kit.Release(t, second.Value(t))
	})
}

// What is skipped although it lives comes back with its arrival, to a queue that is full by then.
func TestAWaiterThatComesBackIsNotRefused(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		m := dialMutex(t, s, headwaiter.WithQueueLimit(1))
		l := hold(t, m)
		waiter := dialMutex(t, s, headwaiter.WithQueueLimit(1))
		c := begin(t.Context(), waiter)
		queued(t, m, 1)
		ticket := inspect(t, m).Queue[0].Ticket
		_, queue, _ := keysOf(kit.Name(t))
		require.EqualValues(t, 1, s.Int("ZREM", queue, ticket))
		other := begin(t.Context(), dialMutex(t, s)) // Without a limit: it may come later.
		queued(t, m, 2)                              // Its check brings the first one back.
		kit.Release(t, l)
		kit.Release(t, c.Value(t))
		kit.Release(t, other.Value(t))
	})
}

// None of them listens yet, so each finds room at its first look.
func TestOfCallsThatComeTogetherAsManyWaitAsMay(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		const calls, limit = 8, 2
		m := dialMutex(t, s)
		l := hold(t, m)
		var all []*call
		for range calls {
			all = append(all, begin(t.Context(), dialMutex(t, s, headwaiter.WithQueueLimit(limit))))
		}
		var wait []*call
		kit.Eventually(t, "all but those that may wait to be refused", func() bool {
			wait = slices.DeleteFunc(slices.Clone(all), (*call).Returned)
			return len(wait) <= limit
		})
		require.Len(t, wait, limit)
		queued(t, m, limit)
		for _, c := range all {
			if c.Returned() {
				require.Equal(t, limit, full(t, c.Err(t)).Waiting)
			}
		}
		kit.Release(t, l)
		for range wait {
			kit.Eventually(t, "the next to hold", func() bool { return slices.ContainsFunc(wait, (*call).Returned) })
			i := slices.IndexFunc(wait, (*call).Returned)
			kit.Release(t, wait[i].Value(t))
			wait = slices.Delete(wait, i, i+1)
		}
	})
}

func TestACallThatWouldWaitForLongerThanItsDeadlineIsRefused(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		m := dialMutex(t, s, headwaiter.WithAdmission())
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		l := begin(ctx, m).Value(t)
		c := begin(ctx, m)
		queued(t, m, 1)
		kit.Eventually(t, "the head to have waited for a while", func() bool {
			short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			began := time.Now()
			_, err := m.Lock(short)
			if !errors.Is(err, lease.ErrQueueFull) {
				return false
			}
			e := full(t, err)
			require.Positive(t, e.Waiting, "one that was let in may not be gone yet")
			require.Positive(t, e.Left)
			require.LessOrEqual(t, e.Left, 50*time.Millisecond)
			return time.Since(began) < 50*time.Millisecond
		})
		impatient := fairlock.New(kit.Dial(t, s), kit.Name(t), headwaiter.WithAdmission(), headwaiter.WithMaxWait(50*time.Millisecond))
		full(t, fairlock.LockEach(t.Context(), impatient)[0].Err)
		queued(t, m, 1)
		patient := begin(ctx, m)
		queued(t, m, 2)
		kit.Release(t, l)
		kit.Release(t, c.Value(t))
		kit.Release(t, patient.Value(t))
	})
}

// Of as many refusals as there may be one looks who lives.
func TestARefusalLooksAtNobodyRightBehindAnother(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		holder, waiter, client := dialMutex(t, s), dialMutex(t, s), kit.Dial(t, s)
		l := hold(t, holder)
		first := begin(t.Context(), waiter)
		queued(t, holder, 1)
		second := begin(t.Context(), waiter)
		queued(t, holder, 2)
		refused := func(opts ...fairlock.Option) int64 {
			synctime.Pass(time.Second) // What was looked at before counts no more.
			m := fairlock.New(client, kit.Name(t), append(opts, headwaiter.WithQueueLimit(2))...)
			full(t, begin(t.Context(), m).Err(t))
			s.ResetStats()
			for range 20 {
				require.Equal(t, 2, full(t, begin(t.Context(), m).Err(t)).Waiting)
			}
			return kit.Scripts(s)["pubsub|numsub"]
		}
		require.Zero(t, refused())
		require.Zero(t, refused(headwaiter.WithPriority(1)))
		lock, _, suspects := keysOf(kit.Name(t))
		s.Do("HSET", lock, "marked", "1")
		s.Do("ZADD", suspects, strconv.FormatInt(time.Now().UnixMicro(), 10), "killed")
		require.Zero(t, refused(), "beside a suspect")
		kit.Release(t, l)
		kit.Release(t, first.Value(t))
		kit.Release(t, second.Value(t))
	})
}

func TestWhatCannotBeAskedOfAQueueIsInvalid(t *testing.T) {
	s := redistest.Mini(t)
	for _, n := range []int{0, -1, lease.MaxQueueLimit + 1} {
		_, err := dialMutex(t, s, headwaiter.WithQueueLimit(n)).Lock(t.Context())
		require.ErrorIs(t, err, lease.ErrInvalid)
		require.ErrorContains(t, err, fmt.Sprintf("WithQueueLimit: a limit of %d ", n))
	}
	m := dialMutex(t, s, headwaiter.WithAdmission())
	_, err := m.Lock(t.Context())
	require.ErrorIs(t, err, lease.ErrInvalid)
	require.ErrorContains(t, err, "WithAdmission")
	require.EqualError(t, fairlock.LockEach(t.Context(), m)[0].Err, err.Error())
	l, err := m.TryLock(t.Context())
	require.NoError(t, err, "a try never waits")
	kit.Release(t, l)
	kit.Release(t, hold(t, dialMutex(t, s, headwaiter.WithAdmission(), headwaiter.WithMaxWait(time.Minute))))
}
