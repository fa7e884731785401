package conn

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/internal/timers"
	"github.com/headwaiter/headwaiter/lua"
)

// A listener owns the one connection of a client to a node that subscribes, with a channel for each subscriber. Its
// goroutine runs while there are channels; what comes in is handed to the subscribers on the reader of the connection.
//
// In a cluster with sharded channels there is one for each node that has slots of subscribers. Where a slot
// goes, they follow: the node that it leaves says so (sunsubscribe), refuses what is subscribed to there
// (MOVED), or is gone.
//
// The connection is for subscriptions alone: on one that also carries commands, rueidis leaves its short
// path, and a subscriber that is killed takes commands with it.
//
// No subscription is ended by itself: rueidis sends a PING after UNSUBSCRIBE, and when a busy server refuses both it
// panics, on a goroutine of its own. Channels that nobody wants any more go with the connection: when none is wanted, or
// when they are many.
type listener struct {
	servers *Servers
	node    *Node

	mu       sync.Mutex // guards the fields below; nothing is called under it but spawn
	channels map[string]*subscription
	wanted   int      // how many of them are wanted
	dirty    []string // channels whose state is not what is wanted
	conn     rueidis.DedicatedClient
	spare    rueidis.DedicatedClient // is to replace it, and subscribes
	lines    int                     // connections so far: each has its number, its epoch
	epoch    int                     // of the connection: what an earlier one confirms does not count; 0 if there is none
	changes  uint64                  // of epoch; it only rises
	coming   int                     // of the one that is to replace it, or 0
	going    int                     // of the one that it has replaced and that may still bring messages, or 0
	pending  int                     // channels that the one that is coming has not confirmed
	running  bool
	holds    int          // that want to hear of a release by force (attend)
	left     time.Time    // when the last of them ended
	attended timers.Timer // whether the client's own channel is still wanted
	broken   bool         // the connection is in doubt, and to be replaced
	unsure   bool         // whether the node has the slots that it is thought to have
	woken    chan struct{}
}

// A subscription is the state of one channel (R2).
type subscription struct {
	by    Subscriber // nil of the client's own channel
	want  bool
	state subState
	next  subState // on the connection that is coming
}

type subState int

const (
	subNone      subState = iota // nothing is sent
	subSent                      // SUBSCRIBE is under way
	subConfirmed                 // it hears
)

func newListener(n *Node) *listener {
	l := &listener{
		servers: n.servers, node: n, channels: make(map[string]*subscription),
		woken: make(chan struct{}, 1),
	}
	l.attended.Target = timers.Func(l.unattended)
	return l
}

func (l *listener) Want(s Subscriber) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if sub := l.subscriptionLocked(s.Channel(), s); sub.state == subConfirmed && !l.broken {
		n := len(l.channels)
		l.servers.Spawn(func() { s.Confirmed(l, n) })
	}
}

// subscriptionLocked wants a channel, and has it subscribed to.
func (l *listener) subscriptionLocked(channel string, s Subscriber) *subscription {
	sub := l.channels[channel]
	if sub == nil {
		sub = &subscription{}
		l.channels[channel] = sub
	}
	if !sub.want {
		l.wanted++
	}
	sub.by, sub.want = s, true
	if sub.state == subConfirmed {
		return sub
	}
	l.touchLocked(channel)
	if !l.running {
		l.running = l.servers.Spawn(l.run)
	}
	return sub
}

func (l *listener) Drop(s Subscriber) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if sub := l.channels[s.Channel()]; sub != nil && sub.by == s && sub.want {
		sub.want = false
		l.wanted--
		l.touchLocked(s.Channel())
	}
}

func (l *listener) Subscribed(s Subscriber) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	sub := l.channels[s.Channel()]
	return sub != nil && sub.by == s && sub.state == subConfirmed
}

func (l *listener) Reconnect() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken = true
	l.wake()
}

// touchLocked notes that a channel's state is not what is wanted.
func (l *listener) touchLocked(channel string) {
	l.dirty = append(l.dirty, channel)
	l.wake()
}

func (l *listener) wake() {
	select {
	case l.woken <- struct{}{}:
	default:
	}
}

// hangUp closes the connections of a listener whose client ends. The client waits for its goroutine.
func (l *listener) hangUp() {
	l.mu.Lock()
	conns := []rueidis.DedicatedClient{l.conn, l.spare}
	l.mu.Unlock()
	for _, conn := range conns {
		if conn != nil {
			conn.Close() // A subscription that is not answered must not hold up the end.
		}
	}
}

