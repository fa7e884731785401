package waitqueue

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// attemptTime is how long one attempt of an ask, check or renewal may take to reach the server; its
// not-after (R7). It is longer than a connection may take to answer, so a refusal as late is rare.
const (
	attemptTime    = 3 * time.Second
	longestAttempt = time.Minute
)

// An attempt is one request under way: when it was sent, and until when it can still run.
type attempt struct {
	sent     time.Time
	slept    time.Duration // what lease.Slept said then
	expires  time.Time     // local time after which the server refuses it
	notAfter string        // the same as the server's clock will show it at the latest
	note     string        // what the grants in the reply carry
}

// sending is the attempt of a request that may run at any time.
func sending() attempt {
	slept := lease.Slept() // First: what is slept from here on must show.
	return attempt{sent: time.Now(), slept: slept}
}

// run runs a script on the commands' connection to the node that has its keys, until the connection's own time
// limits, whoever waits for it.
func (c *Client) run(s *lua.Script, keys []string, args ...string) (lua.Reply, error) {
	return s.Decode(c.runUntil(c.patient, c.routes.of(keys[0]), s, keys, args))
}

func (c *Client) runUntil(ctx context.Context, n *node, s *lua.Script, keys, args []string) rueidis.RedisResult {
	began := time.Now()
	if n.flying.Add(1) > 1 {
		n.piped.Store(true)
	}
	res := c.commands.Do(ctx, c.evalsha(c.commands.B(), s, keys, args))
	if err, ok := rueidis.IsRedisErr(res.Error()); ok && err.IsNoScript() {
		res = c.commands.Do(ctx, c.eval(c.commands.B(), s, keys, args))
	}
	n.flying.Add(-1)
	err := res.NonRedisError()
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		res = rueidis.NewErrorResult(errSilent) // It was not the caller's deadline.
	}
	if err != nil && ctx.Err() == nil {
		n.piped.Store(false) // The connection is broken: the next command has a new one.
		c.routes.doubt()
	}
	if err == nil {
		c.demoted(res)
	}
	if slow := err != nil || time.Since(began) > slowAnswer; slow != n.slow.Load() {
		n.slow.Store(slow)
	}
	return res
}

// demoted cuts the connections to a server that says it is a replica. It was a master once, and its name may lead to
// another by now: the next call finds out. Where there are sentinels or a cluster, they tell.
func (c *Client) demoted(res rueidis.RedisResult) {
	if isReadOnly(res.Error()) && c.sockets != nil && c.commands.Mode() == rueidis.ClientModeStandalone {
		c.sockets.cut("")
		c.hearing.cut("")
		// rueidis notices by the next command, which would not be known to have run or not.
		c.spawn(func() { _ = c.commands.Do(context.Background(), c.commands.B().Ping().Build()).Error() })
	}
}

// errSilent is what rueidis' own time limits come to.
var errSilent = errors.New("no answer from Redis in time")

// slowAnswer is how long an answer takes from which on a call does not wait for it on its own goroutine.
const slowAnswer = 250 * time.Millisecond

// runFor runs a script for a caller whose context may end. An error of the context leaves open whether the
// script ran.
//
// A context that can end costs a change of goroutines, a good part of the way to the server and back, unless
// rueidis is spared it: on a connection that answers and that nobody shares at the moment, only the
// deadline is passed on, and a cancellation waits for the answer. If that takes longer than slowAnswer the
// connection is cut.
func (c *Client) runFor(ctx context.Context, s *lua.Script, keys []string, args ...string) rueidis.RedisResult {
	n := c.routes.of(keys[0])
	switch {
	case ctx.Done() == nil:
		return c.runUntil(ctx, n, s, keys, args)
	case n.sluggish():
		res, err := inBackground(ctx, c, func() (rueidis.RedisResult, error) {
			return c.runUntil(c.patient, n, s, keys, args), nil
		})
		if err != nil {
			return rueidis.NewErrorResult(err)
		}
		return res
	case n.piped.Load() || n.flying.Load() > 0:
		return c.runUntil(noDeadline{ctx}, n, s, keys, args)
	}
	deadline := time.Now().Add(answerTime)
	if d, ok := ctx.Deadline(); ok {
		deadline = earlier(deadline, d)
	}
	w := &watched{ctx: ctx, began: time.Now(), deadline: deadline}
	n.watching.Store(w)
	c.timers.Before(&n.watcher, w.began.Add(slowAnswer))
	res := c.runUntil(w, n, s, keys, args)
	n.watching.CompareAndSwap(w, nil)
	return res
}

// noDeadline is a context without its deadline, which still ends it: of two ways to end, rueidis would look at
// the deadline alone where its connection is not pipelined at the moment.
type noDeadline struct{ context.Context }

func (noDeadline) Deadline() (time.Time, bool) { return time.Time{}, false }

func (c *Client) evalsha(b rueidis.Builder, s *lua.Script, keys, args []string) rueidis.Completed {
	if c.sharded {
		s = s.Sharded()
	}
	return b.Evalsha().Sha1(s.SHA).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
}

func (c *Client) eval(b rueidis.Builder, s *lua.Script, keys, args []string) rueidis.Completed {
	if c.sharded {
		s = s.Sharded()
	}
	return b.Eval().Script(s.Source).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
}

// job is one script of a batch.
type job struct {
	script *lua.Script
	keys   []string
	args   []string
}

// runAll runs scripts whose keys are at one node in one round trip, and again in full those that the server did
// not know.
func (c *Client) runAll(rc rueidis.Client, n *node, jobs []job) []rueidis.RedisResult {
	cmds := make([]rueidis.Completed, len(jobs))
	for i, j := range jobs {
		cmds[i] = c.evalsha(rc.B(), j.script, j.keys, j.args)
	}
	if rc == c.commands {
		if n.flying.Add(1) > 1 {
			n.piped.Store(true)
		}
		defer n.flying.Add(-1)
	}
	results := rc.DoMulti(c.patient, cmds...)
	for i, j := range jobs {
		if err, ok := rueidis.IsRedisErr(results[i].Error()); ok && err.IsNoScript() {
			results[i] = rc.Do(c.patient, c.eval(rc.B(), j.script, j.keys, j.args))
		}
	}
	if len(results) > 0 {
		c.demoted(results[0]) // What a node is, it says to all of them.
	}
	return results
}

// counted tells scripts whether subscribers can be counted.
func (c *Client) counted() string {
	if c.opts.WithoutSkip || c.uncount.Load() {
		return "0"
	}
	return "1"
}

// highest is the highest token seen, for scripts.
func (c *Client) highest() string { return c.floor.highest() }

// A tokenFloor is the highest token seen, as a number and as the text that every ask and end sends.
type tokenFloor struct {
	mu    sync.Mutex // guards the fields below
	token uint64
	text  string // of token; empty if nobody has asked for it
}

func (f *tokenFloor) raise(token uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if token > f.token {
		f.token, f.text = token, ""
	}
}

func (f *tokenFloor) highest() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.text == "" {
		f.text = strconv.FormatUint(f.token, 10)
	}
	return f.text
}

// jitter returns a time between two others.
func jitter(from, to time.Duration) time.Duration {
	if to <= from {
		return from
	}
	return from + rand.N(to-from)
}
