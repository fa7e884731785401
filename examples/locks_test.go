package examples_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/rwlock"
)

func TestALockIsLeftWhateverHappens(t *testing.T) {
	t.Parallel()
	t.Run("the work is done", func(t *testing.T) {
		t.Parallel()
		s := begin(t, "lock")
		s.run(s.start(), s.start())
		require.Len(t, s.said("^shipped$"), 2)
		require.Equal(t, 1, s.most("^shipping", "^shipped"))
		tokens := s.said(`^shipping with token (\d+)$`)
		require.Len(t, slices.Compact(tokens), 2)
	})
	t.Run("the lock is lost", func(t *testing.T) {
		t.Parallel()
		s := begin(t, "lock")
		orders := fairlock.New(s.client(), "orders:42")
		held, err := orders.Lock(t.Context())
		require.NoError(t, err)
		one := s.start() // It waits at first, so it listens, and hears of its loss at once.
		kit.Waiting(t, 1, orders.Inspect)
		kit.Release(t, held)
		token, err := strconv.ParseUint(s.await(1, `^shipping with token (\d+)$`)[0], 10, 64)
		require.NoError(t, err)
		_, err = orders.ForceRelease(t.Context(), token)
		require.NoError(t, err)
		require.Error(t, one.Wait())
		s.inOrder("^shipping", "not shipped: lease lost: ")
		require.Empty(t, s.said("^shipped$"))
	})
	t.Run("it is terminated", func(t *testing.T) {
		t.Parallel()
		s := begin(t, "lock")
		orders := fairlock.New(s.client(), "orders:42")
		works := s.start()
		s.await(1, "^shipping")
		waits := s.start()
		kit.Waiting(t, 1, orders.Inspect)
		s.signal(terminate, waits)
		require.Error(t, waits.Wait())
		s.await(1, "terminated")
		info, err := orders.Inspect(t.Context())
		require.NoError(t, err)
		require.Equal(t, 0, info.Waiting, "it waits on though it is gone")
		require.True(t, info.Held)
		s.signal(terminate, works)
		require.Error(t, works.Wait())
		s.await(1, "not shipped: terminated")
		held, err := orders.TryLock(t.Context())
		require.NoError(t, err, "it is gone and holds")
		kit.Release(t, held)
	})
	t.Run("it waits for too long", func(t *testing.T) {
		t.Parallel()
		s := begin(t, "lock")
		held, err := fairlock.New(s.client(), "orders:42").Lock(t.Context())
		require.NoError(t, err)
		require.Error(t, s.start().Wait())
		s.await(1, `fairlock: lock "orders:42": waited 5(\.\d+)?s behind 1: the maximum wait is over`)
		kit.Release(t, held)
	})
}

func TestALongJobLetsAShortOneInBetweenTwoSteps(t *testing.T) {
	t.Parallel()
	s := begin(t, "batch")
	long := s.start()
	s.await(2, "^long has done step")
	s.run(s.start("-job", "short", "-steps", "3"))
	s.inOrder("^long has done step", "^long lets others in", "^short has done step 1$", "^short has done step 3$")
	done := len(s.said("^long has done step"))
	s.await(done+2, "^long has done step") // It goes on behind the short one.
	s.signal(terminate, long)
	s.run(long)
	steps := s.said(`^long has done step (\d+)$`)
	require.Len(t, distinct(steps), len(steps), "it has begun anew")
}

func TestWorkersThatKeepTheirLocksMakeMoreSteps(t *testing.T) {
	t.Parallel()
	s := begin(t, "workers")
	work := func(args ...string) (rate, requests float64) {
		before := len(s.said("each$"))
		s.run(s.start(append(args, "-for", "2s")...))
		_, err := fmt.Sscanf(s.await(before+1, `^(\d+ steps a second, .* requests each)$`)[before], "%f steps a second, %f", &rate, &requests)
		require.NoError(t, err)
		return rate, requests
	}
	plain, each := work()
	kept, rarely := work("-keep", "1s")
	require.Greater(t, kept, 2*plain)
	require.InDelta(t, 2, each, 0.1)
	require.Less(t, rarely, 0.1)
	one, two := s.start("-keep", "1m"), s.start("-keep", "1m") // They call each other.
	s.run(one, two)
}

func TestAJobIsDoneOnceATick(t *testing.T) {
	t.Parallel()
	s := begin(t, "cron")
	a, b := s.start(), s.start()
	const reports = `^reports at (.*)$`
	kit.Eventually(t, "three ticks that both processes have seen", func() bool {
		seen := s.said(`^(?:reports at|another process has) (.*)$`)
		return len(seen)-len(distinct(seen)) >= 3
	})
	s.signal(terminate, a, b)
	s.run(a, b)
	done := s.said(reports)
	require.Len(t, distinct(done), len(done), "a job was done twice")
	require.Subset(t, done, s.said(`^another process has (.*)$`), "a job was left to a process that has not done it")
}

func distinct(all []string) []string {
	all = slices.Clone(all)
	slices.Sort(all)
	return slices.Compact(all)
}

func TestSettingsAreReadWhole(t *testing.T) {
	t.Parallel()
	s := begin(t, "rwlock")
	settings := rwlock.New(s.client(), "settings")
	file := filepath.Join(s.dir, "settings.txt")
	s.run(s.start("-set", "a"))

	// One reader does not wait for another, a writer does.
	held, err := settings.RLock(t.Context())
	require.NoError(t, err)
	s.run(s.start())
	s.await(1, "^host=a port=a$")
	writer := s.start("-set", "b")
	kit.Waiting(t, 1, settings.Inspect)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "host=a port=a", string(text))
	kit.Release(t, held)

	// Readers wait for the writer.
	kit.Eventually(t, "the writer to write", func() bool {
		info, err := settings.Inspect(t.Context())
		require.NoError(t, err)
		return info.Held
	})
	s.run(s.start(), s.start(), s.start(), writer)
	require.Len(t, s.said("^host=b port=b$"), 3)
}

func TestALockGoesToTheProcessThatReplacesAWorker(t *testing.T) {
	t.Parallel()
	s := begin(t, "handover")
	worker := fairlock.New(s.client(), "worker")
	first := s.start()
	s.await(1, "^works")
	waits := kit.Lock(t.Context(), worker.Lock)
	kit.Waiting(t, 1, worker.Inspect)
	second := s.start()
	s.run(first)
	tokens := s.await(2, `^works, with token (\d+)$`)
	require.NotEqual(t, tokens[0], tokens[1])
	require.False(t, waits.Returned(), "a waiter came in between")
	s.signal(terminate, second)
	require.Error(t, second.Wait(), "it says that it was told to end")
	kit.Release(t, waits.Value(t))
}
