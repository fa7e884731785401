package check

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// ms makes histories readable: their times are small numbers.
const ms = time.Millisecond

// op is an answered operation of a hold, in ms.
func op(v Verb, hold int, call, ret time.Duration, with ...func(*Op)) Op {
	o := Op{Verb: v, Name: "x", Lane: hold, Hold: hold, Call: call * ms, Return: ret * ms, Permits: 1}
	for _, change := range with {
		change(&o)
	}
	return o
}

func token(n uint64) func(*Op)        { return func(o *Op) { o.Token = n } }
func until(t time.Duration) func(*Op) { return func(o *Op) { o.Until = t * ms } }
func permitsOf(n int64) func(*Op)     { return func(o *Op) { o.Permits = n } }
func number64(n int64) func(*Op)      { return func(o *Op) { o.Number = n } }
func ticketOf(n int64) func(*Op)      { return func(o *Op) { o.Ticket = n } }
func shared(o *Op)                    { o.Shared = true }
func refused(o *Op)                   { o.Outcome = Refused }
func unknown(o *Op)                   { o.Outcome, o.Return = Unknown, Never }
func maybe(o *Op)                     { o.Outcome = Unknown } // within its time, or not at all
func acq(hold int, call, ret time.Duration, tok uint64, lasts time.Duration, with ...func(*Op)) Op {
	return op(Acquire, hold, call, ret, append([]func(*Op){token(tok), until(lasts)}, with...)...)
}

// The step of an unknown acquire, which the bound leaves out of histories: the model itself takes it too.
func TestAnUnknownAcquireMakesNoDifference(t *testing.T) {
	t.Parallel()
	whole := Mutex
	whole.Bound = nil
	for seed := range uint64(5) {
		ops := run(rand.New(rand.NewPCG(seed, 1)), 40)
		require.True(t, Judge(whole, ops, time.Minute, "")[0].Legal, "seed %d", seed)
	}
	judged(t, whole, []history{
		{"it has no part in a valid lease", false, []Op{acq(1, 0, 1, 5, 50), op(Acquire, 2, 2, 0, unknown), op(Lose, 1, 2, 40)}},
		{"but in one that is over", true, []Op{acq(1, 0, 1, 5, 50), op(Acquire, 2, 2, 0, unknown), op(Lose, 1, 2, 51), acq(3, 52, 60, 7, 90)}},
	})
}

// history is a history and whether it is legal.
type history struct {
	name  string
	legal bool
	ops   []Op
}

// judged runs each history through the model.
func judged(t *testing.T, m Model, all []history) {
	t.Helper()
	for _, h := range all {
		t.Run(h.name, func(t *testing.T) {
			for _, v := range Judge(m, h.ops, time.Minute, "") {
				require.False(t, v.Unknown)
				require.Equal(t, h.legal, v.Legal)
			}
		})
	}
}

func TestMutex(t *testing.T) {
	t.Parallel()
	judged(t, Mutex, []history{
		{"one after the other", true, []Op{acq(1, 0, 1, 5, 90), op(Release, 1, 2, 3), acq(2, 0, 4, 6, 90), op(Release, 2, 5, 6)}},
		{"a grant while the release is under way", true, []Op{acq(1, 0, 1, 5, 90), op(Release, 1, 2, 6), acq(2, 0, 4, 6, 90)}},
		{"two hold at a time", false, []Op{acq(1, 0, 1, 5, 90), acq(2, 0, 2, 6, 90), op(Release, 1, 3, 4), op(Release, 2, 5, 6)}},
		{"a grant before the release was called", false, []Op{acq(1, 0, 1, 5, 90), op(Release, 1, 20, 21), acq(2, 0, 10, 6, 90)}},
		{"a token is repeated", false, []Op{acq(1, 0, 1, 5, 90), op(Release, 1, 2, 3), acq(2, 4, 5, 5, 90)}},
		{"a token falls", false, []Op{acq(1, 0, 1, 5, 90), op(Release, 1, 2, 3), acq(2, 4, 5, 4, 90)}},
		{"a grant at the end of the lease", true, []Op{acq(1, 0, 1, 5, 50), acq(2, 2, 51, 6, 90)}},
		{"a grant before the end of the lease", false, []Op{acq(1, 0, 1, 5, 50), acq(2, 2, 49, 6, 90)}},
		{"a renewal keeps others out", false, []Op{acq(1, 0, 1, 5, 50), op(Renew, 1, 30, 31, token(5), until(80)), acq(2, 2, 60, 6, 90)}},
		{"a renewal after another was granted", false, []Op{acq(1, 0, 1, 5, 50), acq(2, 2, 51, 6, 90), op(Renew, 1, 60, 61, token(5), until(99))}},
		{"a release by one who does not hold", false, []Op{acq(1, 0, 1, 5, 90), op(Release, 2, 2, 3)}},
		{"a release after another was granted", false, []Op{acq(1, 0, 1, 5, 50), acq(2, 2, 51, 6, 90), op(Release, 1, 60, 61)}},
		{"two releases of one hold", false, []Op{acq(1, 0, 1, 5, 90), op(Release, 1, 2, 3), op(Release, 1, 4, 5)}},
		{"lost at the end of the lease", true, []Op{acq(1, 0, 1, 5, 50), op(Lose, 1, 2, 50)}},
		{"lost before the end of the lease", false, []Op{acq(1, 0, 1, 5, 50), op(Lose, 1, 2, 49)}},
		{"lost before the end of a renewed lease", false, []Op{acq(1, 0, 1, 5, 50), op(Renew, 1, 30, 31, token(5), until(80)), op(Lose, 1, 2, 60)}},
		{"refused while held", true, []Op{acq(1, 0, 1, 5, 90), op(Acquire, 2, 2, 3, refused)}},
	})
}

