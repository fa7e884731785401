package model

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/verify/model/line"
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/lua"
)

// learn lets a client take in a reply as waitqueue does.
func (p *player) learn(r Request, reply lua.Tuple) {
	for _, g := range reply.Grants {
		p.granted(g.Ticket, g.Token)
	}
	switch r := r.(type) {
	case Renew:
		p.renewed(r, reply)
	case Move:
		if reply.Status == lua.Granted {
			p.granted(r.To, reply.Token)
		}
	}
	if r, ok := r.(Check); ok && reply.Status == lua.Done {
		p.looked(r.Tickets, reply.States)
	}
	a, ok := r.(Ask)
	if !ok {
		return
	}
	t := p.find(a.Ticket)
	switch {
	case t == nil:
	case reply.Status == lua.Granted:
		p.granted(a.Ticket, reply.Token)
	case reply.Status == lua.Busy:
		t.ended = true
	case reply.Status == lua.Full:
		t.ended = true
	case reply.Status == lua.Waiting:
		t.arrival = reply.Arrival
		if reply.Place >= 0 {
			t.bound = nil
		}
	}
}

// looked takes in what a check says of tickets.
func (p *player) looked(tickets []lua.Arrival, states []string) {
	for i, a := range tickets {
		t := p.find(a.Ticket)
		switch state, _, _ := strings.Cut(states[i], " "); {
		case t == nil || state == lua.StateGone:
		case state == lua.StateFull:
			t.ended = true
		default:
			t.bound = nil
		}
	}
}

func (p *player) renewed(r Renew, reply lua.Tuple) {
	t := p.find(r.Ticket)
	if t == nil || reply.Status != lua.Granted || r.Still {
		return
	}
	t.kept, t.renewed = reply.Until+lua.Spare.Microseconds(), r.Lease
	if r.Phase != lua.PhaseHeld || r.Count > 0 {
		t.kept = 0 // One of several has no count.
	}
}

func (p *player) granted(ticket string, token uint64) {
	t := p.find(ticket)
	if t == nil {
		return
	}
	if t.token != int64(token) {
		t.kept = 0 // Another hold: of its renewals none has written anything yet.
	}
	t.token, t.bound = int64(token), nil
}

func (p *player) find(ticket string) *slot {
	for c := range p.clients {
		for i := range p.clients[c] {
			if t := &p.clients[c][i]; t.text == ticket {
				return t
			}
		}
	}
	return nil
}

func TestMain(m *testing.M) { stage.Main(m) }

// keysOf are the keys of a lock for one history.
func keysOf(seed uint64) lua.Keys { return lua.Fairlock.Keys("model", fmt.Sprint(seed)) }

// historyOf is how many ends a lock keeps: every second one a few.
func historyOf(seed uint64) int { return int(seed % 2 * (1 + seed%5)) }

// ready is a server with what the histories need beside their keys.
func ready(t testing.TB, s stage.Host) stage.Host { return hostOf(t, s) }

var plays = stage.Play[step]{
	Scripts: scripts, Random: random, Ready: ready,
	Decode: func(data []byte) stage.History[step] {
		h := decode(data)
		play := func(s stage.Host, seed uint64, steps []step, seen map[string]int) error {
			server := s.(host)
			p := newPlayer(server, keysOf(seed))
			h.Steps, p.seen, p.model.History = steps, seen, historyOf(seed)
			err := p.play(h)
			seen["light"], seen["light and unusual"] = server.light.answered, server.light.unusual
			return err
		}
		return stage.History[step]{Start: h.Start(), Steps: h.Steps, Play: play}
	},
}

func TestScriptsDoWhatTheModelDoes(t *testing.T) { plays.Embedded(t, 2, 1000, everySight()) }

func TestScriptsDoWhatTheModelDoesOnRedis(t *testing.T) { plays.Redis(t, 300) }

func FuzzMutex(f *testing.F) { plays.Fuzz(f) }

// everySight is all that can come of requests.
func everySight() []string {
	sights := []string{"message G", "message S", "message F", "message L", "grant in a reply", "grant with a note", "mark", "scan", "renewed still",
		"history released", "history expired", "history forced", "history moved", "message W", "phase wants", "phase idle", "phase final wants", "stays", "rests fairlock/end", "rests fairlock/ask", "rests fairlock/move"}
	sights = append(sights, stage.Statuses(map[*lua.Script][]lua.Status{
		lua.Fairlock.Ask:   {lua.Granted, lua.Waiting, lua.Busy, lua.Late, lua.Full},
		lua.Fairlock.End:   {lua.Done, lua.Refused},
		lua.Fairlock.Renew: {lua.Granted, lua.Refused, lua.Late},
		lua.Fairlock.Check: {lua.Done, lua.Late},
		lua.Fairlock.Force: {lua.Done, lua.Refused},
		lua.Move:           {lua.Granted, lua.Refused, lua.Late},
	})...)
	for _, flag := range []int{lua.More, lua.Suspected, lua.Stepped, lua.Handed, lua.Unwoken, lua.Uncounted, lua.Wanted} {
		sights = append(sights, fmt.Sprint("flag ", flag))
	}
	return append(sights, lua.StateQueued, lua.StateAgain, lua.StateGranted, lua.StateEarlier, lua.StateGone, lua.StateFull,
		lua.StateExpired, lua.StateForced, lua.StateForgotten, lua.StateMoved, "adopted", "looked together", "light", "light and unusual")
}

