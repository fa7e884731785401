package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/countdown"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/redlock"
	"github.com/headwaiter/headwaiter/rwlock"
	"github.com/headwaiter/headwaiter/semaphore"
	"github.com/headwaiter/headwaiter/striped"
)

// The holder hears of it by a message: its lease is so long that no renewal can be what tells it.
func TestReleaseEndsTheHoldersContextAtOnce(t *testing.T) {
	s := kit.Start(t)
	a, b := kit.Dial(t, s), kit.Dial(t, s)
	l := kit.Got(fairlock.New(a, "orders", headwaiter.WithLease(time.Hour)).Lock(t.Context()))(t)
	waits := queued(t, b, "orders", 1)
	kit.Listening(t, s, 1)
	out := shows(t, s, "release", "--force", "orders", "--yes")
	require.Regexp(t, fmt.Sprintf(
		`^released the lock "orders" of test@\S+#\d+ \(held since \S+, for \S+, token %d\); its holder is told at once, or within 20m00s if it does not hear\nnow: test@\S+#\d+, 0 waiting$`,
		l.Token()), out)
	require.ErrorIs(t, kit.Lost(t, l), lease.ErrForced)
	next := waits.Value(t)
	require.Greater(t, next.Token(), l.Token())
	kit.Release(t, next)
}

func TestResizeChangesTheNumberForAllPrograms(t *testing.T) {
	s := kit.Start(t)
	a, b := semaphore.New(kit.Dial(t, s), "pool", 3), semaphore.New(kit.Dial(t, s), "pool", 3)
	held := kit.Got(a.Acquire(t.Context(), 3))(t)
	waits := kit.Go(func() (*lease.Lease, error) { return b.Acquire(t.Context(), 2) })
	kit.Waiting(t, 1, a.Inspect)
	require.Equal(t, "the semaphore \"pool\" has 5 permits, before 3\nnow: 5 held, 0 waiting", shows(t, s, "resize", "pool", "5"))
	kit.Release(t, waits.Value(t))
	require.Contains(t, shows(t, s, "inspect", "pool"), "3 of 5 held, resized: the newest program states 3\n")
	require.Equal(t, "the semaphore \"pool\" has 1 permits, before 5\nnow: 3 held, 0 waiting\n"+
		"nothing is granted until more than 2 of those held have come back", shows(t, s, "resize", "pool", "1"))
	kit.Release(t, held)
	shows(t, s, "resize", "pool", "3")
	require.Contains(t, shows(t, s, "inspect", "pool"), "0 of 3 held\n")

	require.Equal(t, "the semaphore \"later\" has 9 permits\nnow: 0 held, 0 waiting", shows(t, s, "resize", "--new", "later", "9"))
	kit.Release(t, kit.Got(semaphore.New(kit.Dial(t, s), "later", 3).Acquire(t.Context(), 9))(t))

	m := striped.New(kit.Dial(t, s), "orders", 16)
	kit.Release(t, kit.Got(m.Lock(t.Context(), "k"))(t))
	code, _, complaint := said(t, s, "resize", "orders:stripes", "3")
	require.Equal(t, exitUsage, code)
	require.Contains(t, complaint, "stripes of package striped")
}

func TestReleaseAsksOnATerminal(t *testing.T) {
	s := kit.Start(t)
	a := kit.Dial(t, s)
	for _, x := range []struct {
		typed string
		code  int
	}{{"\n", exitFindings}, {"n\n", exitFindings}, {"yes, please\n", exitFindings}, {"y\n", 0}, {"YES\n", 0}} {
		l := holds(t, a, "orders")
		screen := terminal(t, "release", "--force", "orders", "--redis", urlOf(s))
		require.NoError(t, kit.Err(screen.stdin.Write([]byte(x.typed))))
		said := strings.Join(screen.rest(screen.stdout), "\n")
		require.Contains(t, said, `release the lock "orders" of test@`)
		require.Contains(t, said, fmt.Sprintf("token %d)? The holder may still be at work. [y/N]", l.Token()))
		if x.code == 0 {
			require.Contains(t, said, "released the lock")
		} else {
			require.Contains(t, said, "headwaiter: not released")
		}
		require.Equal(t, x.code, screen.code(), x.typed)
		if x.code == 0 {
			require.Error(t, l.Release(t.Context()))
		} else {
			kit.Release(t, l)
		}
	}
}

// A redlock lies on several servers, and the command knows one: the others' votes still hold it.
func TestReleaseOfARedlockSaysThatItIsTheVoteOfOneNode(t *testing.T) {
	t.Parallel()
	nodes := []*redistest.Server{redistest.Start(t), redistest.Start(t), redistest.Start(t)}
	var clients []*headwaiter.Client
	for _, s := range nodes {
		clients = append(clients, kit.Dial(t, s))
	}
	l := kit.Lock(t.Context(), redlock.New(clients, "orders", redlock.WithoutSafeRestart(), headwaiter.WithLease(time.Hour)).Lock).Value(t)
	for _, s := range nodes {
		kit.Eventually(t, "its vote", func() bool { return strings.Contains(shows(t, s, "ls"), "orders") })
		kit.Listening(t, s, 1)
	}
	const rest = `; its holder loses the vote of one node of several, and goes on while a majority votes for it: to end the hold, release it at each node\nnow, at this node: nobody holds it, 0 waiting$`
	out := shows(t, nodes[0], "release", "--force", "orders", "--yes")
	require.Regexp(t, `^released the vote of this node for the redlock "orders" of test@\S+#\d+ \(held since \S+, for \S+, token \d+\)`+rest, out)
	require.NoError(t, l.Context().Err(), "two of three nodes are a majority")
	require.Regexp(t, rest, shows(t, nodes[1], "release", "--force", "orders", "--yes"))
	require.ErrorIs(t, kit.Lost(t, l), lease.ErrForced)
}

