package waitqueue

import (
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/retry"
	"github.com/headwaiter/headwaiter/internal/timers"
	"github.com/headwaiter/headwaiter/internal/trust"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/observe"
)

// A site is all that a client knows of one name: the tickets that wait or hold, whether it hears, and when
// to look. It is made by the first call and dropped when nothing has used it for a while.
type site struct {
	client  *client
	proto   *lua.Protocol
	name    string
	keys    lua.Keys
	channel string
	slot    uint16       // in a cluster
	history atomic.Int32 // how many hand-offs are kept; 0: none
	waited  atomic.Bool  // the last ask was told to wait

	mu      sync.Mutex // guards the fields below, the tickets and their holds
	tickets map[string]*ticket
	owners  map[string]*hold  // by the owner that a context named
	used    time.Time         // last use, as far as calls and ticks told it
	leaving map[*end]struct{} // ends under way of what has no ticket: their answers may tell of grants to those that have one
	unlocks []*unlock         // ends of holds that nobody waits for: later asks of this client follow them (R1)
	lowers  []chan struct{}   // of those by which only reading was left, each closed when the server has been told

	ears    conn.Ears     // where the subscription is asked for
	trust   trust.Trust   // and what is known of it
	answers trust.Answers // to asks and looks

	// Of an event.
	news       int64 // the newest generation that a message told of
	generation int64 // and the newest that anything told of

	// When to look. All have one timer.
	tick     timers.Timer
	id       string    // the identity of the client when the site was made
	copied   bool      // the client has another one: nothing is sent for the tickets of this any more
	retired  bool      // dropped from the client: its timer is to be set no more
	check    time.Time // at the queue, for the tickets that wait
	lostBy   time.Time // the same, if one waits by then: an answer was lost that may have told of a grant to it
	claimBy  time.Time // at whether the grant handed on was claimed
	handed   uint64    // its token
	missing  string    // a ticket whose grant a check found and no message brought yet
	missBy   time.Time // when that is a miss
	checking bool      // a check is under way
	again    bool      // and another is wanted after it
	all      bool      // the next check names all tickets, not just the oldest
	failures int       // checks that failed, in a row

	looked chan struct{} // closed when no check is under way any more; nil if nobody waits for that
}

func newSite(c *client, q *binding) *site {
	s := &site{
		client: c, id: c.id(), proto: q.proto, name: q.name, keys: q.keys, channel: q.keys.Channel(c.id()), slot: c.servers.SlotOf(q.keys.Lock),
		tickets: make(map[string]*ticket), used: time.Now(), trust: trust.Trust{Polls: c.opts.WithoutSubscribe, Born: c.born},
	}
	s.tick.Target = timers.Func(s.ticked)
	c.servers.Timers.Before(&s.tick, s.used.Add(c.opts.Linger))
	return s
}

// node returns the server that the site's requests go to.
func (s *site) node() *conn.Node { return s.client.servers.NodeAt(s.slot) }

// hearsLocked reports whether tickets may queue (R2).
func (s *site) hearsLocked() bool { return s.trust.Hears() }

// deliverLocked brings a grant to its ticket, or gives it back (R8). from is a local time not after the server's time g.At, from
// which the hold lasts until g.Until, and slept what lease.Slept said when that was reckoned.
func (s *site) deliverLocked(g lua.Grant, from time.Time, slept time.Duration, note string) {
	if s.copied {
		return // It is of a ticket that the other copy has too.
	}
	t := s.tickets[g.Ticket]
	if t == nil {
		s.client.stats.GivenBack.Add(1)
		s.tell(observe.Observation{Moment: observe.GivenBack, Ticket: g.Ticket})
		s.giveBackLocked(g.Ticket, g.Token)
		return
	}
	// Nobody can make a hold longer than it was asked for, not even a forged message.
	lasts := min(time.Duration(g.Until-g.At)*time.Microsecond, t.lease())
	t.offerLocked(grant{token: g.Token, from: from, lasts: lasts, slept: slept, note: note})
}

