package permits

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/headwaiter/headwaiter/internal/verify/model/line"
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// queue is the queue when it was served: with what a request queued, without what ended.
func (h *happened) queue() []lua.Arrival {
	queue := line.QueueOf(h.Before)
	without := func(ticket string) {
		queue = slices.DeleteFunc(queue, func(a lua.Arrival) bool { return a.Ticket == ticket })
	}
	with := func(a lua.Arrival) {
		if !slices.ContainsFunc(queue, func(b lua.Arrival) bool { return a.Ticket == b.Ticket }) {
			queue = append(queue, a)
		}
	}
	switch r := h.request.(type) {
	case End:
		without(r.Ticket)
	case Check:
		held := holdsOf(h.Before)
		for i, a := range r.Tickets {
			holds := held[a.Ticket].until > h.Now && len(h.After[3].Members) > 0
			if i < len(h.Reply.States) && !holds && !strings.HasPrefix(h.Reply.States[i], wire.StateExcess) {
				with(a)
			}
		}
	case Ask:
		if h.Reply.Status == wire.Excess {
			without(r.Ticket)
		}
	}
	slices.SortFunc(queue, line.Order)
	return queue
}

// order: who is granted was the first that is alive, or all ahead of it that are were granted too, or told that
// they ask for too much; and whoever asks gets ahead of nobody (I3).
func (h *happened) order() error {
	fresh, queue := h.fresh(), h.queue()
	limit := h.After[0].Number("limit")
	waited := map[string]bool{}
	var passed string
	for _, a := range queue {
		waited[a.Ticket] = true
		_, granted := fresh[a.Ticket]
		t, ok := line.Read(a.Ticket)
		switch {
		case granted && !h.Living(t.Client):
			return fmt.Errorf("%s was granted and is not alive", a.Ticket)
		case granted && passed != "" && !h.Reply.Has(wire.Unwoken):
			return fmt.Errorf("%s was granted ahead of %s", a.Ticket, passed)
		case !granted && ok && t.Permits <= limit && h.Reached(a) && h.Living(t.Client):
			if _, stays := h.After[1].Members[a.Ticket]; stays {
				passed = a.Ticket
			}
		}
	}
	for ticket, r := range fresh {
		ask, ok := h.request.(Ask)
		atOnce := len(h.After[1].Members) == 0 || r.phase == "r" // It was queued, as the first.
		if !waited[ticket] && (!ok || ask.Ticket != ticket || !atOnce) {
			return fmt.Errorf("%s was granted ahead of the queue", ticket)
		}
	}
	return nil
}

// serves reports whether a request serves the queue.
func (h *happened) serves() bool {
	if _, renews := h.request.(Renew); renews || h.Reply.Status == wire.Late || h.Reply.Status == wire.Mismatch {
		return false
	}
	return h.sound()
}

// busy: nothing stays free that the first who is alive could have (R3).
func (h *happened) busy() error {
	if !h.serves() || h.Reply.Has(wire.More) || h.Reply.Has(wire.Unwoken) {
		return nil
	}
	free := h.After[0].Number("limit") - h.After[0].Number("used")
	for i, a := range line.QueueOf(h.After) {
		t, ok := line.Read(a.Ticket)
		if !ok || !h.Reached(a) || !h.Living(t.Client) {
			continue
		}
		_, waited := h.Before[1].Members[a.Ticket]
		if ask, asks := h.request.(Ask); asks && ask.Ticket == a.Ticket && !waited && i > 0 {
			continue // It came in during a mark, or before a cursor, where all are silent.
		}
		if t.Permits <= free {
			return fmt.Errorf("%d are free, and %s is alive", free, a.Ticket)
		}
		return nil
	}
	return nil
}

// dropped: only the dead leave the queue unasked.
func (h *happened) dropped() error {
	fresh, limit := h.fresh(), h.After[0].Number("limit")
	holds := func(ticket string) bool { _, granted := fresh[ticket]; return granted }
	excess := func(ticket string) bool { t, _ := line.Read(ticket); return t.Permits > limit }
	gone, err := h.Happened.Dropped(h.queue(), line.Drops+line.Looks, len(fresh) > 0, holds, excess)
	if err == nil && len(gone) > 0 && (h.request.Script() == lua.Semaphore.Renew || h.Reply.Status == wire.Late || h.Reply.Status == wire.Mismatch) {
		return fmt.Errorf("%v were dropped", gone)
	}
	return err
}

func TestMain(m *testing.M) { stage.Main(m) }

var scripts = []*lua.Script{
	lua.Semaphore.Ask, lua.Semaphore.End, lua.Semaphore.Renew, lua.Semaphore.Check, lua.Semaphore.Checks, lua.Semaphore.Force.Plain(), lua.Semaphore.Bury,
	lua.Semaphore.Inspect, lua.Resize.Plain(), lua.Downgrade.Script,
}

