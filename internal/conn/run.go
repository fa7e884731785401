package conn

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/internal/keeper"
	"github.com/headwaiter/headwaiter/internal/times"
	"github.com/headwaiter/headwaiter/internal/wire"
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
	Slept    time.Duration // what keeper.Slept said then
	Expires  time.Time     // local time after which the server refuses it
	Latest   int64         // the same as the server's clock will show it at the latest
	NotAfter string        // and as text
	Note     string        // what the grants in the reply carry
}

// Sending is the attempt of a request that may run at any time.
func Sending() Attempt {
	now, slept := keeper.Clocks()
	return Attempt{Sent: now, Slept: slept}
}

// Run runs a script on the commands' connection to the node that has its keys, until the connection's own time
// limits, even if its caller gives up.
func (c *Servers) Run(s *lua.Script, keys []string, args ...string) rueidis.RedisResult {
	return c.runUntil(c.Patient, c.routes.of(keys[0]), nil, s, keys, args)
}

// runUntil runs a script, and the scripts that go before it in the same round trip.
func (c *Servers) runUntil(ctx context.Context, n *Node, ahead []Job, s *lua.Script, keys, args []string) rueidis.RedisResult {
	n.begin()
	return c.runBegun(ctx, n, time.Now(), ahead, s, keys, args)
}