func TestMutexWithUnknownOperations(t *testing.T) {
	t.Parallel()
	judged(t, Mutex, []history{
		{"a release without an answer freed it", true, []Op{acq(1, 0, 1, 5, 90), op(Release, 1, 2, 0, unknown), acq(2, 3, 4, 6, 90)}},
		{"a release without an answer did not", true, []Op{acq(1, 0, 1, 5, 50), op(Release, 1, 2, 0, unknown), acq(2, 3, 51, 6, 90)}},
		{"it frees nothing before it was called", false, []Op{acq(1, 0, 1, 5, 90), op(Release, 1, 9, 0, unknown), acq(2, 3, 4, 6, 90)}},
		{"it frees no later hold", false, []Op{
			acq(1, 0, 1, 5, 50), op(Release, 1, 2, 0, unknown), acq(2, 3, 51, 6, 900), acq(3, 4, 60, 7, 900),
		}},
		{"a call without an answer keeps nobody out", true, []Op{op(Acquire, 1, 0, 0, unknown), acq(2, 1, 2, 6, 90)}},
		{"it has no part in a valid lease", false, []Op{
			acq(1, 0, 1, 5, 50), op(Acquire, 2, 2, 0, unknown), op(Lose, 1, 2, 40),
		}},
		// Without the time in the state the call would take the lock at the end of all time.
		{"nor in one that another follows", false, []Op{
			acq(1, 0, 1, 5, 50), op(Acquire, 2, 2, 0, unknown), op(Lose, 1, 2, 40), acq(3, 41, 60, 7, 90),
		}},
		{"but in one that is over", true, []Op{acq(1, 0, 1, 5, 50), op(Acquire, 2, 2, 0, unknown), op(Lose, 1, 2, 51), acq(3, 52, 60, 7, 90)}},
	})
}