// usual is what a semaphore of one permit does most of the time: a permit that is taken, waited for and handed on.
func usual(s stage.Host) error {
	k, born := lua.Semaphore.Keys("headwaiter", "orders:42"), stage.Decimal(s.Now())
	a, b, na := "A:1:p:1:10000:2000", "B:1:p:1:10000:2000", stage.Decimal(s.Now()+3*stage.Second)
	errs := []error{s.Wake(k, "B", true)}
	call := func(script *lua.Script, args ...string) (now string) {
		s.Pass(stage.Millisecond)
		errs = append(errs, s.Call(k.All(), script, args).Error())
		return stage.Decimal(s.Now())
	}
	call(lua.Semaphore.Ask, a, "try", na, "a@host#1", "1", born)
	call(lua.Semaphore.End, a)
	call(lua.Semaphore.Ask, a, "wait", na, "a@host#1", "1", born)
	call(lua.Semaphore.Ask, b, "try", na, "b@host#2", "1", born)
	at := call(lua.Semaphore.Ask, b, "look", na, "b@host#2", "1", born)
	call(lua.Semaphore.Check, "B", "hears", na, "0", "1", b, at, "1", born)
	call(lua.Semaphore.End, a, "0")
	call(lua.Semaphore.End, b)
	call(lua.Semaphore.End, b, "0", "0", "1")
	_, err := s.Woken(k)
	return errors.Join(append(errs, err, s.Wake(k, "B", false))...)
}

var plays = stage.Play[step]{
	Usual:   usual,
	Vectors: []string{"semaphore/", "rwlock/"},
	Scripts: scripts, Random: random,
	Decode: func(data []byte) stage.History[step] {
		h := decode(data)
		play := func(s stage.Host, seed uint64, steps []step, seen map[string]int) error {
			p := newPlayer(s, fmt.Sprint(seed), h.locks, h.limit)
			if h.fixed {
				p.born = 0
			}
			h.Steps, p.Seen = steps, seen
			return p.Play(h.History, p.step)
		}
		return stage.History[step]{Start: h.Start(), Steps: h.Steps, Play: play}
	},
}

func TestScriptsDoWhatTheModelDoes(t *testing.T) { plays.Embedded(t, 2, 600, everySight()) }

func TestScriptsDoWhatTheModelDoesOnRedis(t *testing.T) { plays.Redis(t, 200) }

func FuzzPermits(f *testing.F) { plays.Fuzz(f) }

// everySight is all that can come of requests.
func everySight() []string {
	sights := []string{
		"message G", "message S", "message F", "message W", "message X", "several grants in a reply",
		"several grants in a message", "grant with a note", "mark", "scan", "group", "looked together",
		"more by a newer client", "fewer by a newer client", "an older client states another number", "a resize outlives a newer client",
		"the first number after a resize",
		"looked together at a head that does not fit", "stays", "rests semaphore/end", "rests semaphore/ask",
	}
	sights = append(sights, stage.Statuses(map[*lua.Script][]wire.Status{
		lua.Semaphore.Ask:    {wire.Granted, wire.Waiting, wire.Busy, wire.Late, wire.Excess, wire.Mismatch, wire.Full},
		lua.Semaphore.End:    {wire.Done, wire.Refused},
		lua.Semaphore.Renew:  {wire.Granted, wire.Refused, wire.Late},
		lua.Semaphore.Check:  {wire.Done, wire.Late},
		lua.Semaphore.Force:  {wire.Done, wire.Refused},
		lua.Semaphore.Bury:   {wire.Done, wire.Refused},
		lua.Resize.Script:    {wire.Done, wire.Mismatch},
		lua.Downgrade.Script: {wire.Granted, wire.Refused, wire.Late},
	})...)
	for _, flag := range []int{wire.More, wire.Suspected, wire.Stepped, wire.Handed, wire.Unwoken, wire.Uncounted, wire.Wanted, wire.Differs} {
		sights = append(sights, fmt.Sprint("flag ", flag))
	}
	for _, state := range []string{
		wire.StateQueued, wire.StateAgain, wire.StateGranted, wire.StateEarlier, wire.StateGone, wire.StateExcess, wire.StateFull,
	} {
		sights = append(sights, lua.Semaphore.Check.Name+" "+state)
	}
	for _, state := range []string{wire.StateExpired, wire.StateForced, wire.StateForgotten, wire.StateDied} {
		sights = append(sights, lua.Semaphore.End.Name+" "+state, lua.Semaphore.Renew.Name+" "+state)
	}
	return sights
}
