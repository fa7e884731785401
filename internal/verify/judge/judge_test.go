package judge

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const ms = time.Millisecond

// held is a hold that was called, got and released at those times, in ms.
func held(token uint64, called, got, released time.Duration, with ...func(*Hold)) Hold {
	h := Hold{
		Called: called * ms, Got: got * ms, Token: token, Permits: 1, Deadline: 1000 * ms, Releasing: released * ms,
		Released: (released + 1) * ms, Lost: Never,
	}
	for _, change := range with {
		change(&h)
	}
	return h
}

// waits is a call that has nothing until a time, in ms.
func waits(called, until time.Duration, with ...func(*Hold)) Hold {
	return held(0, called, until, until, append(with, func(h *Hold) { h.Nothing = true })...)
}

func reader(h *Hold)                        { h.Shared = true }
func writer(h *Hold)                        { h.Permits = Readers }
func tried(h *Hold)                         { h.Tried = true }
func dead(h *Hold)                          { h.Dead = true }
func beyond(h *Hold)                        { h.Beyond = true }
func deadline(at time.Duration) func(*Hold) { return func(h *Hold) { h.Deadline = at * ms } }
func lostAt(at time.Duration) func(*Hold) {
	return func(h *Hold) { h.Lost, h.Releasing = at*ms, Never }
}
func placedAt(at time.Duration) func(*Hold) { return func(h *Hold) { h.Placed = at * ms } }
func downgraded(at time.Duration) func(*Hold) {
	return func(h *Hold) { h.Permits, h.DowngradeCall, h.Downgraded = Readers, at*ms, (at+1)*ms }
}

