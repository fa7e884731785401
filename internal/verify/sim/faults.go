package sim

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/election"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/redlock"
)

// FaultKind is what goes wrong.
type FaultKind int

// The faults. First those of one client.
const (
	Cut          FaultKind = iota // its connections break
	Outage                        // and no new ones can be made
	Pause                         // nothing of it moves: neither sent nor received, but stored
	DropOut                       // what it sends vanishes
	DropIn                        // what is sent to it vanishes
	Slow                          // everything takes longer
	LateRequests                  // what it has sent on old connections arrives later, new ones work
	LateReplies                   // the same of what was sent to it
	LoseReplies                   // scripts run, and the connection breaks before their reply
	LosePushes                    // messages to it vanish
	Die                           // its process ends
	DieSilent                     // and its connections stand, as if it were stopped
	DieLate                       // and what it has sent arrives later
	// Of one object.
	DeleteKey // one of its keys is gone
	Force     // an operator frees it
	Forge     // somebody publishes what is not true, but grants nothing
	ForgeHold // somebody publishes a grant
	// Of the server.
	LoseMessages
	LateMessages
	DoubleMessages
	Restart      // with what it knew
	RestartEmpty // without
	FlushScripts
	FlushAll
	ClockAhead
	ClockBack
	Loading
	ReadOnly
	faultKinds
)

var faultNames = [faultKinds]string{
	"cut", "outage", "pause", "drop out", "drop in", "slow", "late requests", "late replies", "lose replies",
	"lose pushes", "die", "die silent", "die late", "delete key", "force", "forge", "forge hold", "lose messages",
	"late messages", "double messages", "restart", "restart empty", "flush scripts", "flush all", "clock ahead",
	"clock back", "loading", "read only",
}

func (k FaultKind) String() string { return faultNames[k] }

func (k FaultKind) ofClient() bool { return k <= DieLate }
func (k FaultKind) ofObject() bool { return k > DieLate && k <= ForgeHold }

// mild reports whether a fault must not cost anybody what he holds, as renewals are repeated.
func (k FaultKind) mild() bool {
	switch k {
	case Cut, LosePushes, Forge, LoseMessages, LateMessages, DoubleMessages, FlushScripts:
		return true
	}
	return false
}

func (k FaultKind) deadly() bool { return k >= Die && k <= DieLate }

// inflict does a fault and returns how it ends; nil if there is nothing to end.
func (w *world) inflict(f Fault) (end func()) {
	switch {
	case f.Kind.ofClient():
		return w.inflictClient(f, w.nodes[f.Client])
	case f.Kind.ofObject():
		return w.inflictObject(f, w.plan.Objects[f.Object])
	}
	return w.inflictServer(f)
}

// inflictClient does a fault of one client.
func (w *world) inflictClient(f Fault, n *node) (end func()) {
	if n.isDead() {
		return nil
	}
	lasting := f.Kind != Cut && !f.Kind.deadly()
	touch := Touch{Client: f.Client, Object: everyone, Kind: f.Kind}
	ways := n.ways
	if f.N%2 == 1 && !f.Kind.deadly() {
		ways = ways[f.Server : f.Server+1]
		w.voted(&touch, f, true)
	}
	t := w.touch(touch, lasting)
	var ends []func()
	for _, way := range ways {
		if end := way.inflict(f); end != nil {
			ends = append(ends, end)
		}
	}
	if len(ends) == 0 {
		return nil
	}
	return func() {
		for _, end := range ends {
			end()
		}
		w.untouch(t)
	}
}

// inflict does a fault on the way to one server.
func (n *node) inflict(f Fault) (end func()) {
	d := n.network()
	switch f.Kind {
	case Cut:
		d.Cut()
		return nil
	case Outage:
		d.Refuse()
		d.Cut()
	case Pause:
		d.Freeze()
	case DropOut:
		d.Drop(faults.ToServer)
	case DropIn:
		d.Drop(faults.ToClient)
	case Slow:
		d.Delay(n.plan.Latency + f.For/time.Duration(f.N+1))
	case LateRequests, LateReplies:
		way := faults.ToServer
		if f.Kind == LateReplies {
			way = faults.ToClient
		}
		d.Freeze(way)
		n.renew()
	case LoseReplies:
		d.LoseReplies(f.N, func(command []string) bool { return strings.HasPrefix(command[0], "EVAL") })
	case LosePushes:
		d.LosePushes(f.N, func(push []string) bool { return push[0] == "message" })
	case Die:
		n.die(func(d *faults.Dialer) { d.Cut() })
		return nil
	case DieSilent:
		n.die(func(d *faults.Dialer) { d.Freeze() })
		return func() { each(n.networks(), (*faults.Dialer).Cut) }
	case DieLate:
		n.die(func(d *faults.Dialer) { d.Freeze() })
	}
	return func() {
		d.LoseReplies(0, nil)
		d.LosePushes(0, nil)
		d.Heal()
		d.Delay(n.plan.Latency)
	}
}

func each(ds []*faults.Dialer, do func(*faults.Dialer)) {
	for _, d := range ds {
		do(d)
	}
}

// endings are what the names of an object's keys end with.
func endings(k Kind) []string {
	switch k {
	case Mutex, Election, Striped, Several, Redlock:
		return []string{"", ":queue", ":suspects"}
	case Latch:
		return []string{""}
	}
	return []string{"", ":leases", ":arrivals", ":last", ":calls"}
}

