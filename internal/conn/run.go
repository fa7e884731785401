package conn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/internal/retry"
	"github.com/headwaiter/headwaiter/internal/timers"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// AttemptTime is how long one attempt of an ask, check or renewal may take to reach the server; its
// not-after (R7). It is longer than a connection may take to answer, so a refusal as late is rare.
const (
	AttemptTime    = 3 * time.Second
	LongestAttempt = time.Minute
)

// An Attempt is one request under way: when it was sent, and until when it can still run.
type Attempt struct {
	Sent     time.Time
	Slept    time.Duration // what lease.Slept said then
	Expires  time.Time     // local time after which the server refuses it
	Latest   int64         // the same as the server's clock will show it at the latest
	NotAfter string        // and as text
	Note     string        // what the grants in the reply carry
}

// Sending is the attempt of a request that may run at any time.
func Sending() Attempt {
	slept := lease.Slept() // First: what is slept from here on must show.
	return Attempt{Sent: time.Now(), Slept: slept}
}

// Run runs a script on the commands' connection to the node that has its keys, until the connection's own time
// limits, even if its caller gives up.
func (c *Servers) Run(s *lua.Script, keys []string, args ...string) rueidis.RedisResult {
	return c.runUntil(c.Patient, c.routes.of(keys[0]), nil, s, keys, args)
}