// run keeps a connection while there are channels.
func (l *listener) run() {
	for tries := 0; ; tries++ {
		began := time.Now()
		if !l.connection() {
			return
		}
		if time.Since(began) > calls.LongestBackoff {
			tries = 0
		}
		if tries == 0 {
			continue // The first reconnect is at once: waiters are waiting.
		}
		timer := time.NewTimer(calls.Backoff(tries - 1))
		select {
		case <-timer.C:
		case <-l.servers.Ended():
		}
		timer.Stop()
	}
}

// over reports whether the listener may end, and marks it so.
func (l *listener) over() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wanted > 0 && !l.servers.Over() {
		return false
	}
	clear(l.channels) // What was dropped while the node could not be reached.
	l.running, l.conn = false, nil
	return true
}

// introduce lets rueidis find the node, by a request for a key that it has: rueidis follows that where it leads.
func (l *listener) introduce() {
	l.mu.Lock()
	key := ""
	for _, sub := range l.channels {
		if sub.want && sub.by != nil {
			key = sub.by.Key()
			break
		}
	}
	l.mu.Unlock()
	if key != "" {
		side := l.servers.Side
		ctx, cancel := context.WithTimeout(l.servers.Patient, AnswerTime) // Else rueidis tries again while a node is silent.
		defer cancel()
		_ = side.Do(noDeadline{ctx}, side.B().Hlen().Key(key).Build()).Error() // What it answers does not matter.
	}
}

// sure asks the node what it has, if that is in doubt, and reports whether it answered. A replica lets clients subscribe
// as its master does, so a master that has become one would not be found out otherwise.
func (l *listener) sure(conn rueidis.DedicatedClient) bool {
	l.mu.Lock()
	unsure := l.unsure
	l.unsure = false
	l.mu.Unlock()
	if !unsure {
		return true
	}
	owners, err := askSlots(l.servers.Patient, conn, l.node.address)
	if err != nil {
		return false
	}
	l.servers.routes.take(owners)
	return true
}

// subscribe subscribes to channels, and reports whether the connection can still be used.
func (l *listener) subscribe(conn rueidis.DedicatedClient, channels []string) bool {
	l.servers.Subscribes.Add(uint64(len(channels)))
	if l.servers.Sharded {
		own := slices.Index(channels, l.servers.own())
		if own < 0 {
			return l.subscribeSharded(conn, channels)
		}
		channels = slices.Delete(channels, own, own+1)
		if len(channels) > 0 && !l.subscribeSharded(conn, channels) {
			return false
		}
		err := conn.Do(context.Background(), conn.B().Subscribe().Channel(l.servers.own()).Build()).Error()
		return err == nil || Answered(err) // Without it a release by force is found by the next renewal.
	}
	err := conn.Do(context.Background(), conn.B().Subscribe().Channel(channels...).Build()).Error()
	if err != nil {
		l.refused(channels, err)
	}
	return err == nil
}

// subscribeSharded is subscribe for channels that are sharded.
func (l *listener) subscribeSharded(conn rueidis.DedicatedClient, channels []string) bool {
	// The channels of one command must be of one slot.
	cmds := make([]rueidis.Completed, len(channels))
	for i, channel := range channels {
		cmds[i] = conn.B().Ssubscribe().Channel(channel).Build()
	}
	good := true
	for i, res := range conn.DoMulti(context.Background(), cmds...) {
		err := res.Error()
		if err == nil {
			continue
		}
		l.unsent(channels[i])
		if redisErr, ok := rueidis.IsRedisErr(err); ok {
			if address, moved := redisErr.IsMoved(); moved {
				l.servers.routes.moved(lua.Slot(channels[i]), address)
				continue
			}
		}
		l.refused(channels[i:i+1], err)
		good = false
	}
	l.moveOn()
	return good
}

// unsent notes that a subscription was refused.
func (l *listener) unsent(channel string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if sub := l.channels[channel]; sub != nil && sub.state == subSent {
		sub.state = subNone
	}
}

// moveOn sends subscribers to another node if their slots are there.
func (l *listener) moveOn() {
	routes := l.servers.routes
	if !l.servers.Sharded {
		return
	}
	l.mu.Lock()
	var leave []Subscriber
	for channel, sub := range l.channels {
		if sub.want && sub.by != nil && routes.of(channel) != l.node {
			leave = append(leave, sub.by)
		}
	}
	l.mu.Unlock()
	for _, s := range leave {
		s.Rehome(l)
	}
}