// Each rule finds what breaks it, as often as it says, and nothing else.
func TestEachRuleFindsWhatBreaksItAndNothingElse(t *testing.T) {
	t.Parallel()
	type found struct{ overlaps, tokens, losses, late, overtaken, pairs int }
	first := held(5, 0, 1, 5)
	for _, c := range []struct {
		name  string
		limit int64
		holds Holds
		wrong found
	}{
		{"nothing", 1, nil, found{}},
		{"one after the other", 1, Holds{first, held(6, 0, 5, 9), held(9, 5, 10, 12)}, found{}},

		{"two hold at once", 1, Holds{first, held(6, 0, 4, 9)}, found{overlaps: 1}},
		{"a permit for each", 2, Holds{first, held(6, 0, 4, 9)}, found{}},
		{"a permit too many", 2, Holds{first, held(6, 0, 2, 9), held(7, 0, 4, 9)}, found{overlaps: 1}},
		{"two hold beside a long one", 1, Holds{held(5, 0, 1, 50), held(6, 0, 10, 11), held(7, 0, 30, 31)}, found{overlaps: 2}},
		{"the lease is over", 1, Holds{held(5, 0, 1, 50, deadline(4)), held(6, 0, 4, 9)}, found{late: 1}},
		{"the lease is over, and its holder goes on", 1, Holds{held(5, 0, 1, 50, deadline(4), beyond), held(6, 0, 4, 9)}, found{overlaps: 1, late: 1}},
		{"the lease of one that vanished", 1, Holds{held(5, 0, 1, 50, deadline(40), func(h *Hold) { h.Releasing = Never }), held(6, 0, 39, 41)}, found{overlaps: 1}},
		{"told lost by then", 1, Holds{held(5, 0, 1, 0, lostAt(4)), held(6, 0, 4, 9)}, found{losses: 1}},
		{"told lost after that", 1, Holds{held(5, 0, 1, 0, lostAt(5)), held(6, 0, 4, 9)}, found{overlaps: 1, losses: 1}},
		{"a reply after the lease", 1, Holds{held(5, 0, 1, 5), held(6, 0, 3, 9, deadline(2))}, found{late: 1}},
		{"no moment certain", 1, Holds{held(5, 0, 1, 5), held(6, 0, 3, 3)}, found{}},
		{"one moment, and its word for it", 1, Holds{held(5, 0, 1, 5), held(6, 0, 3, 3, beyond)}, found{overlaps: 1}},
		{"moments at one time", 1, Holds{held(5, 0, 3, 3, beyond), held(6, 0, 3, 3, beyond), held(7, 0, 3, 4, beyond)}, found{}},
		{"readers", Readers, Holds{held(5, 0, 1, 5, reader), held(5, 0, 2, 9, reader)}, found{}},
		{"a reader and a writer", Readers, Holds{held(5, 0, 1, 5, reader), held(6, 0, 2, 9, writer)}, found{overlaps: 1}},
		{"a writer and a reader", Readers, Holds{held(5, 0, 1, 5, writer), held(6, 0, 2, 9, reader)}, found{overlaps: 1}},
		{"a writer that reads by then", Readers, Holds{held(5, 0, 1, 9, downgraded(3)), held(5, 0, 3, 9, reader)}, found{}},
		{"a writer that reads after that", Readers, Holds{held(5, 0, 1, 9, downgraded(4)), held(6, 0, 3, 9, reader)}, found{overlaps: 1}},
		{"a writer beside one that reads", Readers, Holds{held(5, 0, 1, 9, downgraded(3)), held(6, 0, 4, 9, writer)}, found{overlaps: 1}},

		{"a token twice", 1, Holds{first, held(5, 0, 6, 9)}, found{tokens: 1}},
		{"a permit's token twice", 2, Holds{first, held(5, 0, 2, 9)}, found{tokens: 1}},
		{"a reader's token for a writer", Readers, Holds{held(5, 0, 1, 5, reader), held(5, 0, 6, 9, writer)}, found{tokens: 1}},
		{"a token twice, with a downgrade", Readers, Holds{held(5, 0, 1, 5, downgraded(2)), held(5, 0, 6, 9, writer)}, found{tokens: 1}},
		{"a token twice, with downgrades and a reader between", Readers, Holds{held(5, 0, 1, 9, downgraded(2)), held(5, 0, 3, 9, reader), held(5, 0, 10, 19, downgraded(12))}, found{tokens: 1}},
		{"a token falls from hold to hold", 1, Holds{held(6, 0, 1, 5), held(5, 0, 6, 9)}, found{tokens: 1}},
		{"a token falls, and one lies between", 1, Holds{held(8, 0, 1, 2), held(6, 0, 3, 4), held(7, 0, 5, 9)}, found{tokens: 1}},
		{"a permit's token falls from call to call", 2, Holds{held(6, 0, 1, 5), held(5, 2, 3, 9)}, found{tokens: 1}},
		{"either permit may be the first", 2, Holds{held(6, 0, 1, 5), held(5, 0, 6, 9)}, found{}},
		{"a token falls behind one of two readers", Readers, Holds{held(6, 0, 1, 5, reader), held(6, 9, 10, 11, reader), held(5, 5, 8, 9, reader)}, found{tokens: 1}},
		{"either reader may be the first", Readers, Holds{held(6, 0, 1, 5, reader), held(5, 0, 6, 9, reader)}, found{}},
		{"a writer's token falls behind a reader", Readers, Holds{held(6, 0, 1, 5, reader), held(5, 0, 6, 9, writer)}, found{tokens: 1}},
		{"a writer's token falls behind a downgrade", Readers, Holds{held(6, 0, 1, 5, downgraded(2)), held(5, 0, 6, 9, downgraded(7))}, found{tokens: 1}},
		{"a grant before that was told after its lease", 1, Holds{held(6, 0, 1, 5), held(5, 0, 6, 7, deadline(6))}, found{}},
		{"without tokens", 1, Holds{held(0, 0, 1, 5), held(0, 2, 6, 9)}, found{}},

		{"told lost before the deadline", 1, Holds{held(5, 0, 1, 0, deadline(40), lostAt(39))}, found{losses: 1}},
		{"told lost at the deadline", 1, Holds{held(5, 0, 1, 0, deadline(40), lostAt(41))}, found{}},
		{"told lost late", 1, Holds{held(5, 0, 1, 0, deadline(40), lostAt(43))}, found{late: 1}},
		{"released late", 1, Holds{held(5, 0, 1, 43, deadline(40))}, found{late: 1}},

		{"in the order of calls", 1, Holds{held(5, 0, 10, 11), held(6, 6, 12, 13)}, found{}},
		{"a later call holds first", 1, Holds{held(6, 0, 12, 13), held(5, 6, 10, 11)}, found{overtaken: 1, pairs: 1}},
		{"too close to call", 1, Holds{held(6, 0, 12, 13), held(5, 5, 10, 11)}, found{}},
		{"too close to call, and the server knew", 1, Holds{held(6, 0, 12, 13, placedAt(1)), held(5, 2, 10, 11)}, found{overtaken: 1, pairs: 1}},
		{"the server did not know yet", 1, Holds{held(6, 0, 12, 13, placedAt(8)), held(5, 7, 10, 11)}, found{}},
		{"called after the other held", 1, Holds{held(5, 0, 10, 11), held(6, 11, 12, 13)}, found{}},
		{"one overtakes three", 1, Holds{held(6, 0, 20, 21), held(7, 1, 30, 31), held(8, 2, 40, 41), held(5, 9, 10, 11)}, found{overtaken: 3, pairs: 3}},
		{"one is overtaken by three", 1, Holds{held(8, 0, 50, 51), held(5, 10, 20, 21), held(6, 11, 30, 31), held(7, 12, 40, 41)}, found{overtaken: 1, pairs: 3}},
		{"last in, first out", 1, Holds{held(8, 0, 70, 71), held(7, 10, 60, 61), held(6, 20, 50, 51), held(5, 30, 40, 41)}, found{overtaken: 3, pairs: 6}},
		{"a try is overtaken", 1, Holds{held(6, 0, 12, 13, tried), held(5, 6, 10, 11)}, found{}},
		{"a try overtakes", 1, Holds{held(6, 0, 12, 13), held(5, 6, 10, 11, tried)}, found{overtaken: 1, pairs: 1}},
		{"one that was killed is overtaken", 1, Holds{waits(0, 50, dead), held(5, 6, 10, 11)}, found{}},
		{"one that never holds is overtaken", 1, Holds{waits(0, 50), held(5, 6, 10, 11)}, found{overtaken: 1, pairs: 1}},
		{"one that gave up by then", 1, Holds{waits(0, 9), held(5, 6, 10, 11)}, found{}},
		{"one that never holds overtakes nobody", 1, Holds{held(5, 0, 12, 13), waits(6, 10)}, found{}},
		{"readers who are served together", Readers, Holds{held(5, 0, 12, 13, reader), held(5, 6, 10, 13, reader)}, found{}},
		{"readers who are not", Readers, Holds{held(6, 0, 14, 15, reader), held(5, 6, 10, 13, reader)}, found{overtaken: 1, pairs: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			overlaps, tokens := c.holds.Overlaps(c.limit, nil), c.holds.Tokens(c.limit, nil)
			overtaken := c.holds.Overtaken(5 * ms)
			pairs := 0
			for _, o := range overtaken {
				pairs += len(o.By)
			}
			require.Equal(t, c.wrong, found{len(overlaps), len(tokens), len(c.holds.Losses()), len(c.holds.Late(2 * ms)), len(overtaken), pairs},
				"%v %v %v", overlaps, tokens, overtaken)
		})
	}
}

