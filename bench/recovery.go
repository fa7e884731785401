package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// The kinds of scenes.
const (
	DeadWaiters = "dead waiters" // W5
	DeadHolder  = "dead holder"  // W6
	Restarted   = "restarted holder"
	Buried      = "buried holder"
	GivesUp     = "gives up"
	Deafened    = "deafened"
)

// A Scene is something that goes wrong: how long does the next one wait?
type Scene struct {
	Kind string `json:"scene"`
	// Waiters is how many are killed; of W5.
	Waiters int `json:"waiters,omitempty"`
	// Names is how many the dead held, each with a waiter: where a client with an identity died.
	Names int `json:"names,omitempty"`
	// Bound is how long is waited for the end.
	Bound time.Duration `json:"bound_ns"`
	// Times is how often it is played; by a contender on another server than Redis once, where that waits for sessions to
	// run out, and by all once when the time of the run is over. A Recovery has the number of its tries.
	Times int `json:"times"`
	// Link is between clients and servers, as in Work.
	Link string `json:"link,omitempty"`
	// Only are the contenders that take part; all if empty.
	Only []string `json:"-"`
}

// String tells scenes with different numbers of waiters apart: 100 dead waiters.
func (s Scene) String() string {
	if s.Names > 0 {
		return fmt.Sprintf("%s of %d%s", s.Kind, s.Names, at(s.Link))
	}
	if s.Waiters > 0 {
		return fmt.Sprintf("%d %s%s", s.Waiters, s.Kind, at(s.Link))
	}
	return s.Kind + at(s.Link)
}

// Scenes returns the scenes of the standard set, with those numbers of dead waiters. More than a few dead are for the
// contender of the given name only.
func Scenes(own string, dead []int) (all []Scene) {
	for _, n := range dead {
		s := Scene{Kind: DeadWaiters, Waiters: n, Bound: 15 * time.Second, Times: 3}
		if n > fewDead {
			s.Only, s.Times = []string{own}, 1
		}
		all = append(all, s)
	}
	for _, names := range []int{1, manyNames} {
		for _, kind := range []string{Restarted, Buried} {
			all = append(all, Scene{Kind: kind, Names: names, Bound: 5 * time.Second, Times: 5, Only: []string{own}})
		}
	}
	return append(all,
		Scene{Kind: GivesUp, Bound: 5 * time.Second, Times: 5},
		Scene{Kind: Deafened, Bound: 5 * time.Second, Times: 3},
		Scene{Kind: DeadHolder, Bound: 15 * time.Second, Times: 3},
	)
}

// OfHolders tells whether the scene is about a holder that dies.
func (s Scene) OfHolders() bool {
	return s.Kind == DeadHolder || s.Kind == Restarted || s.Kind == Buried
}

// manyNames is how many a client with an identity may hold at its death.
const manyNames = 1000

// fewDead is how many dead waiters every contender is tried with.
const fewDead = 2

// A Recovery is what became of one scene with one contender.
type Recovery struct {
	Contender string `json:"contender"`
	Scene
	// Worst is the longest of the times in µs: from the release to the next hold, and of W6 from the end of the lease of the
	// dead holder; where that had an identity, from the next Dial with it, or from its death to the last of its names.
	Worst float64 `json:"worst_us"`
	// Within is false where somebody did not hold within the bound: then Worst is the bound.
	Within bool `json:"within"`
	// Lease is that of the dead holder, which the next one waits for as well.
	Lease time.Duration `json:"lease_ns,omitempty"`
	// Script is how long the longest script took meanwhile, in µs, as the server's log of slow commands has it. 0 where that
	// has none.
	Script float64 `json:"script_us,omitempty"`
}

const (
	// mostClients is how many waiters have a client each. More of them are of a tenth as many clients, in turn.
	mostClients = 1000
	// formTime is how long a thousand of them may take to have their places.
	formTime = time.Second
)

