package check

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// heldFor is a hold of lane id that was called, got and released at those times, in ms.
func heldFor(id int, called, got, released time.Duration, tok uint64, with ...func(*Hold)) Hold {
	h := Hold{
		ID: id, Lane: id, Called: called * ms, Got: got * ms, Token: tok, Permits: 1, Deadline: 1000 * ms,
		Releasing: released * ms, Released: (released + 1) * ms, Lost: Never,
	}
	for _, change := range with {
		change(&h)
	}
	return h
}

func reader(h *Hold)                       { h.Shared = true }
func tried(h *Hold)                        { h.Tried = true }
func writer(h *Hold)                       { h.Permits = everything }
func deadline(t time.Duration) func(*Hold) { return func(h *Hold) { h.Deadline = t * ms } }
func lostAt(t time.Duration) func(*Hold)   { return func(h *Hold) { h.Lost, h.Releasing = t*ms, Never } }
func downgradedAt(t time.Duration) func(*Hold) {
	return func(h *Hold) { h.DowngradeCall, h.Downgraded = t*ms, (t+1)*ms }
}

func TestTokensOfHolds(t *testing.T) {
	t.Parallel()
	require.Empty(t, Holds{heldFor(1, 0, 1, 2, 5), heldFor(2, 0, 3, 4, 6), heldFor(3, 5, 6, 7, 9)}.Tokens())
	require.Empty(t, Holds{heldFor(1, 0, 1, 2, 5, reader), heldFor(2, 0, 3, 4, 5, reader)}.Tokens())
	require.Len(t, Holds{heldFor(1, 0, 1, 2, 5, reader), heldFor(2, 0, 3, 4, 5)}.Tokens(), 1)
	require.Len(t, Holds{heldFor(1, 0, 1, 2, 5), heldFor(2, 0, 3, 4, 5)}.Tokens(), 1)
	require.Len(t, Holds{heldFor(1, 0, 1, 2, 6), heldFor(2, 2, 3, 4, 5)}.Tokens(), 1, "it fell")
	require.Empty(t, Holds{heldFor(1, 0, 3, 4, 6), heldFor(2, 2, 3, 4, 5)}.Tokens(), "either may have been first")
}

func TestOverlapsOfHolds(t *testing.T) {
	t.Parallel()
	first := heldFor(1, 0, 1, 5, 5)
	require.Empty(t, Holds{first, heldFor(2, 0, 5, 9, 6)}.Overlaps(1))
	require.Len(t, Holds{first, heldFor(2, 0, 4, 9, 6)}.Overlaps(1), 1)
	require.Empty(t, Holds{first, heldFor(2, 0, 4, 9, 6)}.Overlaps(2))
	require.Empty(t, Holds{heldFor(1, 0, 1, 50, 5, deadline(4)), heldFor(2, 0, 4, 9, 6)}.Overlaps(1))
	require.Empty(t, Holds{heldFor(1, 0, 1, 50, 5, lostAt(4)), heldFor(2, 0, 4, 9, 6)}.Overlaps(1))
	require.Len(t, Holds{heldFor(1, 0, 1, 50, 5, lostAt(5)), heldFor(2, 0, 4, 9, 6)}.Overlaps(1), 1)
	require.Empty(t, Holds{heldFor(1, 0, 1, 5, 5, reader), heldFor(2, 0, 2, 9, 5, reader)}.Overlaps(everything))
	require.Len(t, Holds{heldFor(1, 0, 1, 5, 5, reader), heldFor(2, 0, 2, 9, 6, writer)}.Overlaps(everything), 1)
	require.Len(t, Holds{heldFor(1, 0, 1, 5, 5, writer), heldFor(2, 0, 2, 9, 6, reader)}.Overlaps(everything), 1)
	require.Empty(t, Holds{heldFor(1, 0, 1, 9, 5, writer, downgradedAt(3)), heldFor(2, 0, 3, 9, 5, reader)}.Overlaps(everything))
	require.Len(t, Holds{heldFor(1, 0, 1, 9, 5, writer, downgradedAt(3)), heldFor(2, 0, 4, 9, 6, writer)}.Overlaps(everything), 1)
}