func TestElection(t *testing.T) {
	t.Parallel()
	look := func(call, ret time.Duration, tok uint64, value int64) Op {
		return op(Look, 0, call, ret, token(tok), number64(value))
	}
	nobody := func(call, ret time.Duration) Op { return op(Look, 0, call, ret, refused) }
	first := acq(1, 0, 2, 5, 50)
	judged(t, Election, []history{
		{"who leads is seen with its last value", true, []Op{
			first, op(Set, 1, 0, 2, number64(10)), look(3, 4, 5, 10), op(Set, 1, 5, 7, number64(11)), look(8, 9, 5, 11)}},
		{"while a value changes either is seen", true, []Op{
			first, op(Set, 1, 0, 2, number64(10)), op(Set, 1, 3, 9, number64(11)), look(4, 5, 5, 10), look(6, 7, 5, 11)}},
		{"but the old one not after the new", false, []Op{
			first, op(Set, 1, 0, 2, number64(10)), op(Set, 1, 3, 9, number64(11)), look(4, 5, 5, 11), look(6, 7, 5, 10)}},
		{"nobody leads who has not proclaimed", true, []Op{first, op(Set, 1, 0, 2, number64(10)), nobody(0, 1)}},
		{"somebody leads who has", false, []Op{first, op(Set, 1, 0, 2, number64(10)), nobody(3, 4)}},
		{"nobody leads when the lease is over", true, []Op{first, op(Set, 1, 0, 2, number64(10)), nobody(3, 51)}},
		{"nobody leads after the resignation", true, []Op{
			first, op(Set, 1, 0, 2, number64(10)), op(Release, 1, 3, 4), nobody(5, 6)}},
		{"who has resigned is not seen any more", false, []Op{
			first, op(Set, 1, 0, 2, number64(10)), op(Release, 1, 3, 4), look(5, 6, 5, 10)}},
		{"who has lost the lead is, for a while", true, []Op{
			first, op(Set, 1, 0, 2, number64(10)), op(Lose, 1, 3, 51), look(52, 53, 5, 10), nobody(54, 55)}},
		{"but not after another leads", false, []Op{
			first, op(Set, 1, 0, 2, number64(10)), op(Lose, 1, 3, 51), acq(2, 52, 53, 6, 90), look(54, 55, 5, 10)}},
		{"another has led whose value is seen", false, []Op{first, op(Set, 1, 0, 2, number64(10)), look(3, 4, 6, 12)}},
		{"a value of who does not lead any more", false, []Op{
			first, op(Set, 1, 0, 2, number64(10)), op(Release, 1, 3, 4), op(Set, 1, 5, 6, number64(11))}},
		{"a failed campaign is seen to lead", true, []Op{
			op(Acquire, 1, 0, 0, unknown), op(Set, 1, 0, 0, unknown, number64(10)), look(3, 4, 5, 10), nobody(5, 6), acq(2, 7, 8, 6, 90)}},
		{"and its token counts", false, []Op{
			op(Acquire, 1, 0, 0, unknown), op(Set, 1, 0, 0, unknown, number64(10)), look(3, 4, 5, 10), acq(2, 7, 8, 4, 90)}},
		{"a failed campaign is seen beside a leader", false, []Op{
			first, op(Set, 1, 0, 2, number64(10)), op(Acquire, 2, 3, 0, unknown), op(Set, 2, 3, 0, unknown, number64(20)), look(5, 6, 7, 20)}},
		{"one that nobody saw changes nothing", true, []Op{
			op(Acquire, 2, 0, 0, unknown), op(Set, 2, 0, 0, unknown, number64(20)), first, op(Set, 1, 0, 2, number64(10)), look(5, 6, 5, 10)}},
	})
}

func TestReentrant(t *testing.T) {
	t.Parallel()
	enter := func(call, ret time.Duration, with ...func(*Op)) Op {
		return op(Enter, 1, call, ret, append([]func(*Op){token(5)}, with...)...)
	}
	free := func(call, ret time.Duration, with ...func(*Op)) Op { return op(Release, 1, call, ret, with...) }
	judged(t, Mutex, []history{
		{"the last release frees it", true, []Op{acq(1, 0, 1, 5, 90), enter(2, 3), free(4, 5), free(6, 7), acq(2, 2, 8, 6, 90)}},
		{"an earlier one does not", false, []Op{acq(1, 0, 1, 5, 90), enter(2, 3), free(4, 5), acq(2, 2, 6, 6, 90), free(7, 8)}},
		{"an entry with another token", false, []Op{acq(1, 0, 1, 5, 90), enter(2, 3, token(6))}},
		{"an entry by one who does not hold", false, []Op{acq(2, 0, 1, 5, 90), enter(2, 3)}},
		{"a loss ends all entries", true, []Op{acq(1, 0, 1, 5, 50), enter(2, 3), op(Lose, 1, 2, 51), acq(2, 2, 52, 6, 90)}},
		{"nothing is released after a loss", false, []Op{acq(1, 0, 1, 5, 50), enter(2, 3), op(Lose, 1, 2, 51), free(52, 53)}},
		{"an entry without an answer counts", true, []Op{acq(1, 0, 1, 5, 90), enter(2, 0, unknown), free(4, 5), free(6, 7)}},
		{"or does not", true, []Op{acq(1, 0, 1, 5, 90), enter(2, 0, unknown), free(4, 5), acq(2, 2, 6, 6, 90)}},
		{"not both", false, []Op{acq(1, 0, 1, 5, 90), enter(2, 0, unknown), free(4, 5), acq(2, 2, 6, 6, 90), free(7, 8)}},
	})
}

