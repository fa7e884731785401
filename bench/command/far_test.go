package command

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/bench"
	"github.com/headwaiter/headwaiter/internal/testenv/must"
)

// tiny is all that far measures, in seconds.
var tiny = strings.Fields("-many 4 -own 4 -few 2 -processes 2 -names 300 -waiters 100 -clients 4 -operations 128 -shards 1,2 -rounds 1 -slice 40ms -look 50ms")

// goFar runs it and returns the page and the file of figures.
func goFar(t *testing.T, tools Tools, args ...string) (page, data string, err error) {
	t.Helper()
	dir := t.TempDir()
	docs, data := filepath.Join(dir, "how-far.md"), filepath.Join(dir, "far.jsonl")
	tools.On = func(redis rueidis.ClientOption) bench.Driver { return driver(redis.InitAddress...) }
	_, err = runBench(t, tools, append(append([]string{"far", "-out", dir, "-docs", docs, "-data", data, "-beside", "a test"}, tiny...), args...)...)
	text, _ := os.ReadFile(docs) // There may be none.
	return string(text), data, err
}

func TestHowFarItGoesIsAPageAndAPlan(t *testing.T) {
	page, data, err := goFar(t, tools(nil))
	require.NoError(t, err)
	for _, want := range []string{
		"other load: a test", "| try a name that is held: refused, 64 connections |", "| semaphore: acquire a permit and release it |",
		"| 4 : 2, 2 processes | three of its own |", "asked every 10s", "| names held | 300 |", "| keys that outlast the release by more than 1m15s | 0 |",
		"| clients that wait, a call each | 4 | 3.00 connections each |", "\n| 2 | 32 | ", "## The next wall",
	} {
		require.Contains(t, page, want)
	}
	out := must.Got(runBench(t, Tools{}, "-plan", "-data", data, "-clients", "5000", "-waiters", "100", "-handoffs", "10"))(t)
	require.Contains(t, out, "Connections of each: 15,000\n")
	require.Contains(t, out, "connections of a master: 15000 of 10000, if each client uses names of each master. Too much: raise maxclients")
}

func TestThePlanIsMadeOfTheFiguresOfThePage(t *testing.T) {
	out := must.Got(runBench(t, Tools{}, "plan", "-clients", "200", "-handoffs", "1000", "-names", "50"))(t)
	require.Contains(t, out, "Connections of each: 600\n")
	for _, args := range [][]string{{"-load", "0"}, {"-waiters", "-1"}, {"surplus"}, {"-data", filepath.Join(t.TempDir(), "none")}} {
		require.Error(t, must.Err(runBench(t, Tools{}, append([]string{"plan"}, args...)...)), args)
	}
}

// leaky is this library's lock where a release of what is kept by many does nothing.
type leaky struct{ bench.Driver }

type leakyClient struct {
	bench.Client
	bench.Family
}

type leakyMutex struct{ bench.Mutex }

type leakyHold struct{ bench.Lasting }

func (d leaky) NewClient(ctx context.Context) (bench.Client, error) {
	c, err := d.Driver.NewClient(ctx)
	if err != nil {
		return nil, err
	}
	return leakyClient{c, c.(bench.Family)}, nil
}

func (c leakyClient) Lasting(name string, lease time.Duration) bench.Mutex {
	return leakyMutex{c.Client.(bench.Leased).Lasting(name, lease)}
}

func (m leakyMutex) Lock(ctx context.Context) (bench.Hold, error) {
	h, err := m.Mutex.Lock(ctx)
	if err != nil {
		return nil, err
	}
	return leakyHold{h.(bench.Lasting)}, nil
}

func (leakyHold) Release(context.Context) error { return nil }

func TestKeysThatStayAreAFault(t *testing.T) {
	_, _, err := goFar(t, tools(func(c *bench.Contender) { c.Driver = leaky{c.Driver} }))
	require.ErrorContains(t, err, "W8 n=300 lease=10m0s: 300 keys outlast 1m15s though all is released")
}

// crowded is a lock that becomes slower with each client of its process.
type crowded struct {
	bench.Driver
	clients *int
}

type crowdedClient struct {
	bench.Client
	clients *int
}

type crowdedMutex struct {
	bench.Mutex
	clients *int
}

type crowdedHold struct {
	bench.Hold
	clients int
}

func (d crowded) NewClient(ctx context.Context) (bench.Client, error) {
	*d.clients++
	c, err := d.Driver.NewClient(ctx)
	return crowdedClient{c, d.clients}, err
}

func (c crowdedClient) Mutex(name string) bench.Mutex {
	return crowdedMutex{c.Client.Mutex(name), c.clients}
}

func (m crowdedMutex) Lock(ctx context.Context) (bench.Hold, error) {
	h, err := m.Mutex.Lock(ctx)
	return crowdedHold{h, *m.clients}, err
}

func (h crowdedHold) Release(ctx context.Context) error {
	time.Sleep(time.Duration(h.clients*h.clients) * time.Millisecond) // A release that takes longer the more clients there are.
	return h.Hold.Release(ctx)
}

func TestHandOffsThatFallAreAFault(t *testing.T) {
	slow := tools(func(c *bench.Contender) {
		plain := c.Command
		c.Command = func() *exec.Cmd {
			cmd := plain()
			cmd.Env = append(cmd.Env, crowdedVariable+"=yes")
			return cmd
		}
	})
	_, _, err := goFar(t, slow, "-many", "12", "-own", "12", "-shared", "", "-rounds", fmt.Sprint(bench.LeastRounds))
	must.Fails(t, err, "W4 C=12 has 0.", "which is less than 0.8")
}