func TestAFailureIsMadeShort(t *testing.T) {
	h := decode(random(7))
	h.Steps = append(h.Steps, step{Op: line.OpForce}, step{Op: line.OpClock, Micros: 5})
	short, err := stage.Shorten(h.Steps, nil, 500, func(steps []step) error {
		force := false
		for _, s := range steps {
			if force && s.Op == line.OpClock && s.Micros == 5 {
				return fmt.Errorf("after %d steps", len(steps))
			}
			force = force || s.Op == line.OpForce
		}
		return nil
	})
	require.Len(t, short, 2)
	require.EqualError(t, err, "after 2 steps")
}

// A backend is a server on which a history is played beside the model.
type backend interface {
	stage.Host
	// run runs the script of a request to a lock that keeps a history of so many ends.
	run(k lua.Keys, history int, r Request) (lua.Tuple, error)
	// state reads the keys.
	state(k lua.Keys) (state, error)
	put(k lua.Keys, tickets []lua.Arrival, high, lives int64) error
}

// state is what the keys of a lock hold, as text.
type state struct {
	lock            map[string]string
	queue, suspects []scored
	past            []string // the history, the newest first
	left            [4]int64 // µs until each key expires, the history's last; 0: no key, stage.Forever: none
}

// scored is a member of a sorted set.
type scored struct{ name, score string }

// number is a field, or what the ticket and the token of a hold tell of it.
func (s *state) number(field string) int64 {
	k := stage.Key{Members: s.lock}
	if field == "until" {
		return k.Until()
	}
	return k.Number(field)
}

func (s *state) owner() string { return s.lock["owner"] }

func (s *state) text() string {
	var b strings.Builder
	for _, field := range slices.Sorted(maps.Keys(s.lock)) {
		fmt.Fprintf(&b, "    %s %q\n", field, s.lock[field])
	}
	fmt.Fprintf(&b, "    queue %v\n    suspects %v\n    history %q", s.queue, s.suspects, s.past)
	return b.String()
}

// untimed forgets until when the holds of the history lasted.
func (s *state) untimed() {
	for i, entry := range s.past {
		f := strings.Fields(entry)
		f[2] = "?"
		s.past[i] = strings.Join(f, " ")
	}
}

// expected is the state of the model as a server would show it.
func expected(m *Mutex, now int64) state {
	s := state{lock: m.Lock.Fields(), past: slices.Clone(m.Past)}
	for _, a := range m.Queue {
		s.queue = append(s.queue, scored{a.Ticket, stage.Decimal(a.Arrival)})
	}
	for client, at := range m.Suspects {
		s.suspects = append(s.suspects, scored{client, stage.Decimal(at)})
	}
	slices.SortFunc(s.suspects, func(a, b scored) int { return strings.Compare(a.score+a.name, b.score+b.name) })
	left := func(there bool, ends int64) int64 {
		switch {
		case !there:
			return 0
		case ends == 0:
			return stage.Forever
		}
		return ends - now
	}
	s.left = [4]int64{
		left(len(s.lock) > 0, m.LockEnds), left(len(s.queue) > 0, m.QueueEnds),
		left(len(s.suspects) > 0, m.SuspectsEnds), left(len(s.past) > 0, m.PastEnds),
	}
	return s
}

// calmed reports whether all suspects are forgotten in a later state.
func (s state) calmed(later state) bool { return s.lock["marked"] != "" && later.lock["marked"] == "" }

// calm is the state without suspects.
func (s state) calm() state {
	s.lock, s.suspects = maps.Clone(s.lock), nil
	delete(s.lock, "marked")
	return s
}

// wants reports whether the holder is to be told when somebody waits.
func (s *state) wants() bool {
	phase := s.lock["phase"]
	return strings.HasSuffix(phase, wants) || phase == lua.PhaseIdle
}

// lease is the longest that the present hold can last.
func (s state) lease() int64 {
	h := Hash{Owner: s.owner(), Phase: s.lock["phase"]}
	return h.lease()
}

// rests is until when the name stays taken whatever becomes of the present hold; least is for how long at the most.
func (s state) rests() int64 {
	until, _ := s.stays()
	return until
}

func (s state) least() int64 {
	_, least := s.stays()
	return least
}

func (s state) stays() (until, least int64) {
	var token int64
	if _, err := fmt.Sscanf(s.lock["rests"], "%d:%d:%d", &token, &until, &least); err != nil || s.owner() == "" || token != s.number("token") {
		return 0, 0
	}
	return until, least
}

// give puts a hold in transit, mostly the present one.
func (p *player) give(t *slot, s step, notAfter, floor int64) Request {
	if owner := p.find(p.before.owner()); owner != nil && s.Choice > 0 {
		t = owner
	}
	if t.text == "" || passesOf(t.text) > 0 {
		return nil
	}
	p.number++
	x := lua.Transit{Client: t.ticket.Client, Lease: time.Duration(s.Grant) * time.Millisecond, Secret: strconv.FormatUint(p.number, 10)}
	p.moving = append(p.moving, x)
	t.ended = true
	return Move{
		From: t.text, To: x.Ticket(), Token: t.token - int64(s.Choice/6), Phase: lua.PhaseFinal,
		NotAfter: notAfter, Floor: floor, Uncounted: s.Blank,
	}
}

// adopt takes a hold out of transit, mostly the last, for a new ticket.
func (p *player) adopt(t *slot, s step, notAfter, floor int64) Request {
	if len(p.moving) == 0 {
		return nil
	}
	x := p.moving[max(len(p.moving)-1-s.Choice/7, 0)]
	secret := x.Hex()
	if s.Choice == 3 {
		secret = secret[1:]
	}
	s.Fresh = true
	p.renumber(t, s)
	return Move{
		From: x.Ticket(), To: t.text, Secret: secret, Phase: s.Phase(),
		NotAfter: notAfter, Floor: floor, Uncounted: s.Blank,
	}
}