func TestFair(t *testing.T) {
	t.Parallel()
	queued := func(hold int, call, ret time.Duration, n int64, with ...func(*Op)) Op {
		return op(Enqueue, hold, call, ret, append([]func(*Op){ticketOf(n)}, with...)...)
	}
	held := []Op{queued(1, 0, 1, 10), acq(1, 0, 1, 5, 900), op(Release, 1, 9, 10)}
	with := func(ops ...Op) []Op { return slices.Concat(held, ops) }
	judged(t, Fair, []history{
		{"in the order of the tickets", true, with(queued(2, 2, 3, 20), queued(3, 4, 5, 30), acq(2, 2, 11, 6, 900), op(Release, 2, 12, 13), acq(3, 4, 14, 7, 900))},
		{"an inversion", false, with(queued(2, 2, 3, 20), queued(3, 4, 5, 30), acq(3, 4, 11, 6, 900), op(Release, 3, 12, 13), acq(2, 2, 14, 7, 900))},
		{"no order where both may be first", true, with(queued(2, 2, 30, 20), queued(3, 4, 5, 30), acq(3, 4, 11, 6, 900), op(Release, 3, 12, 13), acq(2, 2, 14, 7, 900))},
		{"somebody without a ticket", false, with(queued(2, 2, 3, 20), acq(3, 4, 11, 6, 900))},
		{"a head that gave up is passed", true, with(queued(2, 2, 3, 20), op(Leave, 2, 6, 0, unknown), queued(3, 4, 5, 30), acq(3, 4, 11, 6, 900))},
		{"not before it gave up", false, with(queued(2, 2, 3, 20), op(Leave, 2, 12, 0, unknown), queued(3, 4, 5, 30), acq(3, 4, 11, 6, 900))},
		{"one that gave up may have been granted", true, with(
			queued(2, 2, 3, 20), op(Acquire, 2, 2, 0, unknown), op(Leave, 2, 6, 0, unknown), queued(3, 4, 5, 30), acq(3, 4, 11, 6, 900))},
		{"an older ticket comes in ahead", true, with(queued(2, 2, 3, 20), queued(3, 4, 5, 15), acq(3, 4, 11, 6, 900))},
		{"a ticket comes twice", false, with(queued(2, 2, 3, 20), queued(3, 4, 5, 20), acq(2, 2, 11, 6, 900))},
	})
}

func TestSemaphore(t *testing.T) {
	t.Parallel()
	judged(t, Semaphore(4), []history{
		{"as many as there are", true, []Op{acq(1, 0, 1, 5, 90, permitsOf(3)), acq(2, 1, 2, 6, 90), op(Release, 1, 3, 4), acq(3, 2, 5, 7, 90, permitsOf(3))}},
		{"one too many", false, []Op{acq(1, 0, 1, 5, 90, permitsOf(3)), acq(2, 1, 2, 6, 90, permitsOf(2)), op(Release, 1, 3, 4)}},
		{"more than there are", false, []Op{acq(1, 0, 1, 5, 90, permitsOf(5))}},
		{"when enough leases are over", true, []Op{acq(1, 0, 1, 5, 50, permitsOf(2)), acq(2, 1, 2, 6, 60, permitsOf(2)), acq(3, 1, 61, 7, 90, permitsOf(4))}},
		{"when too few are over", false, []Op{acq(1, 0, 1, 5, 50, permitsOf(2)), acq(2, 1, 2, 6, 60, permitsOf(2)), acq(3, 1, 55, 7, 90, permitsOf(4))}},
		{"a token is repeated", false, []Op{acq(1, 0, 1, 5, 90), acq(2, 1, 2, 5, 90)}},
		{"a release by one who does not hold", false, []Op{acq(1, 0, 1, 5, 90), op(Release, 2, 2, 3)}},
		{"two releases", false, []Op{acq(1, 0, 1, 5, 90), op(Release, 1, 2, 3), op(Release, 1, 4, 5)}},
		{"lost before the end of the lease", false, []Op{acq(1, 0, 1, 5, 50), op(Lose, 1, 2, 49)}},
		{"lost at the end of the lease", true, []Op{acq(1, 0, 1, 5, 50), op(Lose, 1, 2, 50)}},
		{"a release without an answer may free", true, []Op{acq(1, 0, 1, 5, 90, permitsOf(4)), op(Release, 1, 2, 0, unknown), acq(2, 3, 4, 6, 90)}},
		{"but not before it was called", false, []Op{acq(1, 0, 1, 5, 90, permitsOf(4)), op(Release, 1, 9, 0, unknown), acq(2, 3, 4, 6, 90)}},
	})
}