// heardOfLocked notes that the news of a grant came as it should.
func (s *site) heardOfLocked(ticket string) {
	if t := s.tickets[ticket]; t != nil {
		t.told = true
	}
	if s.missing == ticket {
		s.missing, s.missBy = "", time.Time{}
	}
}

// landedLocked notes that an ask or check that named t by that text is over.
func (s *site) landedLocked(t *ticket, text string, a conn.Attempt, err error) {
	if err != nil && !conn.Answered(err) && !conn.Unsent(err) {
		if t.unanswered.IsZero() {
			t.unanswered = a.Sent
		}
		t.ghost = timers.Later(t.ghost, a.Expires)
		if text != t.text {
			s.endGhostLocked(text, a.Expires, t.inherits)
		}
		// The lost reply may have told of a grant to another ticket of this client. Whether one waits is seen then, for all that
		// are lost meanwhile. It is no sooner than the look that repeats one that failed.
		s.lostBy = timers.First(s.lostBy, time.Now().Add(retry.Backoff(1+s.failures)))
		s.armLocked(s.lostBy)
	}
	s.settledLocked(t, err == nil)
}

// settledLocked notes that one thing less is in flight for t, and whether it was answered.
func (s *site) settledLocked(t *ticket, answered bool) {
	s.answers.Over(answered)
	t.answered = t.answered || answered
	t.inflight--
	if t.state == ending && t.inflight == 0 && t.endAgain {
		t.repeatLocked()
	}
}

// absorb takes in the clock, the flags and the grants of a reply: of an ask or an end those to other tickets of the client, of
// a check those to its own too. The latter may be old ones, whose message may be lost or still on its way.
func (s *site) absorb(a conn.Attempt, r *lua.Reply, check bool) {
	c := s.client
	c.saw(s.node(), a, s.proto, s.name, r.Head(), r.Token)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range r.Grants {
		if !check {
			s.heardOfLocked(g.Ticket)
		}
		s.deliverLocked(g, a.Sent, a.Slept, a.Note)
	}
	switch {
	case r.Has(lua.Handed) && (s.claimBy.IsZero() || !s.proto.Several()):
		// A client that hands on looks once whether the grant was claimed.
		left := time.Duration(r.Until-r.Now) * time.Microsecond
		if r.Status == lua.Granted {
			left = min(left, c.opts.GrantLease) // Until is the end of the caller's own lease.
		}
		s.handed = r.Token
		s.claimBy = time.Now().Add(left + claimSlack)
		s.armLocked(s.claimBy)
	case s.proto.Several():
		// A later grant says nothing of the earlier ones.
	case r.Token > s.handed:
		s.claimBy, s.handed = time.Time{}, 0
	}
	if r.Has(lua.Suspected) {
		s.suspect()
		s.doubtLocked()
	}
	if r.Has(lua.More) {
		s.checkAtLocked(time.Now())
	}
}

// saw takes in what a reply of any kind says of a name beside the fate of tickets: the server's clock, the token, and what
// the statistics and the observer want of it.
func (c *client) saw(n *conn.Node, a conn.Attempt, p *lua.Protocol, name string, r lua.Head, token uint64) {
	c.floor.Raise(token)
	n.Clock.Observe(a, r.Now, r.Status == lua.Late)
	if r.Status == lua.Late {
		c.stats.Late.Add(1)
	}
	if r.Flags == 0 && r.Skipped == 0 && r.Expired == 0 {
		return
	}
	c.stats.Served(r.Skipped, r.Expired, r.Has(lua.Handed), r.Has(lua.Stepped), r.Has(lua.Differs))
	c.notifier.Served(p.Kind, name, r.Skipped, r.Expired, r.Has(lua.Handed), r.Has(lua.Differs))
}