// scene plays one scene with all contenders.
func (r *runner) scene(ctx context.Context, s Scene) error {
	var cast []Contender
	for _, c := range r.Contenders {
		if c.Missing == nil && c.Command != nil && len(c.Only) == 0 && c.Link == s.Link && (len(s.Only) == 0 || slices.Contains(s.Only, c.Name)) {
			cast = append(cast, c)
		}
	}
	found := make([]Recovery, len(cast))
	errs := make([]error, len(cast))
	play := func(i int) {
		found[i], errs[i] = r.play(ctx, cast[i], s, fmt.Sprintf("%s:%s:%s:%d", r.prefix, cast[i].Name, strings.ReplaceAll(s.Kind+at(s.Link), " ", "-"), s.Waiters))
	}
	// Where all that happens is that leases and sessions run out, all wait for theirs at once.
	var waits []int
	for i, c := range cast {
		if s.Kind == DeadHolder || s.sessions(c) {
			waits = append(waits, i)
		} else {
			play(i)
		}
	}
	_ = inParallel(ctx, len(waits), func(_ context.Context, i int) error { play(waits[i]); return nil })
	for i, c := range cast {
		switch {
		case errors.Is(errs[i], errNotFor):
		case errs[i] != nil && ctx.Err() != nil:
			return errs[i]
		case errs[i] != nil:
			if err := r.missing(c, s.String(), errs[i]); err != nil {
				return err
			}
		default:
			r.report.Recoveries = append(r.report.Recoveries, found[i])
			if err := r.line("recovery", found[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// sessions tells whether a contender can but wait until sessions of the dead have run out.
func (s Scene) sessions(c Contender) bool {
	return !c.OnRedis && (s.Kind == DeadHolder || s.Kind == DeadWaiters)
}

// errNotFor: the scene means nothing to the contender.
var errNotFor = errors.New("not for this contender")

// play plays a scene as often as it wants. It ends with a bound that was exceeded, or when the time of the run is over.
func (r *runner) play(ctx context.Context, c Contender, s Scene, name string) (Recovery, error) {
	if s.sessions(c) {
		s.Times = 1
	}
	found := Recovery{Contender: c.Name, Scene: s, Within: true}
	if s.Kind == DeadHolder {
		found.Lease = c.Lease
	}
	var took []float64
	for i := 0; i < s.Times && found.Within && (i == 0 || !r.past(1)); i++ {
		before, err := r.observer.slowest(ctx)
		if err != nil {
			return found, err
		}
		t, err := r.once(ctx, c, s, fmt.Sprintf("%s:%d", name, i), i)
		switch {
		case errors.Is(err, errBound):
			t, found.Within = s.Bound, false
		case err != nil:
			return found, err
		}
		longest, err := r.observer.longest(ctx, before)
		if err != nil {
			return found, err
		}
		found.Script = max(found.Script, longest)
		took = append(took, micros(int64(t)))
		r.log("%s %s: %v, within %v: %v", c.Name, s.Kind, t.Round(10*time.Microsecond), s.Bound, found.Within)
	}
	found.Times = len(took)
	found.Worst = slices.Max(took)
	return found, nil
}

func (r *runner) once(ctx context.Context, c Contender, s Scene, name string, i int) (time.Duration, error) {
	bound := s.Bound
	if s.Kind == DeadHolder {
		bound += c.Lease
	}
	bound += time.Duration(s.Waiters/1000) * formTime
	ctx, cancel := context.WithTimeoutCause(ctx, bound+agentStart, errUnready)
	defer cancel()
	stage := &stage{contender: c, name: name, bound: bound}
	defer stage.close()
	switch s.Kind {
	case DeadWaiters:
		return stage.deadWaiters(ctx, r.observer, s.Waiters)
	case DeadHolder:
		return stage.deadHolder(ctx)
	case Restarted, Buried:
		return stage.deadWithIdentity(ctx, s)
	case GivesUp:
		return stage.givesUp(ctx, i, s.Times)
	case Deafened:
		return stage.deafened(ctx, r.observer.client)
	}
	return 0, fmt.Errorf("bench: scene %q: there is none", s.Kind)
}

// deadWaiters: A holds, n clients wait in a process that is killed, D asks, A releases. How long until D holds?
func (s *stage) deadWaiters(ctx context.Context, o *observer, n int) (time.Duration, error) {
	a, hold, _, err := s.holder(ctx)
	if err != nil {
		return 0, err
	}
	doomed, err := s.agent(ctx)
	if err != nil {
		return 0, err
	}
	if err := s.queueUp(ctx, &gathering{observer: o, stage: s, crowd: doomed}, n); err != nil {
		return 0, err
	}
	doomed.Kill()
	d, _, err := s.lock(ctx, a, 1, 0)
	if err != nil {
		return 0, err
	}
	if err := pass(ctx, settle); err != nil {
		return 0, err
	}
	from, err := hold.release(ctx, stamp())
	if err != nil {
		return 0, err
	}
	at, err := s.recovered(ctx, d)
	return time.Duration(at - from), err
}

// queueUp lets n calls wait, and returns when all are in the queue: by what Redis says where it can be asked, else after
// a time in which they should be.
func (s *stage) queueUp(ctx context.Context, g *gathering, n int) error {
	known := s.contender.Queue != nil && g.observer != nil
	if n > mostClients && known {
		g.clients = mostClients / 10
		return g.grow(ctx, n, n)
	}
	for i := range n {
		if _, _, err := s.lock(ctx, g.crowd, i, 0); err != nil {
			return err
		}
	}
	if !known {
		return pass(ctx, settle+time.Duration(n)*2*time.Millisecond)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.bound, errUnready)
	defer cancel()
	return g.until(ctx, func(waiting int) bool { return waiting >= n })
}

// deadHolder: A holds and is killed at once, B waits. How long from the end of A's lease until B holds?
func (s *stage) deadHolder(ctx context.Context) (time.Duration, error) {
	other, err := s.agent(ctx)
	if err != nil {
		return 0, err
	}
	a, _, from, err := s.holder(ctx)
	if err != nil {
		return 0, err
	}
	b, _, err := s.lock(ctx, other, 0, 0)
	if err != nil {
		return 0, err
	}
	if err := pass(ctx, settle); err != nil {
		return 0, err
	}
	if s.contender.Lease == 0 {
		from = stamp()
	}
	a.Kill()
	at, err := s.recovered(ctx, b)
	return max(0, time.Duration(at-from)-s.contender.Lease), err
}

// deadWithIdentity: A has an identity and holds, B waits, A is killed. Then another process with its identity makes a client, 100 ms
// later; or one that has waited for its death buries it. How long until B holds all?
func (s *stage) deadWithIdentity(ctx context.Context, scene Scene) (time.Duration, error) {
	identity := s.name
	other, err := s.agent(ctx)
	if err != nil {
		return 0, err
	}
	a, err := s.agentOf(ctx, identity)
	if err != nil {
		return 0, err
	}
	var waits []calling
	for i := range scene.Names {
		name := fmt.Sprintf("%s:%d", s.name, i)
		c, _, err := s.lockNamed(ctx, a, 0, 0, name)
		if err != nil {
			return 0, err
		}
		if _, err := s.held(ctx, c); err != nil {
			return 0, err
		}
		b, _, err := s.lockNamed(ctx, other, 0, 0, name)
		if err != nil {
			return 0, err
		}
		waits = append(waits, b)
	}
	if err := pass(ctx, settle); err != nil {
		return 0, err
	}
	var next *Agent
	if scene.Kind == Restarted {
		next, err = s.agentOf(ctx, identity) // It has no client yet.
	} else if next, err = s.agent(ctx); err == nil {
		err = s.warm(ctx, next, 0)
	}
	if err != nil {
		return 0, err
	}
	a.Kill()
	from := stamp()
	if scene.Kind == Buried {
		_, err = next.do(ctx, "bury %s", identity)
	} else if err = pass(ctx, restart); err == nil {
		from = stamp()
		err = s.warm(ctx, next, 0)
	}
	if err != nil {
		return 0, err
	}
	last := from
	for _, b := range waits {
		at, err := s.recovered(ctx, b)
		if err != nil {
			return 0, err
		}
		last = max(last, at)
	}
	return time.Duration(last - from), nil
}

// restart is how long whoever starts a killed process again may need.
const restart = 100 * time.Millisecond

// givesUp: A holds, B waits with a limit that ends within 2 ms of A's release, C waits after it. How long from the
// release, of A or of B if that got the lock, until C holds?
func (s *stage) givesUp(ctx context.Context, i, times int) (time.Duration, error) {
	if s.contender.Patient {
		return 0, errNotFor
	}
	const limit = 4 * settle / 5
	a, hold, _, err := s.holder(ctx)
	if err != nil {
		return 0, err
	}
	// Clients are made before the clock runs.
	for client := 1; client <= 2; client++ {
		if err := s.warm(ctx, a, client); err != nil {
			return 0, err
		}
	}
	b, asked, err := s.lock(ctx, a, 1, limit)
	if err != nil {
		return 0, err
	}
	if err := pass(ctx, limit/4); err != nil {
		return 0, err
	}
	c, _, err := s.lock(ctx, a, 2, 0)
	if err != nil {
		return 0, err
	}
	// From 2 ms before B's limit to 2 ms after it.
	offset := 4*time.Millisecond*time.Duration(i)/time.Duration(max(times-1, 1)) - 2*time.Millisecond
	from, err := hold.release(ctx, asked+int64(limit+offset))
	if err != nil {
		return 0, err
	}
	word, text, err := b.reply.next(ctx)
	if err != nil {
		return 0, err
	}
	if word == "held" {
		if _, err := numbers(text); err != nil {
			return 0, err
		}
		if from, err = b.release(ctx, stamp()); err != nil {
			return 0, err
		}
	}
	at, err := s.recovered(ctx, c)
	return max(0, time.Duration(at-from)), err
}

// deafened: A holds, B waits, and all connections on which Redis tells somebody something are killed at the moment
// of A's release. How long until B holds?
func (s *stage) deafened(ctx context.Context, redis rueidis.Client) (time.Duration, error) {
	if !s.contender.OnRedis {
		return 0, errNotFor
	}
	a, hold, _, err := s.holder(ctx)
	if err != nil {
		return 0, err
	}
	b, _, err := s.lock(ctx, a, 1, 0)
	if err != nil {
		return 0, err
	}
	if err := pass(ctx, settle); err != nil {
		return 0, err
	}
	ears, err := listening(ctx, redis)
	if err != nil {
		return 0, err
	}
	if len(ears) == 0 {
		return 0, errNotFor
	}
	for _, id := range ears {
		kill := redis.B().Arbitrary("CLIENT", "KILL", "ID", id).Build()
		if err := redis.Do(ctx, kill).Error(); err != nil {
			return 0, fmt.Errorf("bench: CLIENT KILL: %w", err)
		}
	}
	from, err := hold.release(ctx, stamp())
	if err != nil {
		return 0, err
	}
	at, err := s.recovered(ctx, b)
	return max(0, time.Duration(at-from)), err
}

// listening are the connections that subscribe, or have their reads tracked.
func listening(ctx context.Context, redis rueidis.Client) (ids []string, err error) {
	list, err := redis.Do(ctx, redis.B().Arbitrary("CLIENT", "LIST").Build()).ToString()
	if err != nil {
		return nil, fmt.Errorf("bench: CLIENT LIST: %w", err)
	}
	for line := range strings.Lines(list) {
		fields := map[string]string{}
		for _, word := range strings.Fields(line) {
			name, value, _ := strings.Cut(word, "=")
			fields[name] = value
		}
		if fields["sub"] != "0" || fields["psub"] != "0" || fields["ssub"] != "0" && fields["ssub"] != "" || strings.Contains(fields["flags"], "t") {
			ids = append(ids, fields["id"])
		}
	}
	return ids, nil
}
