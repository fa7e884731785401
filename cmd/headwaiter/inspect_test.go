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
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
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
	t.Parallel()
	s := redistest.Start(t)
	a, b, c := kit.Dial(t, s), kit.Dial(t, s), kit.Dial(t, s)
	l := holds(t, a, "orders")
	queued(t, b, "orders", 1)
	queued(t, c, "orders", 2)
	s.Do("DEL", "headwaiter:client:"+c.ID()) // It has not said who it is.
	host, err := os.Hostname()
	require.NoError(t, err)
	who := fmt.Sprintf("test@%s#%d", host, os.Getpid())
	const span = `[\d.]+m?s`
	reads(t, shows(t, s, "inspect", "orders"),
		`lock orders`,
		fmt.Sprintf(`  holder   test on host %s, process %d`, host, os.Getpid()),
		`  client   `+a.ID(),
		`  held for `+span,
		`  lease    `+span+` left, unless it is renewed`,
		fmt.Sprint(`  token    `, l.Token()),
		`  waiting  2`,
		`    PLACE  WAITED +NAME +HOST +PROCESS +CLIENT`,
		fmt.Sprintf(`    1 +%s +test +%s +%d +%s`, span, host, os.Getpid(), b.ID()),
		`    2 +`+span+` +- +- +- +`+c.ID(),
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
	t.Parallel()
	s := redistest.Start(t)
	a := kit.Dial(t, s, func(o *headwaiter.Options) { o.GrantLease = time.Minute })
	l := holds(t, a, "orders")
	text, err := l.HandOver(t.Context())
	require.NoError(t, err)
	out := shows(t, s, "inspect", "orders")
	require.Contains(t, out, "client   "+a.ID()+"\n  transit  handed over by this client, and not adopted yet")
	require.Contains(t, out, "left, then the queue is served")
	require.NotContains(t, out, text)
	require.Contains(t, shows(t, s, "ls"), "in transit from ")
	require.True(t, decoded[[]nameJSON](t, shows(t, s, "inspect", "orders", "--json"))[0].Holders[0].Transit)
	next, err := fairlock.Adopt(t.Context(), a, text)
	require.NoError(t, err)
	require.NotContains(t, shows(t, s, "inspect", "orders"), "transit")
	kit.Release(t, next)
}

// Whoever was handed the lock a moment ago is known as well.
func TestInspectKnowsWhoWasHandedTheLock(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	a, b := kit.Dial(t, s), kit.Dial(t, s)
	l := holds(t, a, "orders")
	waits := queued(t, b, "orders", 1)
	kit.Release(t, l)
	next := waits.Value(t)
	info, err := fairlock.New(a, "orders").Inspect(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, info.Holder.Who)
	out := shows(t, s, "inspect", "orders")
	require.Contains(t, out, fmt.Sprintf("process %d", os.Getpid()))
	require.Contains(t, out, fmt.Sprint("token    ", next.Token()))
}

// A holder that has not said who it is is told by its client.
func TestInspectTellsOfAHolderThatIsNotKnownByItsClient(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	s.Do("HSET", "headwaiter:lock:{brief}", "owner", "stranger:1:x:1:1000:1000", "until", "9000000000000000",
		"token", "7", "since", "7:1000000", "phase", "granted", "version", "3")
	out := shows(t, s, "inspect", "brief")
	require.Contains(t, out, "holder   not known")
	require.Contains(t, out, "client   stranger")
}

func TestInspectShowsAllKinds(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	a, b := kit.Dial(t, s), kit.Dial(t, s)
	const name = "x"
	re := reentrant.New(a, name)
	outer, err := re.Lock(t.Context())
	require.NoError(t, err)
	_, err = re.Lock(outer.Context())
	require.NoError(t, err)
	kit.Eventually(t, "the count of entries", func() bool {
		info, err := re.Inspect(t.Context())
		require.NoError(t, err)
		return info.Holder.Entries == 2
	})
	_, err = rwlock.New(a, name).RLock(t.Context())
	require.NoError(t, err)
	_, err = rwlock.New(b, name).RLock(t.Context())
	require.NoError(t, err)
	_, err = semaphore.New(a, name, 5).Acquire(t.Context(), 2)
	require.NoError(t, err)
	_, err = election.New(a, name).Campaign(t.Context(), "10.0.0.7:80")
	require.NoError(t, err)
	_, err = countdown.New(a, name).TrySetCount(t.Context(), 3)
	require.NoError(t, err)
	meet := barrier.New(a, name, 2)
	ctx, leave := context.WithCancel(t.Context())
	comes := kit.Go(func() (int, error) { return meet.Await(ctx) })
	kit.Waiting(t, 1, meet.Inspect)

	one := []string{`  holder   test on host \S+, process \d+`, `  client   ` + a.ID(), `  held for .*`, `  lease    .* left.*`, `  token    \d+`}
	var want []string
	add := func(lines ...string) { want = append(want, lines...) }
	add(`reentrant x`)
	add(one...)
	add(`  entered  2 times`, `  waiting  0`, ``)
	add(`rwlock x`, `  readers  2`, `    NAME +HOST +PROCESS +PERMITS +HELD FOR +LEASE LEFT +TOKEN +CLIENT`,
		`    test .* 1 .*`, `    test .* 1 .*`, `  waiting  0`, ``)
	add(`semaphore x`, `  permits  2 of 5 held`)
	add(one...)
	add(`  waiting  0`, ``)
	add(`election x`, `  value    "10\.0\.0\.7:80"`)
	add(one...)
	add(`  waiting  0`, ``)
	add(`latch x`, `  state    closed: 3 of 3 left to count`, `  waiting  0`, ``)
	add(`barrier x`, `  state    open: 1 of 2 have come`, `    NAME +HOST +PROCESS +WAITED +LEASE LEFT +CLIENT`, `    test .*`)
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
