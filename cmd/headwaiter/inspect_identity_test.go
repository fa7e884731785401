package main

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/semaphore"
)

// as makes a client with an identity.
func as(identity, run string) func(*headwaiter.Options) {
	return func(o *headwaiter.Options) { o.Identity, o.Invocation = identity, run }
}

func TestInspectShowsIdentities(t *testing.T) {
	s := kit.Start(t)
	a, b, c := kit.Dial(t, s, as("unit@a", "7")), kit.Dial(t, s, as("unit@b", "")), kit.Dial(t, s)
	held := holds(t, a, "orders")
	queued(t, b, "orders", 1)
	queued(t, c, "orders", 2)
	reads(t, shows(t, s, "inspect", "orders"),
		`lock orders`, `  holder   test on host \S+, process \d+`, `  client   `+a.ID(), `  identity unit@a, run 7, since .*, for .*`,
		`  held .*`, `  lease .*`, `  token .*`, `  waiting  2`,
		`    PLACE .* CLIENT +IDENTITY`, `    1 .* `+b.ID()+` +unit@b, since .*`, `    2 .* `+c.ID())
	j := decoded[[]nameJSON](t, shows(t, s, "inspect", "orders", "--json"))[0]
	require.Equal(t, "unit@a", j.Holders[0].Identity)
	require.Equal(t, "7", j.Holders[0].Invocation)
	require.Positive(t, j.Holders[0].Taken)
	require.Equal(t, "unit@b", j.Queue[0].Identity)
	require.Zero(t, j.Queue[1].incarnationJSON)

	permits := semaphore.New(c, "permits", 5)
	require.NoError(t, kit.Err(permits.Acquire(t.Context(), 1)))
	require.NoError(t, kit.Err(permits.Acquire(t.Context(), 1)))
	require.NotContains(t, shows(t, s, "inspect", "permits"), "IDENTITY")
	require.NoError(t, kit.Err(semaphore.New(a, "permits", 5).Acquire(t.Context(), 1)))
	require.Regexp(t, `CLIENT +IDENTITY\n(.*\n)*.* unit@a, run `, shows(t, s, "inspect", "permits"))

	reads(t, shows(t, s, "inspect", "--identity", "unit@a"), `identity unit@a`, `  holder   test on host \S+, process \d+`, `  client   `+a.ID(),
		`  run      7`, `  taken    since .*, for .*`, `  names    2`, `    lock:\{orders\}`, `    semaphore:\{permits\}`)
	kit.Release(t, held)

	killed := kit.Dial(t, s)
	_, _, err := killed.Bury(t.Context(), "unit@b", "")
	require.NoError(t, err)
	require.Contains(t, shows(t, s, "inspect", "--identity", "unit@b"), "has said that it is dead")
	require.Empty(t, decoded[identityJSON](t, shows(t, s, "inspect", "--identity", "unit@b", "--json")).Client)
	code, _, complaint := said(t, s, "inspect", "--identity", "nobody")
	require.Equal(t, exitNoSuch, code)
	require.Contains(t, complaint, "nobody")
	for _, wrong := range [][]string{{"orders", "--identity", "unit@a"}, {"--identity", "unit@a", "--kind", "lock"}, {}} {
		code, _, complaint = said(t, s, append([]string{"inspect"}, wrong...)...)
		require.Equal(t, exitUsage, code, complaint)
	}
}

// What others have kept in the place of an identity is shown as text.
func TestInspectShowsFromWhomAnIdentityWasTaken(t *testing.T) {
	s := kit.Start(t)
	c := kit.Dial(t, s, as("unit@a", ""))
	require.NoError(t, kit.Err(fairlock.New(c, "orders").Lock(t.Context())))
	second := time.Second.Microseconds()
	now := time.Now().UnixMicro() / second * second
	s.Do("HSET", "headwaiter:identity:unit@a", "before", strconv.FormatInt(now-5*second, 10)+":old@h\u202e#7", "twice", strconv.FormatInt(now, 10)+":old@h#8", "older", "x y")
	out := shows(t, s, "inspect", "--identity", "unit@a")
	require.Regexp(t, `  before   old@h\\u202e#7, who had taken it at \d\d:\d\d:\d\d\n  twice    old@h#8 lives too, and has asked at \d\d:\d\d:\d\d\n  dead     2 earlier clients, .*\n  names    1`, out)
	j := decoded[identityJSON](t, shows(t, s, "inspect", "--identity", "unit@a", "--json"))
	require.Equal(t, "old@h#8", j.TwiceWho)
	require.Equal(t, 2, j.Older)
	require.Greater(t, j.Before, j.Twice)
}
