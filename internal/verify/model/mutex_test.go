package model

import (
	"errors"
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
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// learn lets a client take in a reply as waitqueue does.
func (p *player) learn(r Request, reply wire.Tuple) {
	p.Learn(says(r), reply)
	switch r := r.(type) {
	case Renew:
		p.renewed(r, reply)
	case Move:
		if reply.Status == wire.Granted {
			p.Granted(r.To, reply.Token)
		}
	}
}

func (p *player) renewed(r Renew, reply wire.Tuple) {
	t := p.Find(r.Ticket)
	if t == nil || reply.Status != wire.Granted || r.Still {
		return
	}
	t.Kept, t.Renewed = reply.Until+lua.Spare.Microseconds(), r.Lease
	if r.Phase != wire.PhaseHeld || r.Count > 0 {
		t.Kept = 0 // One of several has no count.
	}
}

func TestMain(m *testing.M) { stage.Main(m) }

// keysOf are the keys of a lock for one history.
func keysOf(seed uint64) lua.Keys { return lua.Fairlock.Keys("model", fmt.Sprint(seed)) }

// historyOf is how many ends a lock keeps: every second one a few.
func historyOf(seed uint64) int { return int(seed % 2 * (1 + seed%5)) }

// ready is a server with what the histories need in addition to their keys.
func ready(t testing.TB, s stage.Host) stage.Host { return hostOf(t, s) }

// usual is what clients of a lock send most of the time: it is taken, waited for and handed on, and an end is sent again.
func usual(s stage.Host) error {
	k, na := lua.Fairlock.Keys("headwaiter", "orders:42"), stage.Decimal(s.Now()+3*stage.Second)
	a, b := "A:1:x:1:10000:2000", "B:1:x:1:10000:2000"
	errs := []error{s.Wake(k, "B", true)}
	call := func(keys int, script *lua.Script, args ...string) (now string) {
		s.Pass(stage.Millisecond)
		errs = append(errs, s.Call(k.All()[:keys], script, args).Error())
		return stage.Decimal(s.Now())
	}
	call(2, lua.Fairlock.Ask, a, "try", na)
	call(2, lua.Fairlock.End, a)
	token := call(2, lua.Fairlock.Ask, a, "wait", na)
	call(1, lua.Fairlock.Renew, a, token, "10000", "held", na)
	call(2, lua.Fairlock.Ask, b, "try", na)
	at := call(2, lua.Fairlock.Ask, b, "look", na)
	call(3, lua.Fairlock.Check, "B", "hears", na, "0", "1", b, at)
	token = call(2, lua.Fairlock.End, a, "0")
	call(1, lua.Fairlock.Renew, b, token, "10000", "held", na)
	call(2, lua.Fairlock.End, b)
	call(3, lua.Fairlock.End, b, "0", "0", "1")
	_, err := s.Woken(k)
	return errors.Join(append(errs, err, s.Wake(k, "B", false))...)
}

var plays = stage.Play[step]{
	Usual:   usual,
	Vectors: []string{"fairlock/"},
	Scripts: scripts, Random: random, Ready: ready,
	Decode: func(data []byte) stage.History[step] {
		h := decode(data)
		play := func(s stage.Host, seed uint64, steps []step, seen map[string]int) error {
			server := s.(host)
			p := newPlayer(server, keysOf(seed))
			h.Steps, p.Seen, p.Model.History = steps, seen, historyOf(seed)
			err := p.Play(h, p.step, p.Keys.History)
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
		"history released", "history expired", "history forced", "history moved", "history died", "message W", "phase wants", "phase idle", "phase final wants", "stays", "remembered", "nobody", "rests fairlock/end", "rests fairlock/ask", "rests fairlock/move"}
	sights = append(sights, stage.Statuses(map[*lua.Script][]wire.Status{
		lua.Fairlock.Ask:   {wire.Granted, wire.Waiting, wire.Busy, wire.Late, wire.Full},
		lua.Fairlock.End:   {wire.Done, wire.Refused},
		lua.Fairlock.Renew: {wire.Granted, wire.Refused, wire.Late},
		lua.Fairlock.Check: {wire.Done, wire.Late},
		lua.Fairlock.Force: {wire.Done, wire.Refused},
		lua.Fairlock.Bury:  {wire.Done, wire.Refused},
		lua.Move:           {wire.Granted, wire.Refused, wire.Late},
	})...)
	for _, flag := range []int{wire.More, wire.Suspected, wire.Stepped, wire.Handed, wire.Unwoken, wire.Uncounted, wire.Wanted} {
		sights = append(sights, fmt.Sprint("flag ", flag))
	}
	for _, state := range []string{wire.StateQueued, wire.StateAgain, wire.StateGranted, wire.StateEarlier, wire.StateGone, wire.StateFull} {
		sights = append(sights, lua.Fairlock.Check.Name+" "+state)
	}
	for _, state := range []string{wire.StateExpired, wire.StateForced, wire.StateForgotten, wire.StateDied} {
		sights = append(sights, lua.Fairlock.End.Name+" "+state, lua.Fairlock.Renew.Name+" "+state)
	}
	for _, how := range []string{wire.HowExpired, wire.HowForced, wire.HowStalled, wire.HowDied} {
		sights = append(sights, lua.Fairlock.Ask.Name+" tells "+how, "message tells "+how)
	}
	sights = append(sights, "grants tells expired", lua.Fairlock.Ask.Name+" tells unknown", lua.Move.Name+" tells handed")
	return append(sights, lua.Move.Name+" "+wire.StateMoved, "adopted", "looked together", "light", "light and unusual")
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

// state is what the keys of a lock hold.
type state struct {
	stage.State
	past     []string // the history, the newest first
	pastLeft int64    // µs until its key expires
}

func (s state) lock() map[string]string { return s.State[0].Members }

// number is a field, or what the ticket and the token of a hold tell of it.
func (s state) number(field string) int64 {
	if field == "until" {
		return s.State[0].Until()
	}
	return s.State[0].Number(field)
}

func (s state) owner() string {
	if owner := s.lock()["owner"]; owner != wire.Nobody {
		return owner
	}
	return ""
}

// previous is how the hold before ended, for whom that is, and until when the keys live for it.
func (s state) previous() (told int64, how string, keeps int64) {
	of, how, _ := strings.Cut(s.lock()["previous"], ":")
	told, _ = strconv.ParseInt(of, 10, 64)
	if f := strings.Split(how, ":"); len(f) == 3 {
		how = f[0] + ":" + f[1]
		keeps, _ = strconv.ParseInt(f[2], 10, 64)
	}
	return told, how, keeps
}

// told is what the present holder was told.
func (s state) told() string {
	if told, how, _ := s.previous(); how != "" && s.owner() != "" && told == s.number("token") {
		return how
	}
	return ""
}

// keeps is until when the keys are to live for the ending of a hold.
func (s state) keeps() int64 {
	var token, until int64
	if _, err := fmt.Sscanf(s.lock()["keeps"], "%d:%d", &token, &until); err != nil || s.owner() == "" || token != s.number("token") {
		until = 0
	}
	if told, how, keeps := s.previous(); how != "" && told == 0 {
		until = max(until, keeps)
	}
	return until
}

func (s state) text() string {
	var b strings.Builder
	for _, key := range s.State {
		fmt.Fprintf(&b, "    %q\n", key.Members)
	}
	fmt.Fprintf(&b, "    history %q", s.past)
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
	s := state{State: m.State(now), past: slices.Clone(m.Past)}
	switch {
	case len(s.past) == 0:
	case m.PastEnds == 0:
		s.pastLeft = stage.Forever
	default:
		s.pastLeft = m.PastEnds - now
	}
	return s
}

// calmed reports whether all suspects are forgotten in a later state.
func (s state) calmed(later state) bool {
	return s.lock()["marked"] != "" && later.lock()["marked"] == ""
}

// calm is the state without suspects.
func (s state) calm() state {
	s.State = slices.Clone(s.State)
	s.State[0].Members, s.State[2].Members = maps.Clone(s.lock()), nil
	delete(s.lock(), "marked")
	return s
}

// wants reports whether the holder is to be told when somebody waits.
func (s state) wants() bool {
	phase := s.lock()["phase"]
	return strings.HasSuffix(phase, wants) || phase == wire.PhaseIdle
}

// lease is the longest that the present hold can last.
func (s state) lease() int64 {
	h := Hash{Owner: s.owner(), Phase: s.lock()["phase"]}
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
	if _, err := fmt.Sscanf(s.lock()["rests"], "%d:%d:%d", &token, &until, &least); err != nil || s.owner() == "" || token != s.number("token") {
		return 0, 0
	}
	return until, least
}

// give puts a hold in transit, mostly the present one.
func (p *player) give(t *line.Slot, s step, notAfter, floor int64) Request {
	if owner := p.Find(p.before.owner()); owner != nil && s.Choice > 0 {
		t = owner
	}
	if t.Text == "" || passesOf(t.Text) > 0 {
		return nil
	}
	p.Number++
	x := lua.Transit{Client: t.Ticket.Client, Lease: time.Duration(s.Grant) * time.Millisecond, Secret: strconv.FormatUint(p.Number, 10)}
	p.moving = append(p.moving, x)
	t.Ended = true
	return Move{
		From: t.Text, To: x.Ticket(), Token: t.Token - int64(s.Choice/6), Phase: wire.PhaseFinal,
		NotAfter: notAfter, Floor: floor, Uncounted: s.Blank,
	}
}

// adopt takes a hold out of transit, mostly the last, for a new ticket.
func (p *player) adopt(t *line.Slot, s step, notAfter, floor int64) Request {
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
		From: x.Ticket(), To: t.Text, Secret: secret, Phase: s.Phase(),
		NotAfter: notAfter, Floor: floor, Uncounted: s.Blank,
	}
}