// Message takes in what was heard on the wake channel. It runs on the reader of the connection.
func (s *site) Message(text string, received time.Time) {
	c := s.client
	c.stats.Messages.Add(1)
	m, err := lua.ParseMessage(text)
	if err != nil || m.Kind != lua.MessageEcho && m.Kind.Event() != s.proto.Broadcast {
		c.stats.Forged.Add(1)
		return
	}
	s.tell(observe.Observation{Moment: observe.Woken, Count: len(m.Grants)})
	s.mu.Lock()
	defer s.mu.Unlock()
	switch m.Kind {
	case lua.MessageGrant:
		for _, g := range m.Grants {
			s.heardOfLocked(g.Ticket)
			from, slept := s.node().Clock.Since(g.At, received)
			s.deliverLocked(g, from, slept, m.Note)
		}
	case lua.MessageSuspect:
		s.suspectedLocked(m.Ticket)
	case lua.MessageLook:
		s.startCheckLocked()
	case lua.MessageExcess:
		if t := s.tickets[m.Ticket]; t != nil && t.waits() {
			t.refuseLocked(excess(t, strconv.FormatInt(m.Limit, 10)))
		}
	case lua.MessageOpen, lua.MessageBroken:
		s.eventLocked(m)
	case lua.MessageWanted:
		s.wantedLocked(m.Token)
	case lua.MessageEcho:
		if s.trust.Echoed(m.Nonce) {
			s.all = true
			s.startCheckLocked()
		}
	}
}

// ticked is called by the site's timer. It does what is due and puts the rest back.
func (s *site) ticked(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	due := func(at time.Time) bool { return !at.IsZero() && !now.Before(at) }
	if due(s.missBy) {
		s.client.stats.Missed.Add(1)
		s.tell(observe.Observation{Moment: observe.Missed, Ticket: s.missing})
		s.missing, s.missBy = "", time.Time{}
		s.doubtLocked()
	}
	if due(s.trust.EchoBy) {
		s.trust.EchoLate()
		s.ears.Reconnect()
	}
	if due(s.claimBy) {
		s.claimBy = time.Time{}
		s.startCheckLocked()
	}
	if due(s.lostBy) {
		s.lostBy = time.Time{}
		s.checkInLocked(0)
	}
	if due(s.check) {
		usual := s.proto.Checks != nil && s.trust.AtTick(s.check)
		s.check = time.Time{}
		switch {
		case usual:
			s.client.looks.Add(s)
		case !s.proto.Broadcast || s.anyWaits(): // Of events a look keeps what nobody waits for any more.
			s.startCheckLocked()
		}
	}
	if s.busyLocked() {
		s.used = now
	} else if !now.Before(s.used.Add(s.client.opts.Linger)) {
		s.client.retireLocked(s)
		return
	}
	s.armLocked(timers.First(s.used.Add(s.client.opts.Linger), s.missBy, s.trust.EchoBy, s.claimBy, s.check, s.lostBy))
}

// busyLocked reports whether something of the site is under way.
func (s *site) busyLocked() bool {
	return len(s.tickets) > 0 || s.checking || !s.claimBy.IsZero() || len(s.leaving) > 0
}

// armLocked sets the site's timer.
func (s *site) armLocked(at time.Time) {
	if !s.retired {
		s.client.servers.Timers.Before(&s.tick, at)
	}
}

// retireLocked ends the subscription of a site that nothing uses, and drops the site. The client's lock is not held:
// a call that comes in between finds the site again and keeps it.
func (c *client) retireLocked(s *site) {
	c.servers.Spawn(func() {
		c.mu.Lock()
		s.mu.Lock()
		now := time.Now()
		if s.busyLocked() {
			s.used = now
		}
		// A call may have found the site since, and have no ticket yet.
		until := s.used.Add(c.opts.Linger)
		over := !now.Before(until)
		leave, ears := over && s.trust.Wanted, s.ears
		if over {
			if c.sites[s.keys.Site] == s {
				delete(c.sites, s.keys.Site)
				c.servers.Used(len(c.sites) > 0)
			}
			s.retired, s.trust = true, trust.Trust{Polls: s.trust.Polls, Born: s.trust.Born}
		} else {
			s.armLocked(until)
		}
		s.mu.Unlock()
		c.mu.Unlock()
		if leave {
			ears.Drop(s)
		}
	})
}
