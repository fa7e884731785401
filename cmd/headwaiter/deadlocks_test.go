package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/inspect"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
)

func TestDeadlocksNamesTheMembersOfACircle(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	a, b, c := kit.Dial(t, s), kit.Dial(t, s), kit.Dial(t, s)
	first, err := fairlock.New(a, "orders", headwaiter.WithLease(3*time.Second)).Lock(t.Context())
	require.NoError(t, err)
	second, err := fairlock.New(b, "stock of", headwaiter.WithLease(3*time.Second)).Lock(t.Context())
	require.NoError(t, err)
	queued(t, a, "stock of", 1)
	require.Equal(t, "no deadlock; calls that wait for others: 1", shows(t, s, "deadlocks", "--for", "0s"))
	waits := queued(t, b, "orders", 1)
	queued(t, c, "orders", 2)

	code, out, complaint := said(t, s, "deadlocks", "--for", "100ms")
	require.Equal(t, exitFindings, code)
	require.Empty(t, complaint)
	require.Equal(t, 1, strings.Count(out, "deadlock of 2, for "))
	for _, line := range []string{
		`  test@\S+#\d+ \(client ` + a.ID() + `\)\n    holds lock orders for \S+, token \d+\n    waits for lock stock of for \S+, at place 1\n`,
		`  test@\S+#\d+ \(client ` + b.ID() + `\)\n    holds lock stock of for \S+, token \d+\n    waits for lock orders for \S+, at place 1\n`,
		`\n1 more wait behind`,
		`  to break it: headwaiter release --force --kind lock --holder \d+ --redis ` + urlOf(s) + ` -- ('stock of'|orders)\n`,
	} {
		require.Regexp(t, line, out)
	}

	code, out, _ = said(t, s, "deadlocks", "--for", "0s", "--json")
	require.Equal(t, exitFindings, code)
	g := decoded[graphJSON](t, out)
	require.Len(t, g.Waits, 3)
	require.Equal(t, 3, g.Stuck)
	require.False(t, g.Partial)
	require.Len(t, g.Cycles, 1)
	require.Len(t, g.Cycles[0], 2)
	for i, link := range g.Cycles[0] {
		require.Equal(t, g.Cycles[0][1-i].Client, link.Hold.Client)
		require.Contains(t, g.Waits, link.waitJSON, "what is told twice is told the same, though there were two looks")
	}

	// What it says breaks it.
	require.Contains(t, shows(t, s, "release", "--force", "orders", "--yes"), "released")
	require.ErrorIs(t, kit.Lost(t, first), lease.ErrForced)
	waits.Value(t)
	require.Equal(t, "no deadlock; calls that wait for others: 2", shows(t, s, "deadlocks", "--for", "0s"))
	kit.Release(t, second)
}

func TestTheAdviceNamesOneReaderOfSeveral(t *testing.T) {
	t.Parallel()
	read := inspect.Link{Wait: inspect.Wait{Kind: "rwlock", Name: "prices"}, Hold: lease.Holder{Token: 7, Ticket: "ticket of a reader"}}
	require.Contains(t, circles(inspect.Graph{Cycles: []inspect.Cycle{{read}}}, " --prefix app"),
		"  to break it: headwaiter release --force --kind rwlock --holder 'ticket of a reader' --prefix app -- prices\n")
}

func TestDeadlocksSaysThatItCouldNotReadAll(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	s.Do("SET", "headwaiter:lock:{bad}", "x")
	code, out, complaint := said(t, s, "deadlocks", "--for", "0s")
	require.Zero(t, code)
	require.Equal(t, "no deadlock among what was looked at; calls that wait for others: 0", out)
	require.Contains(t, complaint, "a name cannot be read")
}
