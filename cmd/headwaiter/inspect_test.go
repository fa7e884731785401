package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/barrier"
	"github.com/headwaiter/headwaiter/countdown"
	"github.com/headwaiter/headwaiter/election"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/inspect"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/reentrant"
	"github.com/headwaiter/headwaiter/rwlock"
	"github.com/headwaiter/headwaiter/semaphore"
)

// reads holds what a command prints against a pattern for each line.
func reads(t *testing.T, out string, patterns ...string) {
	t.Helper()
	lines := strings.Split(out, "\n")
	if !assert.Len(t, lines, len(patterns), out) {
		return
	}
	for i, p := range patterns {
		assert.Regexp(t, "^"+p+"$", lines[i])
	}
}

func TestInspectShowsHolderAndQueue(t *testing.T) {
	s := kit.Start(t)
	a, b, c := kit.Dial(t, s), kit.Dial(t, s), kit.Dial(t, s)
	l := holds(t, a, "orders")
	queued(t, b, "orders", 1)
	queued(t, c, "orders", 2)
	s.Do("DEL", "headwaiter:client:"+c.ID()) // It has not said who it is.
	host := kit.Got(os.Hostname())(t)
	who := fmt.Sprintf("test@%s#%d", host, os.Getpid())
	const span, clock = `[\d.]+m?s`, `\d\d:\d\d:\d\d`
	reads(t, shows(t, s, "inspect", "orders"),
		`lock orders`,
		fmt.Sprintf(`  holder   test on host %s, process %d`, host, os.Getpid()),
		`  client   `+a.ID(),
		`  held     since `+clock+`, for `+span,
		`  lease    `+span+` left, unless it is renewed`,
		fmt.Sprint(`  token    `, l.Token()),
		`  waiting  2`,
		`    PLACE  SINCE +FOR +NAME +HOST +PROCESS +CLIENT`,
		fmt.Sprintf(`    1 +%s +%s +test +%s +%d +%s`, clock, span, host, os.Getpid(), b.ID()),
		`    2 +`+clock+` +`+span+` +- +- +- +`+c.ID(),
	)
	told := decoded[[]nameJSON](t, shows(t, s, "inspect", "orders", "--json"))
	require.Len(t, told, 1)
	n := told[0]
	require.Equal(t, []any{"lock", "orders", true, l.Token(), 2}, []any{n.Kind, n.Name, n.Held, n.Token, n.Waiting})
	h := n.Holders[0]
	require.Equal(t, []any{a.ID(), who, "test", host, os.Getpid(), l.Token()}, []any{h.Client, h.Who, h.Program, h.Host, h.PID, h.Token})
	require.Greater(t, h.Since, 0.0)
	require.Greater(t, h.Left, 0.0)
	require.LessOrEqual(t, h.Left, 10.0)
	for i, w := range n.Queue {
		require.Equal(t, i+1, w.Place)
		require.Greater(t, w.Wait, 0.0)
		require.True(t, strings.HasPrefix(w.Ticket, w.Client+":"))
		require.Equal(t, []any{[]any{who, "test", host, os.Getpid()}, []any{"", "", "", 0}}[i], []any{w.Who, w.Program, w.Host, w.PID})
	}

	kit.Release(t, l)
	require.Contains(t, shows(t, s, "inspect", "orders"), "client   "+b.ID())
}

func TestInspectSaysThatAHoldIsInTransit(t *testing.T) {
	s := kit.Start(t)
	a := kit.Dial(t, s, func(o *headwaiter.Options) { o.GrantLease = time.Minute })
	l := holds(t, a, "orders")
	text := kit.Got(l.HandOver(t.Context()))(t)
	out := shows(t, s, "inspect", "orders")
	require.Contains(t, out, "client   "+a.ID()+"\n  transit  handed over by this client, and not adopted yet")
	require.Contains(t, out, "left, then the queue is served")
	require.NotContains(t, out, text)
	require.Contains(t, shows(t, s, "ls"), "in transit from ")
	require.True(t, decoded[[]nameJSON](t, shows(t, s, "inspect", "orders", "--json"))[0].Holders[0].Transit)
	next := kit.Got(fairlock.Adopt(t.Context(), a, text))(t)
	require.NotContains(t, shows(t, s, "inspect", "orders"), "transit")
	kit.Release(t, next)
}

// Whoever was handed the lock a moment ago is known as well.
func TestInspectKnowsWhoWasHandedTheLock(t *testing.T) {
	s := kit.Start(t)
	a, b := kit.Dial(t, s), kit.Dial(t, s)
	l, waits := holds(t, a, "orders"), queued(t, b, "orders", 1)
	next := kit.Next(t, l, waits)
	require.NotEmpty(t, kit.Got(fairlock.New(a, "orders").Inspect(t.Context()))(t).Holder.Who)
	out := shows(t, s, "inspect", "orders")
	require.Contains(t, out, fmt.Sprintf("process %d", os.Getpid()))
	require.Contains(t, out, fmt.Sprint("token    ", next.Token()))
}

// A holder that has not said who it is is told by its client.
func TestInspectTellsOfAHolderThatIsNotKnownByItsClient(t *testing.T) {
	s := kit.Start(t)
	s.Do("HSET", "headwaiter:lock:{brief}", "owner", "stranger:1:x:1:1000:1000", "until", "9000000000000000",
		"token", "7", "since", "7:1000000", "phase", "granted")
	out := shows(t, s, "inspect", "brief")
	require.Contains(t, out, "holder   not known")
	require.Contains(t, out, "client   stranger")
}