// inflictObject does a fault of one object.
func (w *world) inflictObject(f Fault, o Object) (end func()) {
	t := Touch{Client: everyone, Object: f.Object, Kind: f.Kind}
	part := f.N % o.parts()
	if o.parts() > 1 {
		t.Parts = 1 << part
	}
	w.voted(&t, f, f.Kind != Force)
	s := w.servers[f.Server]
	switch f.Kind {
	case DeleteKey:
		all := endings(o.Kind)
		ending := all[f.N%len(all)]
		t.Frees, t.Note = ending != ":queue" && ending != ":suspects", "key "+o.lock(f.Object, part)+ending
		w.touch(t, false)
		s.mini.Del(o.lock(f.Object, part) + ending)
	case Force:
		if o.Kind.holds() {
			t.Frees = true
			over := w.touch(t, true)
			w.background(func() {
				defer w.untouch(over)
				w.force(f.Object, part, o)
			})
		}
	case Forge:
		text, channel := w.forgery(f, o)
		if channel != "" {
			t.Note = channel + " " + text
			w.touch(t, false)
			s.mini.Publish(channel, text)
		}
	case ForgeHold:
		ticket, channel := w.victim(f, o)
		if ticket != "" {
			now := s.time().UnixMicro()
			text := fmt.Sprintf("G %s %d %d %d", ticket, now, f.N, o.Lease.Milliseconds())
			t.Frees, t.Note = true, text
			w.touch(t, false)
			s.mini.Publish(channel, text)
		}
	}
	return nil
}

// victim returns a ticket that waits, and the channel on which its client hears.
func (w *world) victim(f Fault, o Object) (ticket, channel string) {
	if !o.Kind.holds() {
		return "", ""
	}
	key := o.lock(f.Object, f.N%o.parts())
	waiting, err := w.servers[f.Server].mini.ZMembers(key + ":queue")
	if err != nil || len(waiting) == 0 {
		return "", ""
	}
	ticket = waiting[f.N%len(waiting)]
	client, _, _ := strings.Cut(ticket, ":")
	return ticket, key + ":wake:" + client
}

// forgery returns a message that is untrue, but must not make anybody believe that he holds or may go on.
func (w *world) forgery(f Fault, o Object) (text, channel string) {
	var known []message
	for _, m := range w.servers[f.Server].overheard() {
		for part := range o.parts() {
			if strings.HasPrefix(m.channel, o.lock(f.Object, part)+":wake") {
				known = append(known, m)
			}
		}
	}
	if len(known) == 0 {
		return "", ""
	}
	m := known[f.At.Microseconds()%int64(len(known))]
	words := strings.Fields(m.text)
	switch {
	case f.N == 1 || len(words) < 2:
		return pickText(f, "", "G", "G x 1 2 3", "O 1", "B 1", "E 0", "nonsense", "G a b c d e f g h"), m.channel
	case f.N == 2 && o.Kind.holds():
		return "S " + words[1], m.channel
	case f.N == 3 && o.Kind.holds():
		return "F " + words[1], m.channel
	}
	return m.text, m.channel // An old one again.
}

func pickText(f Fault, from ...string) string { return from[f.At.Microseconds()%int64(len(from))] }

// force frees an object, as an operator would.
func (w *world) force(i, part int, o Object) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	switch o.Kind {
	case Mutex, Striped, Several:
		_, _ = fairlock.New(w.operator, o.name(i, part)).ForceRelease(ctx, 0)
	case Redlock:
		var clients []*headwaiter.Client
		for _, s := range w.servers {
			if c, err := headwaiter.Dial(headwaiter.Options{Redis: s.operatorOption(), Name: "operator", WithoutSubscribe: w.plan.Polls}); err == nil {
				clients = append(clients, c)
				defer func() { _ = c.Shutdown(context.Background()) }()
			}
		}
		_, _ = redlock.New(clients, name(i)).ForceRelease(ctx, 0)
	case Election:
		_, _ = election.New(w.operator, name(i)).ForceRelease(ctx, 0)
	}
}

// inflictServer does a fault of the server.
func (w *world) inflictServer(f Fault) (end func()) {
	s := w.servers[f.Server]
	t := Touch{Client: everyone, Object: everyone, Kind: f.Kind}
	w.voted(&t, f, true)
	by := f.For
	switch f.Kind {
	case LoseMessages:
		s.tamper(f.N, 0, 0, by)
		return nil
	case LateMessages:
		s.tamper(0, f.N, 0, by)
		return nil
	case DoubleMessages:
		s.tamper(0, 0, f.N, by)
		return nil
	case Restart, RestartEmpty:
		t.Frees = f.Kind == RestartEmpty && (w.plan.Servers == 1 || w.plan.Objects[0].Trusts)
		over := w.touch(t, true)
		s.crash()
		return func() {
			s.revive(f.Kind == RestartEmpty)
			w.untouch(over)
		}
	case Loading, ReadOnly:
		over := w.touch(t, true)
		if f.Kind == Loading {
			s.fail("LOADING Redis is loading the dataset in memory", true)
		} else {
			s.fail("READONLY You can't write against a read only replica.", false)
		}
		return func() {
			s.fail("", false)
			w.untouch(over)
		}
	case FlushScripts:
		w.touch(t, false)
		s.flushScripts()
	case FlushAll:
		t.Frees = true
		w.touch(t, false)
		s.mini.FlushAll()
	case ClockAhead, ClockBack:
		step := by * time.Duration(f.N*f.N) // From milliseconds to a minute.
		t.Frees = f.Kind == ClockAhead
		t.Note = step.String()
		w.touch(t, false)
		if f.Kind == ClockBack {
			step = -step
		}
		s.step(step)
	}
	return nil
}