func TestRWLock(t *testing.T) {
	t.Parallel()
	judged(t, RWLock, []history{
		{"readers hold beside each other, with one token", true, []Op{acq(1, 0, 1, 5, 90, shared), acq(2, 2, 3, 5, 90, shared), acq(3, 2, 4, 6, 90, shared)}},
		{"a writer beside a reader", false, []Op{acq(1, 0, 1, 5, 90, shared), acq(2, 2, 3, 6, 90)}},
		{"a reader beside a writer", false, []Op{acq(1, 0, 1, 5, 90), acq(2, 2, 3, 6, 90, shared)}},
		{"two writers", false, []Op{acq(1, 0, 1, 5, 90), acq(2, 2, 3, 6, 90)}},
		{"a writer waits for the last reader", true, []Op{acq(1, 0, 1, 5, 90, shared), acq(2, 0, 1, 5, 50, shared), op(Release, 1, 4, 5), acq(3, 2, 51, 6, 90)}},
		{"and no shorter", false, []Op{acq(1, 0, 1, 5, 90, shared), acq(2, 0, 1, 5, 50, shared), op(Release, 1, 4, 5), acq(3, 2, 49, 6, 90)}},
		{"a writer with the token of the readers", false, []Op{acq(1, 0, 1, 5, 90, shared), op(Release, 1, 2, 3), acq(2, 4, 5, 5, 90)}},
		{"a reader with the token of a writer", false, []Op{acq(1, 0, 1, 5, 90), op(Release, 1, 2, 3), acq(2, 4, 5, 5, 90, shared)}},
		{"a reader with the token of readers who are gone", false, []Op{acq(1, 0, 1, 5, 90, shared), op(Release, 1, 2, 3), acq(2, 4, 5, 5, 90, shared)}},
		{"readers come in beside a writer that became one", true, []Op{acq(1, 0, 1, 5, 90), op(Downgrade, 1, 2, 3, token(5)), acq(2, 1, 4, 6, 90, shared)}},
		{"not before", false, []Op{acq(1, 0, 1, 5, 90), op(Downgrade, 1, 8, 9, token(5)), acq(2, 1, 4, 6, 90, shared)}},
		{"nor with its token", false, []Op{acq(1, 0, 1, 5, 90), op(Downgrade, 1, 2, 3, token(5)), acq(2, 1, 4, 5, 90, shared)}},
		{"no writer does", false, []Op{acq(1, 0, 1, 5, 90), op(Downgrade, 1, 2, 3, token(5)), acq(2, 1, 4, 6, 90)}},
	})
}

func TestLatch(t *testing.T) {
	t.Parallel()
	set := op(Set, 0, 0, 1, number64(2))
	down := func(call, ret time.Duration, left int64, with ...func(*Op)) Op {
		return op(Down, 0, call, ret, append([]func(*Op){number64(left)}, with...)...)
	}
	judged(t, Latch, []history{
		{"it opens at 0", true, []Op{set, down(2, 3, 1), down(4, 6, 0), op(Wait, 0, 2, 5), down(7, 8, 0)}},
		{"a wait passes early", false, []Op{set, down(2, 3, 1), op(Wait, 0, 2, 5), down(6, 7, 0)}},
		{"a wait passes an unset latch", false, []Op{op(Wait, 0, 2, 5)}},
		{"two have counted the same", false, []Op{set, down(2, 3, 1), down(4, 6, 1)}},
		{"one has counted twice", false, []Op{set, down(2, 3, 0)}},
		{"a count down without an answer counts", true, []Op{set, down(2, 0, 0, unknown), down(4, 5, 0), op(Wait, 0, 6, 7)}},
		{"or does not", true, []Op{set, down(2, 0, 0, unknown), down(4, 5, 1), op(Count, 0, 6, 7, number64(1))}},
		{"it counts once", false, []Op{set, down(2, 0, 0, unknown), op(Wait, 0, 6, 7)}},
		{"not before it was called", false, []Op{set, down(8, 0, 0, unknown), down(4, 5, 0)}},
		{"what is left is learned later", true, []Op{set, op(Down, 7, 2, 9), op(Left, 7, 2, 9, number64(0)), down(4, 5, 0)}},
		{"but not before it counted", false, []Op{set, op(Down, 7, 2, 9), op(Left, 7, 2, 9, number64(2))}},
		{"nor less than is left", false, []Op{set, op(Down, 7, 2, 3), op(Left, 7, 2, 3, number64(0)), down(4, 5, 0)}},
		{"a closed one is not set again", false, []Op{set, down(2, 3, 1), op(Set, 0, 4, 5, number64(7))}},
		{"an open one is", true, []Op{set, down(2, 3, 1), down(3, 4, 0), op(Set, 0, 5, 6, number64(7)), down(7, 8, 6), op(Wait, 0, 2, 9)}},
		{"refused although open", false, []Op{set, down(2, 3, 1), down(3, 4, 0), op(Set, 0, 5, 6, refused)}},
		{"a count that is none", false, []Op{set, op(Count, 0, 2, 3, number64(1))}},
	})
}