func TestInspectShowsAllKinds(t *testing.T) {
	s := kit.Start(t)
	a, b := kit.Dial(t, s), kit.Dial(t, s)
	const name = "x"
	re := reentrant.New(a, name)
	require.NoError(t, kit.Err(re.Lock(kit.Got(re.Lock(t.Context()))(t).Context())))
	kit.Eventually(t, "the count of entries", func() bool {
		return kit.Got(re.Inspect(t.Context()))(t).Holder.Entries == 2
	})
	require.NoError(t, kit.Err(rwlock.New(a, name).RLock(t.Context())))
	require.NoError(t, kit.Err(rwlock.New(b, name).RLock(t.Context())))
	require.NoError(t, kit.Err(semaphore.New(a, name, 5).Acquire(t.Context(), 2)))
	require.NoError(t, kit.Err(election.New(a, name).Campaign(t.Context(), "10.0.0.7:80")))
	require.NoError(t, kit.Err(countdown.New(a, name).TrySetCount(t.Context(), 3)))
	meet := barrier.New(a, name, 2)
	ctx, leave := context.WithCancel(t.Context())
	comes := kit.Go(func() (int, error) { return meet.Await(ctx) })
	kit.Waiting(t, 1, meet.Inspect)

	one := []string{`  holder   test on host \S+, process \d+`, `  client   ` + a.ID(), `  held     since .*, for .*`, `  lease    .* left.*`, `  token    \d+`}
	var want []string
	add := func(lines ...string) { want = append(want, lines...) }
	add(`reentrant x`)
	add(one...)
	add(`  entered  2 times`, `  waiting  0`, ``)
	add(`rwlock x`, `  readers  2`, `    NAME +HOST +PROCESS +PERMITS +SINCE +FOR +LEASE LEFT +TOKEN +CLIENT`,
		`    test .* 1 .*`, `    test .* 1 .*`, `  waiting  0`, ``)
	add(`semaphore x`, `  permits  2 of 5 held`)
	add(one...)
	add(`  waiting  0`, ``)
	add(`election x`, `  value    "10\.0\.0\.7:80"`)
	add(one...)
	add(`  waiting  0`, ``)
	add(`latch x`, `  state    closed: 3 of 3 left to count`, `  waiting  0`, ``)
	add(`barrier x`, `  state    open: 1 of 2 have come`, `    NAME +HOST +PROCESS +SINCE +FOR +LEASE LEFT +CLIENT`, `    test .*`)
	reads(t, shows(t, s, "inspect", name), want...)
	require.Equal(t, "10.0.0.7:80", *decoded[[]nameJSON](t, shows(t, s, "inspect", name, "--kind", "election", "--json"))[0].Value)
	reads(t, shows(t, s, "inspect", name, "--kind", "latch"), `latch x`, `  state    closed: 3 of 3 left to count`, `  waiting  0`)
	early := kit.Run(func() error { return countdown.New(b, "early", countdown.WithEarlyWait()).Wait(ctx) })
	kit.Waiting(t, 1, countdown.New(a, "early").Inspect)
	reads(t, shows(t, s, "inspect", "early"), `latch early`, `  state    not set yet`, `  waiting  1`)
	leave()
	require.Error(t, early.Err(t))
	require.Error(t, comes.Err(t))
	kit.Release(t, holds(t, a, "free"))
	reads(t, shows(t, s, "inspect", "free"), `lock free`, `  holder   none, the last token was \d+`, `  waiting  0`)
}

func TestDeadlocksNamesTheMembersOfACircle(t *testing.T) {
	s := kit.Start(t)
	a, b, c := kit.Dial(t, s), kit.Dial(t, s), kit.Dial(t, s)
	first := kit.Got(fairlock.New(a, "orders", headwaiter.WithLease(3*time.Second)).Lock(t.Context()))(t)
	second := kit.Got(fairlock.New(b, "stock of", headwaiter.WithLease(3*time.Second)).Lock(t.Context()))(t)
	queued(t, a, "stock of", 1)
	require.Equal(t, "no deadlock; calls that wait for others: 1", shows(t, s, "deadlocks", "--for", "0s"))
	waits := queued(t, b, "orders", 1)
	queued(t, c, "orders", 2)

	code, out, complaint := said(t, s, "deadlocks", "--for", "100ms")
	require.Equal(t, exitFindings, code)
	require.Empty(t, complaint)
	require.Equal(t, 1, strings.Count(out, "deadlock of 2, for "))
	for _, line := range []string{
		`  test@\S+#\d+ \(client ` + a.ID() + `\)\n    holds lock orders since \S+, for \S+, token \d+\n    waits for lock stock of since \S+, for \S+, at place 1\n`,
		`  test@\S+#\d+ \(client ` + b.ID() + `\)\n    holds lock stock of since \S+, for \S+, token \d+\n    waits for lock orders since \S+, for \S+, at place 1\n`,
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
	s := kit.Start(t)
	s.Do("SET", "headwaiter:lock:{bad}", "x")
	code, out, complaint := said(t, s, "deadlocks", "--for", "0s")
	require.Zero(t, code)
	require.Equal(t, "no deadlock among what was looked at; calls that wait for others: 0", out)
	require.Contains(t, complaint, "a name cannot be read")
}
