package waitqueue

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/core"
	"github.com/headwaiter/headwaiter/internal/keeper"
	"github.com/headwaiter/headwaiter/internal/notify"
	"github.com/headwaiter/headwaiter/internal/timers"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/observe"
)

// An entry is what a client has of one name, whatever it does with it: where its requests go, its subscription and its
// timer. A pure core decides: [core.Lock] for a [lockEntry], [event.Event] for a [watch]. Cores take in inputs under mu, one
// at a time; the entry performs the effects in the order in which they were decided.
type entry struct {
	client  *client
	proto   *lua.Protocol
	name    string
	keys    lua.Keys
	channel string
	slot    uint16       // in a cluster
	id      string       // the identity of the client when the entry was made
	history atomic.Int32 // how many hand-offs are kept; 0: none
	use     use          // the entry or the watch that this is the entry of
	core    decider      // of that; guarded by mu

	mu sync.Mutex // held during an input

	// act is held while effects are performed. It is taken before mu is released, so effects keep the order of the
	// inputs. It guards what effects change.
	act      sync.Mutex
	listener conn.Listener // where the subscription was asked for
	tick     timers.Timer
	looked   chan struct{} // closed when no check is under way any more; nil if nobody waits for that
}

// A decider is what both cores take in.
type decider interface {
	OnTimer(*core.Input)
	OnSubscribed(x *core.Input, channels int, nonce string)
	OnUnsubscribed(*core.Input)
	OnSubscribeRefused(error)
	Listens() bool
	Retire(*core.Input) (over, subscribed bool)
	Abandon(*core.Input, error) (subscribed bool)
	Silent(time.Time) bool
}

// A use of a name is an entry or a watch.
type use interface {
	conn.Subscriber
	at() *entry
	// do performs an effect that depends on the use. act is held.
	do(x *turn, f *core.Effect)
	// runChecks polls until there is nothing more to be seen at once.
	runChecks()
	// answered takes in the answer to a release, or its lack.
	answered(d *sender, sent conn.Attempt, res rueidis.RedisResult) answer
	// forced takes in that the hold of a ticket was released by force.
	forced(ticket string)
	// close ends the waits and the holds of the name, for a client that closes. It adds the releases that a server could
	// still need then, before any of them is sent.
	close(o outstanding, now time.Time) outstanding
}

func (s *entry) at() *entry { return s }

// init fills in a new entry.
func (s *entry) init(c *client, p *lua.Protocol, name string, keys lua.Keys, u use) {
	s.client, s.id, s.proto, s.name, s.keys = c, c.id(), p, name, keys
	s.channel, s.slot = keys.Channel(s.id), c.servers.SlotOf(keys.Lock)
	s.use, s.tick.Target = u, timers.Func(s.ticked)
}

// unused is what the client knows of a name before its first use.
func (c *client) unused() core.Name {
	return core.Name{Linger: c.opts.Linger, Subscription: core.Subscription{Polls: c.opts.WithoutSubscribe, Born: c.born}}
}

// node returns the server that the entry's requests go to.
func (s *entry) node() *conn.Node { return s.client.servers.NodeAt(s.slot) }

// A turn is one input, with room for its effects.
type turn struct {
	core.Input
	slept time.Duration // for how long the machine had been suspended by then
	room  [6]core.Effect
	then  []func() // what to do when all is performed
}

var turns = sync.Pool{New: func() any { return &turn{} }}

// begin begins an input. The caller gives it to the core, and ends it with end.
func (s *entry) begin() *turn {
	x := turns.Get().(*turn)
	s.mu.Lock()
	x.Now, x.slept = keeper.Clocks()
	x.Chance, x.Effects = rand.Uint64(), x.room[:0]
	return x
}

// end performs the effects of an input, and ends the turn.
func (s *entry) end(x *turn) {
	if len(x.Effects) == 0 {
		s.mu.Unlock()
		x.over()
		return
	}
	s.act.Lock()
	s.endActing(x)
}

// endActing is end for a caller that holds act.
func (s *entry) endActing(x *turn) {
	s.mu.Unlock()
	for i := range x.Effects {
		if f := &x.Effects[i]; !s.perform(f) {
			s.use.do(x, f)
		}
	}
	s.act.Unlock()
	for _, f := range x.then {
		f()
	}
	x.over()
}

// over gives back a turn whose effects were performed.
func (x *turn) over() {
	clear(x.Effects)
	x.Effects, x.then = nil, nil
	turns.Put(x)
}