// A server that forgot excuses who held meanwhile and nobody else, and no token that comes twice or falls from call to call.
func TestAServerThatForgotExcusesWhoHeldMeanwhile(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		limit  int64
		holds  Holds
		always bool
	}{
		{"two hold at once", 1, Holds{held(5, 1, 2, 9), held(6, 1, 8, 12)}, false},
		{"a permit too many", 2, Holds{held(5, 1, 2, 9), held(6, 1, 3, 12), held(7, 1, 8, 12)}, false},
		{"one that was not told", 1, Holds{held(5, 1, 2, 9), held(4, 1, 10, 12)}, false},
		{"a token twice", 1, Holds{held(5, 1, 2, 9), held(5, 10, 11, 12)}, true},
		{"a token falls from call to call", 1, Holds{held(5, 1, 2, 9), held(4, 10, 11, 12)}, true},
	} {
		wrong := func(e Excuse) bool { return len(c.holds.Overlaps(c.limit, e))+len(c.holds.Tokens(c.limit, e)) > 0 }
		require.True(t, wrong(nil), c.name)
		require.Equal(t, c.always, wrong(Forgot([]Span{{8 * ms, 9 * ms}})), c.name)
		require.True(t, wrong(Forgot([]Span{{0, 0}, {30 * ms, 40 * ms}})), "%s, and the server forgot others", c.name)
	}
}

// Who is overtaken is held against a count of all pairs.
func TestTheOvertakenAreThoseOfAllPairs(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 3))
		var hs Holds
		for range 60 {
			called := time.Duration(rng.IntN(200))
			h := held(uint64(rng.IntN(20)), called, called+time.Duration(rng.IntN(100)), 400)
			h.Tried, h.Nothing = rng.IntN(5) == 0, rng.IntN(5) == 0
			hs = append(hs, h)
		}
		want, pairs := 0, 0
		for _, a := range hs {
			n := 0
			for _, b := range hs {
				if !a.Tried && !b.Nothing && b.Got < a.Got && b.Called > a.Called+5*ms && (a.Token == 0 || a.Token != b.Token) {
					n++
				}
			}
			want, pairs = want+min(n, 1), pairs+n
		}
		for _, o := range hs.Overtaken(5 * ms) {
			want, pairs = want-1, pairs-len(o.By)
		}
		require.Zero(t, want, "seed %d", seed)
		require.Zero(t, pairs, "seed %d", seed)
	}
}

// One call may be held up on its way. All who pass it count as one.
func TestOneCallThatIsOvertakenProvesNothing(t *testing.T) {
	t.Parallel()
	require.False(t, Proven(0, 40))
	require.False(t, Proven(1, 40))
	require.True(t, Proven(2, 40))
	require.False(t, Proven(4, 2000))
	require.True(t, Proven(5, 2000))

	late := Holds{held(7, 0, 30, 31), held(5, 10, 12, 13), held(6, 20, 22, 23)}
	require.Len(t, late.Overtaken(5*ms), 1)
	require.False(t, late.Overtaken(5 * ms)[0].Known())
	late[0].Placed = 1 * ms
	require.True(t, late.Overtaken(5 * ms)[0].Known())
	require.True(t, Holds{waits(0, 50), held(5, 10, 12, 13)}.Overtaken(5 * ms)[0].Known(), "it never held")
}

func TestJainsIndex(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		shares []int
		want   float64
	}{{nil, 0}, {[]int{0, 0}, 0}, {[]int{3, 3, 3, 3}, 1}, {[]int{8, 0, 0, 0}, 0.25}, {[]int{2, 0}, 0.5}} {
		require.InDelta(t, c.want, Jain(c.shares), 1e-9)
	}
}