// refused tells the subscribers of an error of the server that no retry mends.
func (l *listener) refused(channels []string, err error) {
	if !Answered(err) || Transient(err) {
		return
	}
	l.mu.Lock()
	var told []Subscriber
	for _, channel := range channels {
		if sub := l.channels[channel]; sub != nil && sub.by != nil {
			told = append(told, sub.by)
		}
	}
	l.mu.Unlock()
	for _, s := range told {
		s.Refused(err)
	}
}

const (
	// subscribeBatch is how many channels go in one command.
	subscribeBatch = 256
	// staleChannels is how many channels that nobody wants stay subscribed at the most, or as many as are
	// wanted: so a new connection costs no more than what was subscribed since the last.
	staleChannels = 128
)

// next returns the channels that are to be subscribed to, whether any is wanted, and whether the connection is to be replaced.
func (l *listener) next() (subscribe []string, wanted, replace bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, channel := range l.dirty {
		sub := l.channels[channel]
		switch {
		case sub == nil:
		case sub.want && sub.state == subNone:
			sub.state = subSent
			subscribe = append(subscribe, channel)
		case !sub.want && sub.state == subNone:
			delete(l.channels, channel)
		}
	}
	l.dirty = l.dirty[:0]
	stale := len(l.channels) - l.wanted
	return subscribe, l.wanted > 0, l.broken || stale >= max(staleChannels, l.wanted)
}

// silence notes that the connection is gone, and tells the subscribers.
func (l *listener) silence() {
	l.mu.Lock()
	l.epoch, l.coming, l.going = 0, 0, 0
	l.changes++
	var deaf []Subscriber
	for channel, sub := range l.channels {
		sub.state = subNone
		if !sub.want {
			delete(l.channels, channel)
			continue
		}
		if sub.by != nil {
			deaf = append(deaf, sub.by)
		}
	}
	l.mu.Unlock()
	for _, s := range deaf {
		s.Unheard(l)
	}
}

// onMessage hands a message to its subscriber. It runs on the reader of the connection. Messages of a connection that was
// given up are left to the check that follows. While one connection replaces another a message may come twice.
func (l *listener) onMessage(epoch int, m rueidis.PubSubMessage) {
	received := time.Now()
	if m.Channel == l.servers.own() {
		l.servers.opts.Hear(m.Message)
		return
	}
	l.mu.Lock()
	var s Subscriber
	if sub := l.channels[m.Channel]; sub != nil && (epoch == l.epoch || epoch == l.coming || epoch == l.going) {
		s = sub.by
	}
	l.mu.Unlock()
	if s != nil {
		s.Message(m.Message, received)
	}
}

// onSubscription notes a confirmation. It runs on the reader of the connection.
func (l *listener) onSubscription(epoch int, s rueidis.PubSubSubscription) {
	l.mu.Lock()
	sub := l.channels[s.Channel]
	if sub == nil || epoch != l.epoch {
		if sub != nil && epoch == l.coming {
			l.joinedLocked(sub, s.Kind)
		}
		l.mu.Unlock()
		return
	}
	var confirmed, gone Subscriber
	switch s.Kind {
	case "subscribe", "ssubscribe":
		if sub.state == subSent {
			sub.state = subConfirmed
			if sub.want && !l.broken { // Of one in doubt nobody relies on it: the next confirms it too.
				confirmed = sub.by
			}
		}
	case "sunsubscribe":
		// The slot has left the node. What serves the listener asks that one where to (sure), and moves on.
		if sub.state != subNone {
			sub.state, l.unsure = subNone, true
			l.touchLocked(s.Channel)
			if sub.want {
				gone = sub.by
			}
		}
	}
	n := len(l.channels)
	l.mu.Unlock()
	switch {
	case confirmed != nil:
		confirmed.Confirmed(l, n)
	case gone != nil:
		gone.Unheard(l)
	}
}

// Subscribed tells how many channels the listeners have, and whether one runs.
func (c *Servers) Subscribed() (channels int, running bool) {
	for _, n := range c.routes.all() {
		n.listener.mu.Lock()
		channels, running = channels+len(n.listener.channels), running || n.listener.running
		n.listener.mu.Unlock()
	}
	return channels, running
}