// runUntil runs a script, and those that go ahead of it in the same round trip.
func (c *Servers) runUntil(ctx context.Context, n *Node, ahead []Job, s *lua.Script, keys, args []string) rueidis.RedisResult {
	if !c.flights.begin() {
		return unanswered(ahead, rueidis.ErrClosing)
	}
	defer c.flights.end()
	began := time.Now()
	if n.flying.Add(1) > 1 {
		n.piped.Store(true)
	}
	var res rueidis.RedisResult
	if len(ahead) == 0 || c.runBehind(ctx, ahead, &res, s, keys, args) {
		res = c.commands.Do(ctx, c.evalsha(c.commands.B(), s, keys, args))
	}
	if noScript(res) {
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
	took := time.Since(began)
	if slow := err != nil || took > SlowAnswer; slow != n.slow.Load() {
		n.slow.Store(slow)
	}
	if c.opts.Requests != nil && (err == nil || !givenUp(ctx)) {
		c.tell(n, took, res.Error())
	}
	return res
}

// tell tells how a request went. What is refused for good is answered.
func (c *Servers) tell(n *Node, took time.Duration, err error) {
	switch {
	case errors.Is(err, rueidis.ErrClosing):
		return
	case !Transient(err):
		err = nil
	}
	server := n.address
	if server == "" {
		server = c.name
	}
	c.opts.Requests(server, took, err)
}

// givenUp reports whether the caller of a request wanted no answer any more.
func givenUp(ctx context.Context) bool {
	if w, ok := ctx.(*watched); ok {
		ctx = w.ctx
	}
	d, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(d)
}

// runBehind runs a script behind others, and reports whether it has to run again because it did so before one that the
// server did not know.
func (c *Servers) runBehind(ctx context.Context, ahead []Job, res *rueidis.RedisResult, s *lua.Script, keys, args []string) (again bool) {
	var room [4]rueidis.Completed
	cmds := room[:0]
	for _, j := range ahead {
		cmds = append(cmds, c.evalsha(c.commands.B(), j.Script, j.Keys, j.Args))
	}
	results := c.commands.DoMulti(ctx, append(cmds, c.evalsha(c.commands.B(), s, keys, args))...)
	for i := range ahead {
		j := &ahead[i]
		if j.Result = results[i]; noScript(j.Result) {
			j.Result = c.commands.Do(ctx, c.eval(c.commands.B(), j.Script, j.Keys, j.Args))
			again = true
		}
	}
	*res = results[len(ahead)]
	return again
}

// unanswered is the result of a script, and of those ahead of it, where there is no answer.
func unanswered(ahead []Job, err error) rueidis.RedisResult {
	res := rueidis.NewErrorResult(err)
	for i := range ahead {
		ahead[i].Result = res
	}
	return res
}

func noScript(res rueidis.RedisResult) bool {
	err, ok := rueidis.IsRedisErr(res.Error())
	return ok && err.IsNoScript()
}

// demoted cuts the connections to a server that says it is a replica. It was a master once, and its name may lead to
// another by now: the next call finds out. Where there are sentinels or a cluster, they tell.
func (c *Servers) demoted(res rueidis.RedisResult) {
	if isReadOnly(res.Error()) && c.sockets != nil && c.commands.Mode() == rueidis.ClientModeStandalone {
		c.sockets.cut("")
		c.hearing.cut("")
		// rueidis notices by the next command, which would not be known to have run or not.
		c.Spawn(func() { _ = c.commands.Do(context.Background(), c.commands.B().Ping().Build()).Error() })
	}
}

// errSilent is what rueidis' own time limits come to.
var errSilent = errors.New("no answer from Redis in time")

// SlowAnswer is how long an answer takes from which on a call does not wait for it on its own goroutine.
const SlowAnswer = 250 * time.Millisecond

// RunFor runs a script for a caller whose context may end. An error of the context leaves open whether the
// script ran.
//
// A context that can end costs a change of goroutines, a good part of the way to the server and back, unless
// rueidis is spared it: on a connection that answers and that nobody shares at the moment, only the
// deadline is passed on, and a cancellation waits for the answer. If that takes longer than SlowAnswer the
// connection is cut.
func (c *Servers) RunFor(ctx context.Context, s *lua.Script, keys []string, args ...string) rueidis.RedisResult {
	return c.RunBehind(ctx, nil, s, keys, args...)
}

// RunBehind is RunFor for a script with others ahead of it in the same round trip, on the same node. Their results are
// in the jobs; without an answer to its own, those have none either.
func (c *Servers) RunBehind(ctx context.Context, ahead []Job, s *lua.Script, keys []string, args ...string) rueidis.RedisResult {
	n := c.routes.of(keys[0])
	switch {
	case ctx.Done() == nil:
		return c.runUntil(ctx, n, ahead, s, keys, args)
	case n.Sluggish():
		jobs := slices.Clone(ahead) // It may go on when this has returned.
		res, err := InBackground(ctx, c, func() (rueidis.RedisResult, error) {
			return c.runUntil(c.Patient, n, jobs, s, keys, args), nil
		})
		if err != nil {
			return unanswered(ahead, err)
		}
		copy(ahead, jobs)
		return res
	case n.piped.Load() || n.flying.Load() > 0:
		return c.runUntil(noDeadline{ctx}, n, ahead, s, keys, args)
	}
	deadline := time.Now().Add(AnswerTime)
	if d, ok := ctx.Deadline(); ok {
		deadline = timers.Earlier(deadline, d)
	}
	w := &watched{ctx: ctx, began: time.Now(), deadline: deadline}
	if !n.watching.CompareAndSwap(nil, w) { // Another call began at the same moment: only one can be watched.
		return c.runUntil(noDeadline{ctx}, n, ahead, s, keys, args)
	}
	c.Timers.Before(&n.watcher, w.began.Add(SlowAnswer))
	res := c.runUntil(w, n, ahead, s, keys, args)
	n.watching.CompareAndSwap(w, nil)
	return res
}

// noDeadline is a context without its deadline, which still ends it: of two ways to end, rueidis would look at
// the deadline alone where its connection is not pipelined at the moment.
type noDeadline struct{ context.Context }

func (noDeadline) Deadline() (time.Time, bool) { return time.Time{}, false }

func (c *Servers) evalsha(b rueidis.Builder, s *lua.Script, keys, args []string) rueidis.Completed {
	if c.Sharded {
		s = s.Sharded()
	}
	return b.Evalsha().Sha1(s.SHA).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
}

func (c *Servers) eval(b rueidis.Builder, s *lua.Script, keys, args []string) rueidis.Completed {
	if c.Sharded {
		s = s.Sharded()
	}
	return b.Eval().Script(s.Source).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
}

// Job is one script of a batch.
type Job struct {
	Script *lua.Script
	Keys   []string
	Args   []string
	Result rueidis.RedisResult // of one that goes ahead of another
}

// Logged is the job for a name that keeps a history of n hand-offs under a key: one key and one argument more. Of 0 it is
// the job as it was.
func (j Job) Logged(n int, key string) Job {
	if n > 0 {
		j.Script = j.Script.Logged()
		j.Keys, j.Args = append(slices.Clip(j.Keys), key), append(slices.Clip(j.Args), strconv.Itoa(n))
	}
	return j
}

// Patiently is runUntil for as long as the connection allows, also when its caller has gone.
func (c *Servers) Patiently(n *Node, ahead []Job, s *lua.Script, keys, args []string) rueidis.RedisResult {
	return c.runUntil(c.Patient, n, ahead, s, keys, args)
}

// RunAll runs scripts whose keys are at one node in one round trip, behind the commands that were sent before.
func (c *Servers) RunAll(n *Node, jobs []Job) []rueidis.RedisResult {
	return c.pipe(c.commands, n, jobs)
}

// RunBeside is RunAll for renewals, on their own connection.
func (c *Servers) RunBeside(n *Node, jobs []Job) []rueidis.RedisResult {
	return c.pipe(c.Side, n, jobs)
}

// pipe runs scripts in one round trip, and again in full those that the server did not know.
func (c *Servers) pipe(rc rueidis.Client, n *Node, jobs []Job) []rueidis.RedisResult {
	if !c.flights.begin() {
		return slices.Repeat([]rueidis.RedisResult{rueidis.NewErrorResult(rueidis.ErrClosing)}, len(jobs))
	}
	defer c.flights.end()
	cmds := make([]rueidis.Completed, len(jobs))
	for i, j := range jobs {
		cmds[i] = c.evalsha(rc.B(), j.Script, j.Keys, j.Args)
	}
	if rc == c.commands {
		if n.flying.Add(1) > 1 {
			n.piped.Store(true)
		}
		defer n.flying.Add(-1)
	}
	var began time.Time
	if c.opts.Requests != nil {
		began = time.Now()
	}
	results := rc.DoMulti(c.Patient, cmds...)
	var told []*lua.Script // that the server lacked
	var rest []Job         // from the first on that wants one of them too, in their order
	var again []int        // which these are
	for i, j := range jobs {
		switch {
		case !noScript(results[i]):
		case len(rest) > 0 || slices.Contains(told, j.Script):
			rest, again = append(rest, j), append(again, i)
		default:
			results[i], told = rc.Do(c.Patient, c.eval(rc.B(), j.Script, j.Keys, j.Args)), append(told, j.Script)
		}
	}
	if len(rest) > 0 {
		for k, res := range c.pipe(rc, n, rest) {
			results[again[k]] = res
		}
	}
	if len(results) > 0 {
		c.demoted(results[0]) // What a node is, it says to all of them.
		if c.opts.Requests != nil {
			c.tell(n, time.Since(began), results[0].Error())
		}
	}
	return results
}

// Counted tells scripts whether subscribers can be counted.
func (c *Servers) Counted() string {
	if c.opts.WithoutSkip || c.uncount.Load() {
		return "0"
	}
	return "1"
}

// Repeats is for how many ms a request may come again that is given up at a time: an attempt that is sent by then may be
// under way for long.
func Repeats(last time.Time) string {
	return strconv.FormatInt((max(time.Until(last), 0) + LongestAttempt).Milliseconds(), 10)
}

// Repeat runs a script again and again until it is answered: it must do the same when it runs twice. args gets each
// attempt; late is told of those that came too late, and more time is left for the next. It gives up when ctx ends; then
// the error wraps [lease.ErrOutcomeUnknown] if the script may have run.
func (c *Servers) Repeat(
	ctx context.Context, s *lua.Script, keys []string, args func(Attempt) []string, late func(*Node, Attempt, lua.Head),
) (Attempt, lua.Tuple, error) {
	budget, unsure := AttemptTime, false
	for tries := 0; ; tries++ {
		n := c.NodeOf(keys[0])
		a := n.Attempt(budget)
		r, err := s.Tuple(c.RunFor(ctx, s, keys, args(a)...))
		switch {
		case err == nil && r.Status == lua.Late:
			late(n, a, r.Head())
			budget = min(2*budget, LongestAttempt)
			continue
		case err == nil:
			return a, r, nil
		case Answered(err) && !Transient(err):
			return a, r, Advise(err)
		case !Answered(err) && !Unsent(err):
			unsure = true
		}
		if !Transient(err) && ctx.Err() == nil {
			return a, r, Unsure(unsure, Advise(err))
		}
		if ended := c.Rest(ctx, retry.Backoff(tries)); ended != nil {
			return a, r, Unsure(unsure, fmt.Errorf("%w (last error: %w)", ended, Advise(err)))
		}
	}
}