// perform performs an effect that does not depend on what the name is used for, and reports whether it was one. act is
// held.
func (s *entry) perform(e *core.Effect) bool {
	c := s.client
	switch e.Do {
	case core.Wake:
		callerOf(e.Call).wakeUp()
	case core.Acknowledge:
		callerOf(e.Call).acknowledge()
	case core.Timer:
		c.servers.Timers.Before(&s.tick, e.At)
	case core.Poll:
		c.servers.Spawn(s.use.runChecks)
	case core.Subscribe:
		s.listener = c.servers.Listener(s.slot)
		s.listener.Want(s.use)
	case core.Reconnect:
		s.listener.Reconnect()
		if e.Flag {
			c.servers.DoubtSlots()
		}
	case core.Ping:
		text := e.Text
		c.servers.Spawn(func() { c.servers.Publish(s.channel, wire.EchoMessage(text)) }) // An error shows as a ping that does not come back.
	case core.Send:
		s.sending(e.Release).push(e.Flag)
	case core.SendLater:
		s.sending(e.Release).later(e.At)
	case core.Stuck:
		s.sending(e.Release).stick()
	case core.Retire:
		s.retire()
	case core.Owe:
		if e.Flag {
			c.ends.count(-1)
		} else {
			c.ends.count(1)
		}
	case core.RaiseToken:
		c.minToken.Raise(e.Token)
	case core.Queued:
		callerOf(e.Call).teller.Queued(e.Place, e.Count)
	case core.Rejoined:
		c.stats.Rejoined.Add(1)
		s.tell(observe.Observation{Event: observe.Rejoined, Ticket: e.Text})
	case core.Missed:
		c.stats.Missed.Add(1)
		s.tell(observe.Observation{Event: observe.Missed, Ticket: e.Text})
	case core.Suspected:
		c.stats.Suspected.Add(1)
		s.tell(observe.Observation{Event: observe.Suspected})
	case core.GivenBack:
		c.stats.GivenBack.Add(1)
		s.tell(observe.Observation{Event: observe.GivenBack, Ticket: e.Text})
	case core.Forged:
		c.stats.Forged.Add(1)
	case core.Impossible:
		c.stats.Refused.Add(1)
	default:
		return false
	}
	return true
}

// tell reports something about the name to the client's observer. Without an observer this is a comparison with nil.
func (s *entry) tell(o observe.Observation) {
	if w := s.client.notifier; w != nil {
		o.Kind, o.Name = s.proto.Kind, s.name
		w.Tell(context.Background(), o)
	}
}

// Channel is the wake channel of the client at the entry.
func (s *entry) Channel() string { return s.channel }

// Key is a key in the slot of the entry.
func (s *entry) Key() string { return s.keys.Lock }

// listensAt reports whether a listener is the one that was asked for the subscription.
//
// A listener calls without its lock, so its report may be stale: another listener, or a newer connection, may have
// reported since.
func (s *entry) listensAt(from conn.Listener) bool {
	s.act.Lock()
	defer s.act.Unlock()
	return s.listener == from
}

// drop ends the subscription.
func (s *entry) drop() {
	s.act.Lock()
	from := s.listener
	s.act.Unlock()
	from.Drop(s.use)
}

// Confirmed is called by a listener when the channel's subscription is confirmed. n is the number of channels of the connection.
func (s *entry) Confirmed(from conn.Listener, n int) {
	x := s.begin()
	if s.core.Listens() && s.listensAt(from) && from.Subscribed(s.use) {
		s.core.OnSubscribed(&x.Input, n, s.client.nonce())
	}
	s.end(x)
}

// Unheard is called by a listener when the subscription is gone.
func (s *entry) Unheard(from conn.Listener) {
	x := s.begin()
	if s.listensAt(from) && !from.Subscribed(s.use) {
		s.core.OnUnsubscribed(&x.Input)
	}
	s.end(x)
}

// Rehome is called by a listener whose node no longer has the entry's slot.
func (s *entry) Rehome(from conn.Listener) {
	x := s.begin()
	if s.core.Listens() && s.listensAt(from) {
		x.Add(core.Effect{Do: core.Subscribe})
		s.core.OnUnsubscribed(&x.Input)
		from.Drop(s.use)
	}
	s.end(x)
}

// Refused is called by the listener when the server refuses the subscription for good.
func (s *entry) Refused(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.core.OnSubscribeRefused(conn.Unusable(err))
}

// ticked is called by the timer.
func (s *entry) ticked(time.Time) {
	x := s.begin()
	s.core.OnTimer(&x.Input)
	s.end(x)
}

// abandon ends all that the client has of the name, and sends nothing for it.
func (s *entry) abandon(why error) {
	x := s.begin()
	subscribed := s.core.Abandon(&x.Input, why)
	s.end(x)
	if subscribed {
		s.drop()
	}
}

// silent reports whether the server does not answer the requests for the name.
func (s *entry) silent() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.Silent(time.Now())
}

// heard reads a message, and reports whether it concerns the entry.
func (s *entry) heard(text string) (m wire.Message, ok bool) {
	c := s.client
	c.stats.Messages.Add(1)
	m, err := wire.ParseMessage(text)
	if err != nil || m.Kind != wire.MessageEcho && m.Kind.Event() != s.proto.Broadcast {
		c.stats.Forged.Add(1)
		return m, false
	}
	s.tell(observe.Observation{Event: observe.Woken, Count: len(m.Grants)})
	return m, true
}

