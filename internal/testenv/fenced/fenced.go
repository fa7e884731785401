// Package fenced has what every guard of package fence must pass: a holder that is paused past its lease, old and
// new tokens in a random order, and writers that come all at once.
package fenced

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/fence"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
)

// A Resource is a number that a guard protects, or that nothing does.
type Resource interface {
	// Show tells the resource a token before anything is read.
	Show(ctx context.Context, token uint64) error
	Read(ctx context.Context) (int64, error)
	Write(ctx context.Context, token uint64, n int64) error
}

// A Lock is a method that locks.
type Lock func(context.Context) (*lease.Lease, error)

// PausedHolder lets two holders count by one each. The first is paused between its read and its write until its
// lease is over and the second has counted; if its write is refused it locks and counts once more. PausedHolder
// returns what the resource has in the end, 2 if nothing was lost, and why the late write was refused, if it was. A
// hold by short must end by itself, soon.
func PausedHolder(t testing.TB, short, lock Lock, r Resource) (count int64, refused error) {
	t.Helper()
	ctx := t.Context()
	first, err := short(ctx)
	require.NoError(t, err)
	require.NoError(t, r.Show(ctx, first.Token()))
	seen, err := r.Read(ctx)
	require.NoError(t, err)
	require.ErrorIs(t, kit.Lost(t, first), lease.ErrLost) // Paused: it does not look.

	countByOne(t, lock, r, first.Token())
	refused = r.Write(ctx, first.Token(), seen+1)
	if refused != nil {
		countByOne(t, lock, r, first.Token())
	}
	count, err = r.Read(ctx)
	require.NoError(t, err)
	return count, refused
}

// countByOne counts under a lock, which must be of a newer hold than the given token's.
func countByOne(t testing.TB, lock Lock, r Resource, above uint64) {
	t.Helper()
	held := kit.Lock(t.Context(), lock).Value(t)
	require.Greater(t, held.Token(), above)
	require.NoError(t, r.Show(held.Context(), held.Token()))
	seen, err := r.Read(held.Context())
	require.NoError(t, err)
	require.NoError(t, r.Write(held.Context(), held.Token(), seen+1))
	kit.Release(t, held)
}

// Interleavings writes with old and new tokens in random orders, to a new resource each round, by that many workers
// at a time. It requires that a write is refused if and only if a newer token was there before it.
func Interleavings(t testing.TB, rounds, workers int, fresh func(round int) Resource) {
	t.Helper()
	seed := rand.Uint64()
	failures := make(chan error, workers)
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for round := w; round < rounds; round += workers {
				rng := rand.New(rand.NewPCG(seed, uint64(round)))
				if err := interleave(t.Context(), rng, fresh(round)); err != nil {
					failures <- fmt.Errorf("round %d of seed %d: %w", round, seed, err)
					return
				}
			}
		})
	}
	all.Wait()
	close(failures)
	for err := range failures {
		t.Error(err)
	}
}

// interleave is one round.
func interleave(ctx context.Context, rng *rand.Rand, r Resource) error {
	var tokens []uint64
	next := 1 + rng.Uint64N(1<<53)
	for range 2 + rng.IntN(3) {
		for range 1 + rng.IntN(2) {
			tokens = append(tokens, next)
		}
		next += 1 + rng.Uint64N(1<<rng.UintN(20))
	}
	rng.Shuffle(len(tokens), func(i, j int) { tokens[i], tokens[j] = tokens[j], tokens[i] })
	var highest uint64
	var last int64
	for i, token := range tokens {
		n := int64(i + 1)
		err := r.Write(ctx, token, n)
		var stale *fence.StaleError
		switch {
		case err == nil && token < highest:
			return fmt.Errorf("%v: write %d was admitted after %d", tokens, i, highest)
		case err == nil:
			highest, last = token, n
		case token >= highest:
			return fmt.Errorf("%v: write %d: %w", tokens, i, err)
		case !errors.As(err, &stale) || stale.Token != token || stale.Highest != highest:
			return fmt.Errorf("%v: write %d after %d was refused as %w", tokens, i, highest, err)
		}
	}
	if got, err := r.Read(ctx); err != nil || got != last {
		return fmt.Errorf("%v: the resource has %d in the end, not %d: %v", tokens, got, last, err)
	}
	return nil
}

// A Log is a list of tokens that a guard protects: a write adds its own.
type Log interface {
	Write(ctx context.Context, token uint64) error
	Read(ctx context.Context) ([]uint64, error)
}

// Crowd lets writers write as fast as they can, each that many times, and each with a new token now and then. It
// requires that the writes that were not refused are in the log, and that none comes after a newer one.
func Crowd(t testing.TB, writers, times int, log Log) {
	t.Helper()
	var issued atomic.Uint64
	outcomes := make([]crowded, writers)
	var all sync.WaitGroup
	start := make(chan struct{}) // For all at once: a writer alone is overtaken by nobody.
	for w := range writers {
		all.Go(func() {
			<-start
			outcomes[w] = crowd(t.Context(), times, &issued, log)
		})
	}
	close(start)
	all.Wait()
	var admitted []uint64
	refused := 0
	for _, o := range outcomes {
		require.NoError(t, o.err)
		admitted, refused = append(admitted, o.admitted...), refused+o.refused
	}
	got, err := log.Read(t.Context())
	require.NoError(t, err)
	require.True(t, slices.IsSorted(got), "a write came after a newer one: %v", got)
	slices.Sort(admitted)
	require.Equal(t, admitted, got, "what was written is not what was admitted")
	require.Equal(t, issued.Load(), got[len(got)-1], "the newest was refused")
	require.NotZero(t, refused, "nobody was overtaken: the test shows nothing")
}

// crowded is what became of the writes of one writer.
type crowded struct {
	admitted []uint64
	refused  int
	err      error
}

func crowd(ctx context.Context, times int, issued *atomic.Uint64, log Log) (o crowded) {
	const each = 3 // writes with one token
	var token uint64
	for i := range times {
		if i%each == 0 {
			token = issued.Add(1)
			for range token % 3 { // Let others come in between; but not in turn, or none would be overtaken.
				runtime.Gosched()
			}
		}
		switch err := log.Write(ctx, token); {
		case err == nil:
			o.admitted = append(o.admitted, token)
		case errors.Is(err, fence.ErrStale):
			o.refused++
		default:
			o.err = err
			return o
		}
	}
	return o
}