// runBegun is runUntil for a command that has begun at its node ([Node.begin]), at a time.
func (c *Servers) runBegun(ctx context.Context, n *Node, began time.Time, ahead []Job, s *lua.Script, keys, args []string) rueidis.RedisResult {
	defer n.said.flying.Add(-1)
	if !n.known(began) {
		if err := n.introduced(ctx, c.commands); err != nil {
			return unanswered(ahead, err)
		}
		began = time.Now()
	}
	if err := c.guarded(ctx, s, keys[0]); err != nil {
		return unanswered(ahead, err)
	}
	if !c.flights.begin() {
		return unanswered(ahead, errUnbegun)
	}
	defer c.flights.end()
	var res rueidis.RedisResult
	if len(ahead) == 0 || c.runBehind(ctx, ahead, &res, s, keys, args) {
		res = c.commands.Do(ctx, c.evalsha(c.commands.B(), s, keys, args))
	}
	if noScript(res) {
		res = c.commands.Do(ctx, c.eval(c.commands.B(), s, keys, args))
	}
	err := res.NonRedisError()
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		res = rueidis.NewErrorResult(errSilent) // It was not the caller's deadline, or the call is watched: its caller looks at its own context.
	}
	if err != nil && ctx.Err() == nil {
		n.said.piped.Store(false) // The connection is broken: the next command has a new one.
		c.routes.doubt()
	}
	if err == nil {
		n.said.answers.Add(1)
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

// tell reports how a request went. A request that is refused for good counts as answered.
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

// givenUp reports whether the caller of a request wants no reply any more.
func givenUp(ctx context.Context) bool {
	if w, ok := ctx.(*watched); ok {
		ctx = w.ctx
	}
	d, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(d)
}

// runBehind runs a script after others, and reports whether it has to run again because it ran before one that the server
// did not know.
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

// unanswered is the result of a script, and of the scripts before it, without a reply.
func unanswered(ahead []Job, err error) rueidis.RedisResult {
	if errors.Is(err, lease.ErrClosed) {
		err = errUnbegun // The client was closed before anything was sent.
	}
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

// errSilent is the error when rueidis' own time limits end.
var errSilent = errors.New("no answer from Redis in time")

// SlowAnswer is [calls.SlowAnswer].
const SlowAnswer = calls.SlowAnswer

// RunFor runs a script for a caller whose context may end. An error of the context leaves open whether the
// script ran.
//
// A context that can end costs a change of goroutines, a good part of the way to the server and back. rueidis is spared
// it on a connection that answers and that nobody shares at the moment: then only the deadline is passed on, and a
// cancellation waits for the reply. If that takes longer than SlowAnswer the connection is cut.
func (c *Servers) RunFor(ctx context.Context, s *lua.Script, keys []string, args ...string) rueidis.RedisResult {
	return c.RunBehind(ctx, nil, s, keys, args...)
}

// RunBehind is RunFor for a script with others before it in the same round trip, on the same node. Their results are in
// the jobs; if its own has no reply, theirs have none either.
func (c *Servers) RunBehind(ctx context.Context, ahead []Job, s *lua.Script, keys []string, args ...string) rueidis.RedisResult {
	n := c.routes.of(keys[0])
	switch {
	case ctx.Done() == nil:
		return c.runUntil(ctx, n, ahead, s, keys, args)
	case n.Sluggish():
		if err := c.awaited(ctx, n); err != nil {
			return unanswered(ahead, err)
		}
		return c.runAside(ctx, n, ahead, s, keys, args)
	case n.said.piped.Load() || n.said.flying.Load() > 0:
		return c.runShared(ctx, n, ahead, s, keys, args)
	}
	w := &watched{ctx: ctx, began: time.Now()}
	w.deadline = w.began.Add(AnswerTime)
	if d, ok := ctx.Deadline(); ok {
		w.deadline = times.Earlier(w.deadline, d)
	}
	if !n.watching.CompareAndSwap(nil, w) { // Another call began at the same moment: only one can be watched.
		return c.runShared(ctx, n, ahead, s, keys, args)
	}
	c.Timers.Before(&n.watcher, w.began.Add(SlowAnswer))
	n.begin()
	res := c.runBegun(w, n, w.began, ahead, s, keys, args)
	n.watching.CompareAndSwap(w, nil)
	return res
}

// runShared runs a script on a connection that others use at the moment.
func (c *Servers) runShared(ctx context.Context, n *Node, ahead []Job, s *lua.Script, keys, args []string) rueidis.RedisResult {
	if n.begin() > c.places {
		n.said.flying.Add(-1)
		for n.said.flying.Load() >= c.places && !n.Sluggish() { // Else they could take the places of those that have begun.
			if err := c.Rest(ctx, time.Millisecond); err != nil {
				return unanswered(ahead, err)
			}
		}
		return c.runAside(ctx, n, ahead, s, keys, args)
	}
	return c.runBegun(noDeadline{ctx}, n, time.Now(), ahead, s, keys, args)
}

// runAside runs a script that may go on when its caller has gone. That is for a connection that may be silent, and for
// one whose ring may be full. rueidis looks at a context only when a command has its place in the ring, and a command
// that was given up keeps its place until the connection breaks. With as many under way as there are places left, the
// first that is given up makes its node sluggish.
func (c *Servers) runAside(ctx context.Context, n *Node, ahead []Job, s *lua.Script, keys, args []string) rueidis.RedisResult {
	jobs, patient := slices.Clone(ahead), c.Patient
	if c.sockets != nil {
		patient = hasty
	}
	res, err := InBackground(ctx, c, func() (rueidis.RedisResult, error) {
		return c.runUntil(patient, n, jobs, s, keys, args), nil
	})
	if err != nil {
		return unanswered(ahead, err)
	}
	copy(ahead, jobs)
	return res
}

// awaited waits until a connection to a node may be tried, where the last ones have failed. Its error says that nothing was
// sent.
func (c *Servers) awaited(ctx context.Context, n *Node) error {
	if c.sockets == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	err := c.sockets.gate.await(ctx, cmp.Or(n.address, c.name))
	switch {
	case err == nil:
		return nil
	case c.Over():
		return rueidis.ErrClosing
	}
	return &undialled{err}
}

// noDeadline is a context without its deadline, which still ends it. Of the two ways to end, rueidis would look only at
// the deadline while its connection is not pipelined.
type noDeadline struct{ context.Context }

func (noDeadline) Deadline() (time.Time, bool) { return time.Time{}, false }

// fit is a script with its keys and arguments as the server gets them.
func (c *Servers) fit(s *lua.Script, keys, args []string) (*lua.Script, []string, []string) {
	if c.guard != nil {
		s, keys, args = s.ForMortal(c.ID(), keys, args)
	}
	if c.Sharded {
		s = s.Sharded()
	}
	return s, keys, args
}

func (c *Servers) evalsha(b rueidis.Builder, s *lua.Script, keys, args []string) rueidis.Completed {
	s, keys, args = c.fit(s, keys, args)
	return b.Evalsha().Sha1(s.SHA).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
}

func (c *Servers) eval(b rueidis.Builder, s *lua.Script, keys, args []string) rueidis.Completed {
	s, keys, args = c.fit(s, keys, args)
	return b.Eval().Script(s.Source).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
}

// Job is one script of a batch.
type Job struct {
	Script *lua.Script
	Keys   []string
	Args   []string
	Result rueidis.RedisResult // of one that goes ahead of another
}

// Logged is the job for a name that keeps a history of n hand-offs under a key: it has one key and one argument more. For
// n = 0 it is the job as it was.
func (j Job) Logged(n int, key string) Job {
	if n > 0 {
		j.Script = j.Script.Logged()
		j.Keys, j.Args = append(slices.Clip(j.Keys), key), append(slices.Clip(j.Args), strconv.Itoa(n))
	}
	return j
}

// Patiently is runUntil for as long as the connection allows, even after its caller has gone.
func (c *Servers) Patiently(n *Node, ahead []Job, s *lua.Script, keys, args []string) rueidis.RedisResult {
	return c.runUntil(c.Patient, n, ahead, s, keys, args)
}

// RunAll runs scripts whose keys are at one node in one round trip, after the commands that were sent before.
func (c *Servers) RunAll(n *Node, jobs []Job) []rueidis.RedisResult {
	return c.pipe(c.commands, n, jobs)
}

// RunBeside is RunAll for renewals, on their own connection.
func (c *Servers) RunBeside(n *Node, jobs []Job) []rueidis.RedisResult {
	return c.pipe(c.Side, n, jobs)
}

// pipe runs scripts in one round trip, and again in full those that the server did not know.
func (c *Servers) pipe(rc rueidis.Client, n *Node, jobs []Job) []rueidis.RedisResult {
	way, limit := &n.renewed, c.renewalTime
	if rc == c.commands {
		way, limit = &n.said, c.answerTime
	}
	way.begin(c, limit)
	defer way.flying.Add(-1)
	if err := n.introduced(c.Patient, rc); err != nil {
		return slices.Repeat([]rueidis.RedisResult{rueidis.NewErrorResult(err)}, len(jobs))
	}
	for i := 0; c.guard != nil && i < len(jobs); i++ {
		if err := c.guarded(c.Patient, jobs[i].Script, jobs[i].Keys[0]); err != nil {
			return slices.Repeat([]rueidis.RedisResult{rueidis.NewErrorResult(err)}, len(jobs))
		}
	}
	if !c.flights.begin() {
		return slices.Repeat([]rueidis.RedisResult{rueidis.NewErrorResult(errUnbegun)}, len(jobs))
	}
	defer c.flights.end()
	cmds := make([]rueidis.Completed, len(jobs))
	for i, j := range jobs {
		cmds[i] = c.evalsha(rc.B(), j.Script, j.Keys, j.Args)
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
		if results[0].NonRedisError() == nil {
			way.answers.Add(1)
		}
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

// Repeat runs a script again and again until it is answered: it must do the same when it runs twice. args gets each
// attempt. late is told how many came too late, and then the next gets more time. It gives up when ctx ends, with an
// error that wraps [lease.ErrUnavailable], and [lease.ErrOutcomeUnknown] if the script may have run. passes says after
// which errors it is sent again: [Transient] or [Mendable].
func (c *Servers) Repeat(
	ctx context.Context, s *lua.Script, keys []string, passes func(error) bool,
	args func(Attempt) []string, late func(*Node, Attempt, wire.Head),
) (Attempt, wire.Tuple, error) {
	budget, unsure, id, last := AttemptTime, false, c.ID(), error(nil)
	for tries := 0; ; tries++ {
		if c.ID() != id { // The keys, or the arguments, are of one that a copy has.
			return Attempt{}, wire.Tuple{}, Unsure(unsure, lease.ErrCopied)
		}
		n := c.NodeOf(keys[0])
		a := n.Attempt(budget)
		r, err := s.Tuple(c.RunFor(ctx, s, keys, args(a)...))
		switch {
		case err == nil && r.Status == wire.Late:
			late(n, a, r.Head())
			budget = min(2*budget, LongestAttempt)
			continue
		case err == nil:
			return a, r, nil
		case Answered(err) && !passes(err):
			return a, r, Unsure(unsure, Advise(err))
		case !Answered(err) && !Unsent(err):
			unsure = !s.Reads && s != lua.Overtake // What overtakes others changes nothing that its caller wants.
		}
		if !passes(err) && ctx.Err() == nil {
			return a, r, Unsure(unsure, Advise(err))
		}
		last = calls.Last(ctx, err, last)
		if ended := c.Rest(ctx, calls.Backoff(tries)); ended != nil {
			return a, r, Unsure(unsure, GaveUp(ctx, ended, last))
		}
	}
}