func TestBarrier(t *testing.T) {
	t.Parallel()
	await := func(id int, call, ret time.Duration, index int64) []Op {
		return []Op{op(Arrive, id, call, ret, number64(index)), op(Pass, id, call, ret)}
	}
	gone := func(id int, call time.Duration) []Op {
		return []Op{op(Arrive, id, call, 0, unknown), op(Leave, id, call, 0, unknown)}
	}
	broken := func(id int, call, ret time.Duration, with ...func(*Op)) []Op {
		return []Op{op(Arrive, id, call, ret, maybe), op(Break, id, call, ret, with...)}
	}
	lapsing := func(id int, call, ret time.Duration) []Op {
		return []Op{op(Arrive, id, call, ret, maybe, until(50)), op(Break, id, call, ret)}
	}
	all := slices.Concat[[]Op]
	judged(t, Barrier(3), []history{
		{"all come, twice", true, all(await(1, 0, 9, 2), await(2, 1, 9, 1), await(3, 8, 10, 0), await(4, 11, 19, 2), await(5, 12, 19, 1), await(6, 13, 19, 0))},
		{"equal indexes", false, all(await(1, 0, 9, 2), await(2, 1, 9, 1), await(3, 2, 10, 1))},
		{"the first passes early", false, all(await(1, 0, 5, 2), await(2, 1, 9, 1), await(3, 8, 10, 0))},
		{"one is missing", false, all(await(1, 0, 9, 2), await(2, 1, 9, 1))},
		{"four in one generation", false, all(await(1, 0, 9, 2), await(2, 1, 9, 1), await(3, 8, 10, 0), await(4, 1, 9, 0))},
		{"an index that is too high", false, all(await(1, 0, 9, 3), await(2, 1, 9, 2), await(3, 8, 10, 1))},
		{"one gives up and breaks it", true, all(await(9, 0, 1, 0)[:0], gone(1, 0), broken(2, 1, 5), broken(3, 6, 7))},
		{"nobody gave up and it is broken", false, all(await(1, 0, 9, 2), broken(2, 1, 5))},
		{"one gives up and the others pass", true, all(gone(1, 0), await(2, 1, 5, 1), await(3, 2, 6, 0))},
		{"some pass and others do not", false, all(await(1, 0, 9, 2), await(2, 1, 9, 1), await(3, 2, 9, 0), broken(4, 12, 15), await(5, 13, 19, 2))},
		{"it stays broken", false, all(gone(1, 0), broken(2, 1, 5), await(3, 6, 9, 2), await(4, 6, 9, 1), await(5, 6, 9, 0))},
		{"until a reset", true, all(gone(1, 0), broken(2, 1, 5), []Op{op(Reset, 0, 6, 7)}, await(3, 8, 9, 2), await(4, 8, 9, 1), await(5, 8, 9, 0))},
		{"a reset breaks it for those who wait", true, all([]Op{op(Reset, 0, 3, 4)}, broken(1, 0, 5), await(3, 8, 9, 2), await(4, 8, 9, 1), await(5, 8, 9, 0))},
		{"the place of one runs out", true, all(lapsing(1, 0, 60), lapsing(2, 1, 60))},
		{"not before its time", false, all(lapsing(1, 0, 45), lapsing(2, 1, 60))},
		{"one who passed and does not know", true, all(broken(1, 0, 5, number64(Forgotten)), await(2, 1, 5, 1), await(3, 2, 6, 0))},
	})
}