// What was shown is what is released: who came after it keeps the lock.
func TestReleaseDoesNotTouchTheNextHolder(t *testing.T) {
	s := kit.Start(t)
	a, b := kit.Dial(t, s), kit.Dial(t, s)
	l, waits := holds(t, a, "orders"), queued(t, b, "orders", 1)
	call := liberation{lookout: lookout{redisFlags: redisFlags{redis: urlOf(s)}}}
	shown := kit.Got(call.findOne(t.Context(), a, "orders", ""))(t)
	next := kit.Next(t, l, waits)
	err := call.release(t.Context(), a, shown, shown.Info.Holder)
	require.EqualError(t, err, `that hold of the lock "orders" has ended by itself: nothing was released`)
	require.Equal(t, exitNoSuch, kit.As[*failure](t, err).code)
	kit.Release(t, next)
}

func TestReleaseOfOneOfSeveral(t *testing.T) {
	s := kit.Start(t)
	a, b := kit.Dial(t, s), kit.Dial(t, s)
	var held []*lease.Lease
	for _, c := range []*headwaiter.Client{a, b, b} {
		l := kit.Got(semaphore.New(c, "pool", 3).Acquire(t.Context(), 1))(t)
		held = append(held, l)
	}
	code, _, complaint := said(t, s, "release", "--force", "pool", "--yes")
	require.Equal(t, exitUsage, code)
	require.Equal(t, `headwaiter: 3 hold the semaphore "pool": say which by --holder; see headwaiter inspect --json`, complaint)
	code, _, complaint = said(t, s, "release", "--force", "pool", "--yes", "--holder", b.ID())
	require.Equal(t, exitUsage, code)
	require.Contains(t, complaint, "2 hold")
	code, _, complaint = said(t, s, "release", "--force", "pool", "--yes", "--holder", "7")
	require.Equal(t, exitNoSuch, code)
	require.Contains(t, complaint, `"7" does not hold the semaphore "pool"`)

	shows(t, s, "release", "--force", "pool", "--yes", "--holder", a.ID())
	require.ErrorIs(t, kit.Lost(t, held[0]), lease.ErrForced)
	shows(t, s, "release", "--force", "pool", "--yes", "--holder", fmt.Sprint(held[2].Token()))
	require.ErrorIs(t, kit.Lost(t, held[2]), lease.ErrForced)
	require.NoError(t, held[1].Context().Err())
	require.EqualValues(t, 2, kit.Got(semaphore.New(a, "pool", 3).Available(t.Context()))(t))
	shows(t, s, "release", "--force", "pool", "--yes")

	code, _, complaint = said(t, s, "release", "--force", "pool", "--yes")
	require.Equal(t, exitNoSuch, code)
	require.Equal(t, `headwaiter: nobody holds the semaphore "pool"`, complaint)
	require.NoError(t, kit.Err(countdown.New(a, "steps").TrySetCount(context.Background(), 1)))
	code, _, complaint = said(t, s, "release", "--force", "steps", "--yes")
	require.Equal(t, exitUsage, code)
	require.Contains(t, complaint, "nobody holds a latch")
}

// Those whose leases end last are not among those that an inspection tells.
func TestReleaseOfOneOfMoreThanAreTold(t *testing.T) {
	s := kit.Start(t)
	a, b := kit.Dial(t, s), kit.Dial(t, s)
	for range 120 {
		require.NoError(t, kit.Err(semaphore.New(a, "pool", 150).Acquire(t.Context(), 1)))
	}
	last := kit.Got(semaphore.New(b, "pool", 150, headwaiter.WithLease(time.Hour)).Acquire(t.Context(), 5))(t)
	kit.Listening(t, s, 2)
	require.Contains(t, shows(t, s, "inspect", "pool"), "\n    … and more, with 25 of the permits\n")
	code, _, complaint := said(t, s, "release", "--force", "pool", "--yes")
	require.Equal(t, exitUsage, code)
	require.Contains(t, complaint, `121 hold the semaphore "pool"`)
	shows(t, s, "release", "--force", "pool", "--yes", "--holder", b.ID())
	require.ErrorIs(t, kit.Lost(t, last), lease.ErrForced)
	require.NotContains(t, shows(t, s, "inspect", "pool", "--kind", "semaphore"), "with 25")

	for range 105 {
		require.NoError(t, kit.Err(rwlock.New(a, "prices").RLock(t.Context())))
	}
	require.Contains(t, shows(t, s, "inspect", "prices"), "\n    … and 5 more\n")
}