// lookOver wakes the callers that wait for the end of a check.
func (s *entry) lookOver() {
	s.act.Lock()
	defer s.act.Unlock()
	if s.looked != nil {
		close(s.looked)
		s.looked = nil
	}
}

// retire drops a name that nothing uses from its client, if the core says so, and ends its subscription. It asks with the
// lock of the client: a call that comes in between finds the name again and keeps it.
func (s *entry) retire() {
	c := s.client
	c.servers.Spawn(func() {
		c.mu.Lock()
		x := s.begin()
		over, subscribed := s.core.Retire(&x.Input)
		s.end(x)
		if over && c.entries[s.keys.Entry] != nil && c.entries[s.keys.Entry].at() == s {
			delete(c.entries, s.keys.Entry)
			s.leave()
			c.servers.Used(len(c.entries) > 0)
		}
		c.mu.Unlock()
		if subscribed {
			s.drop()
		}
	})
}

// job is a request as it is sent, with the key of the history where the name keeps one.
func (s *entry) job(script *lua.Script, keys, args []string) conn.Job {
	return conn.Job{Script: script, Keys: keys, Args: args}.Logged(int(s.history.Load()), s.keys.History)
}

// attempt returns the times of a request that was sent, for the core.
func attempt(a *conn.Attempt) core.Attempt {
	return core.Attempt{Sent: a.Sent, Slept: a.Slept, Expires: a.Expires}
}

// failure classifies an error for the core. No error is the zero Failure.
func failure(err error) (f core.Failure) {
	if err != nil {
		f = core.Failure{
			Err: err, Advice: conn.Advise(err), Answered: conn.Answered(err), Unsent: conn.Unsent(err), Passes: conn.Transient(err), Mendable: conn.Mendable(err),
		}
	}
	return f
}

// observeHeader takes in what a reply of any kind says of a name, except the fate of tickets: the server's clock, the token, and
// what the statistics and the observer want of it.
func (c *client) observeHeader(n *conn.Node, a conn.Attempt, p *lua.Protocol, name string, r wire.Head, token uint64) {
	c.minToken.Raise(token)
	n.Clock.Observe(a, r.Now, r.Status == wire.Late)
	if r.Status == wire.Late {
		c.stats.Late.Add(1)
	}
	if r.Flags == 0 && r.Skipped == 0 && r.Expired == 0 {
		return
	}
	c.stats.Served(r.Skipped, r.Expired, r.Has(wire.Handed), r.Has(wire.Stepped), r.Has(wire.Differs))
	c.notifier.Served(p.Kind, name, r.Skipped, r.Expired, r.Has(wire.Handed), r.Has(wire.Differs))
}

// A caller is the shell's part of a call that waits, for its turn or for an event: what the core does not know. The act
// of its entry guards what changes.
type caller struct {
	teller *notify.Teller

	wake         chan struct{} // something has changed; nil if nobody has waited for that yet
	over         chan struct{} // closed when its release was acknowledged or given up; nil likewise
	acknowledged bool
	joined       bool // it entered the hold of another ticket; only for its own goroutine
}

// call makes a ticket, or a party, give its caller.
func (c *caller) call() *caller { return c }

func callerOf(c *core.Call) *caller { return c.Owner.(interface{ call() *caller }).call() }

// waking returns the channel to wait at for a change. A call that does not wait has none. The caller holds mu, so what changes
// after that is told.
func (s *entry) waking(c *caller) <-chan struct{} {
	s.act.Lock()
	defer s.act.Unlock()
	if c.wake == nil {
		c.wake = make(chan struct{}, 1)
	}
	return c.wake
}

// wakeUp wakes the call, which looks at its state.
func (c *caller) wakeUp() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// acknowledge wakes the callers that wait for the reply to the release of the call.
func (c *caller) acknowledge() {
	c.acknowledged = true
	if c.over != nil {
		close(c.over)
	}
}

// ended returns a channel that is closed when the release of the call was answered or given up.
func (s *entry) ended(c *caller) <-chan struct{} {
	s.act.Lock()
	defer s.act.Unlock()
	if c.over == nil {
		c.over = make(chan struct{})
		if c.acknowledged {
			close(c.over)
		}
	}
	return c.over
}

// newCaller fills in the shell's part of a call for a name.
func (q *binding) newCaller(c *caller, room *notify.Teller, call *core.Call) {
	notifier := q.client.notifier
	if q.terms.Untold {
		notifier = nil
	}
	c.teller = notifier.Teller(room, q.proto.Kind, q.name, &call.Text)
	call.Place, call.Budget = -1, conn.AttemptTime
	call.Lease, _ = q.terms.first()
}