// run makes a legal history of a lock that many clients use at random: the server is the order in which their
// operations take effect, at times that lie between call and return.
func run(rng *rand.Rand, cycles int) (ops []Op) {
	now, tok := time.Duration(0), uint64(100)
	slack := func() time.Duration { return time.Duration(rng.IntN(20)) * ms }
	for id := 1; id <= cycles; id++ {
		now += time.Duration(1+rng.IntN(5)) * ms
		tok += uint64(1 + rng.IntN(3))
		got := now
		ends := got + time.Second
		a := Op{Verb: Acquire, Name: "x", Lane: id % 64, Hold: id, Call: max(0, got-slack()*30), Return: got + slack(), Token: tok, Until: ends}
		ops = append(ops, a)
		switch rng.IntN(30) {
		case 0: // Its release is not answered, and had its effect some time.
			now = a.Return + time.Duration(rng.IntN(20))*ms
			ops = append(ops, Op{Verb: Release, Name: "x", Lane: id % 64, Hold: id, Call: now, Return: Never, Outcome: Unknown})
			now += slack()
		case 1: // It is lost.
			now = ends + slack()
			ops = append(ops, Op{Verb: Lose, Name: "x", Lane: id % 64, Hold: id, Call: a.Return + 1, Return: ends + slack()})
		default:
			now = a.Return + time.Duration(60+rng.IntN(60))*ms
			ops = append(ops, Op{Verb: Release, Name: "x", Lane: id % 64, Hold: id, Call: now - slack()/2, Return: now + slack()})
		}
		if rng.IntN(40) == 0 {
			ops = append(ops, Op{Verb: Acquire, Name: "x", Lane: id % 64, Hold: cycles + id, Call: now - slack(), Return: Never, Outcome: Unknown})
		}
	}
	return ops
}

func TestRandomHistoriesOfALockAreLegalUntilTheyAreMutated(t *testing.T) {
	t.Parallel()
	mutants := map[string]func(rng *rand.Rand, o []Op, i int){
		"a token is repeated": func(_ *rand.Rand, o []Op, i int) { o[i].Token = before(o, i).Token },
		"two hold at a time": func(_ *rand.Rand, o []Op, i int) {
			b := before(o, i)
			o[i].Call, o[i].Return = b.Return+1, b.Return+30*ms
		},
		"a release by another":     func(_ *rand.Rand, o []Op, i int) { o[i+1].Verb, o[i+1].Hold = Release, before(o, i).Hold },
		"lost while it is certain": func(_ *rand.Rand, o []Op, i int) { o[i+1].Verb = Lose },
	}
	for seed := range uint64(5) {
		ops := run(rand.New(rand.NewPCG(seed, 1)), 300)
		require.True(t, Judge(Mutex, ops, time.Minute, "")[0].Legal, "seed %d", seed)
		for name, mutate := range mutants {
			rng := rand.New(rand.NewPCG(seed, 2))
			mutated := slices.Clone(ops)
			i := sure(rng, mutated)
			mutate(rng, mutated, i)
			v := Judge(Mutex, mutated, time.Minute, "")[0]
			require.False(t, v.Legal || v.Unknown, "seed %d: %s at %v", seed, name, ops[i])
		}
	}
}

// before is the grant before the one at i.
func before(ops []Op, i int) Op {
	for i--; ops[i].Verb != Acquire || ops[i].Outcome != OK; i-- {
	}
	return ops[i]
}

// sure is where a grant is with an answered release, and so is the one before it.
func sure(rng *rand.Rand, ops []Op) int {
	plain := func(i int) bool {
		return ops[i].Verb == Acquire && ops[i].Outcome == OK && ops[i+1].Verb == Release && ops[i+1].Outcome == OK
	}
	for {
		if i := 2 + rng.IntN(len(ops)-4); plain(i) && plain(i-2) {
			return i
		}
	}
}

func TestManyAcquisitionsAreJudgedSoon(t *testing.T) {
	t.Parallel()
	ops := run(rand.New(rand.NewPCG(1, 1)), 3000)
	v := Judge(Mutex, ops, time.Minute, "")[0]
	require.True(t, v.Legal)
	t.Logf("%v", v)
}