func TestLossesOfHolds(t *testing.T) {
	t.Parallel()
	hs := Holds{heldFor(1, 0, 1, 5, 5, deadline(40), lostAt(43)), heldFor(2, 0, 1, 5, 6)}
	require.Empty(t, hs.Losses())
	require.Equal(t, 3*ms, hs.Told())
	require.Len(t, Holds{heldFor(1, 0, 1, 5, 5, deadline(40), lostAt(39))}.Losses(), 1)
}

func TestInversionsOfHolds(t *testing.T) {
	t.Parallel()
	require.Empty(t, Holds{heldFor(1, 0, 10, 11, 5), heldFor(2, 6, 12, 13, 6)}.Inversions(5*ms))
	require.Len(t, Holds{heldFor(1, 0, 12, 13, 6), heldFor(2, 6, 10, 11, 5)}.Inversions(5*ms), 1)
	require.Empty(t, Holds{heldFor(1, 0, 12, 13, 6), heldFor(2, 5, 10, 11, 5)}.Inversions(5*ms), "within the slack")
	require.Empty(t, Holds{heldFor(1, 0, 12, 13, 6, tried), heldFor(2, 6, 10, 11, 5)}.Inversions(5*ms), "a try waits for nobody")
	require.Len(t, Holds{heldFor(1, 0, 12, 13, 6), heldFor(2, 6, 10, 11, 5, tried)}.Inversions(5*ms), 1, "but it may not overtake")
	require.Empty(t, Holds{heldFor(1, 0, 12, 13, 5, reader), heldFor(2, 6, 10, 11, 5, reader)}.Inversions(5*ms))
	require.Len(t, Holds{heldFor(1, 0, 12, 13, 6, reader), heldFor(2, 6, 10, 11, 5)}.Inversions(5*ms), 1)
}

func TestFairnessOfHolds(t *testing.T) {
	t.Parallel()
	var hs Holds
	for i := range 40 {
		at := time.Duration(i) * 10
		h := heldFor(i+1, at, at+5, at+9, uint64(i+1))
		h.Lane = i % 4
		hs = append(hs, h)
	}
	f := hs.Fairness(5 * ms)
	require.Zero(t, f.Bypass)
	require.InDelta(t, 1, f.Jain, 1e-9)
	require.Equal(t, 5*ms, f.Longest)

	for i := range hs {
		hs[i].Lane = 0
	}
	hs[39].Lane = 1
	hs[10].Token = 1000 // Served last: 29 came later.
	f = hs.Fairness(5 * ms)
	require.Equal(t, 29, f.Bypass)
	require.Less(t, f.Jain, 0.6)
}

// The counting with a tree is held against that of all pairs.
func TestTheLargestBypassIsThatOfAllPairs(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 3))
		var hs Holds
		for i := range 60 {
			called := time.Duration(rng.IntN(200))
			h := heldFor(i+1, called, called+300, called+301, uint64(1+rng.IntN(40)), reader)
			h.Tried = rng.IntN(5) == 0
			hs = append(hs, h)
		}
		want, inverted := 0, 0
		for _, a := range hs {
			n := 0
			for _, b := range hs {
				if b.Token < a.Token && b.Called > a.Called+5*ms {
					n++
				}
			}
			if !a.Tried {
				want = max(want, n)
				inverted += min(n, 1)
			}
		}
		rng.Shuffle(len(hs), func(i, j int) { hs[i], hs[j] = hs[j], hs[i] })
		require.Equal(t, want, hs.Fairness(5*ms).Bypass, "seed %d", seed)
		require.Len(t, slices.Compact(hs.Inversions(5*ms)), inverted, "seed %d", seed)
	}
}

func TestManyHoldsAreJudgedSoon(t *testing.T) {
	t.Parallel()
	const many = 20_000
	hs := make(Holds, many)
	for i := range hs {
		at := time.Duration(i) * 10
		hs[i] = heldFor(i+1, at, at+5, at+9, uint64(i+1))
		hs[i].Deadline = Never
	}
	begun := time.Now()
	require.Empty(t, hs.Tokens())
	require.Empty(t, hs.Overlaps(1))
	require.Empty(t, hs.Inversions(5*ms))
	require.Zero(t, hs.Fairness(5*ms).Bypass)
	t.Logf("%d holds in %v", many, time.Since(begun))
}
