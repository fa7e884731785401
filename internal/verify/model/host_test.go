package model

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/verify/model/line"
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/lua"
)

// host is a server of the stage, asked as the clients of a lock ask it.
type host struct {
	stage.Host
	light *lightly
}

// lightly counts the requests without all keys, and those that were not enough.
type lightly struct{ answered, unusual int }

var _ backend = host{}

// scripts are those of the lock.
var scripts = []*lua.Script{
	lua.Fairlock.Ask, lua.Fairlock.End, lua.Fairlock.Renew, lua.Fairlock.Renewals, lua.Fairlock.Check, lua.Fairlock.Checks, lua.Fairlock.Force.Plain(), lua.Move,
	lua.MultiAsk, lua.MultiEnd,
	lua.Fairlock.Ask.Logged(), lua.Fairlock.End.Logged(), lua.Fairlock.Check.Logged(), lua.Fairlock.Force.Plain().Logged(), lua.Move.Logged(),
}

func startEmbedded(t testing.TB) host { return hostOf(t, stage.Embed(t, scripts...)) }

// startStandalone returns also what lets the memory of the server be full.
func startStandalone(t testing.TB) (h host, fill func(full bool)) {
	s := stage.Serve(t, scripts...)
	return hostOf(t, s), s.Fill
}

// beside is a hold that lasts, to be renewed ahead of others by the same script.
var beside = struct{ key, ticket, token string }{"beside", "beside:1:x:1:1:1", "1"}

func hostOf(t testing.TB, s stage.Host) host {
	h := host{s, &lightly{}}
	require.NoError(t, h.besides())
	return h
}

// besides makes the hold beside, which lasts a year.
func (h host) besides() error {
	return h.Do("HSET", beside.key, "owner", beside.ticket, "token", beside.token, "until", stage.Decimal(h.Now()+365*24*60*minute)).Error()
}

// historic is a request to a lock that keeps a history, which only some scripts do.
func historic(k lua.Keys, history int, s *lua.Script, keys, args []string) ([]string, *lua.Script, []string) {
	if history == 0 || s.Logged() == nil {
		return keys, s, args
	}
	return append(slices.Clip(keys), k.History), s.Logged(), append(slices.Clip(args), fmt.Sprint(history))
}

func (h host) run(k lua.Keys, history int, r Request) (lua.Tuple, error) {
	s := r.Script()
	keys := k.All()
	if s == lua.Fairlock.Renew {
		keys = keys[:1]
		switch r := r.(Renew); {
		case r.Least > 0:
			keys = k.All()
		case r.Wants:
			keys = k.Wanting()
		}
		if reply, ok, err := h.renewals(k, r.(Renew)); ok || err != nil {
			return reply, err
		}
	}
	if reply, ok, err := h.lightly(k, history, r); ok || err != nil {
		return reply, err
	}
	if c, ok := r.(Check); ok && c.Together {
		if reply, ok, err := stage.Together(h, k, lua.Fairlock.Checks, c.NotAfter, c.Client, !c.Uncounted, c.Tickets); ok || err != nil {
			return reply, err
		}
	}
	reply, err := s.Tuple(h.Call(historic(k, history, s, keys, r.Args())))
	if a, ok := r.(Ask); ok {
		reply.Complete(lua.TicketTerms(a.Ticket))
	}
	return reply, err
}

// lightly asks without all keys, and reports whether that was enough. If not, it has changed nothing.
func (h host) lightly(k lua.Keys, history int, r Request) (reply lua.Tuple, ok bool, err error) {
	var ticket string
	var args []string
	switch r := r.(type) {
	case Ask:
		if !r.Light {
			return reply, false, nil
		}
		ticket, args, history = r.Ticket, r.Lightly(), 0 // It ends no hold.
	case End:
		if !r.Light {
			return reply, false, nil
		}
		ticket, args = r.Ticket, r.Lightly()
	default:
		return reply, false, nil
	}
	before, err := h.state(k)
	if err != nil {
		return reply, false, err
	}
	reply, err = r.Script().Tuple(h.Call(historic(k, history, r.Script(), k.Light(), args)))
	if err != nil || reply.Status != lua.MoreKeys {
		h.light.answered++
		lease, grant := lua.TicketTerms(ticket)
		reply.Complete(lease, grant)
		return reply, true, err
	}
	h.light.unusual++
	messages, err := h.Woken(k)
	if err != nil {
		return reply, false, err
	}
	after, err := h.state(k)
	if before.text() != after.text() || len(messages) > 0 {
		err = cmp.Or(err, fmt.Errorf("answers that it has done nothing, sends %q and changes\n%s\n  to\n%s", messages, before.text(), after.text()))
	}
	return reply, false, err
}

// renewals asks for a renewal as one of several, as a client does that has nothing to tell of entries, and reports
// whether it was done: else the single one answers. One of the others is of a key that is of another type, or absent; the
// third is renewed, or absent too.
func (h host) renewals(k lua.Keys, r Renew) (reply lua.Tuple, ok bool, err error) {
	if r.Least > 0 || r.Count > 0 || r.Wants && !r.Marked {
		return reply, false, nil
	}
	keys, others, which, phase := []string{k.Queue, k.Lock, k.Suspects}, []string{r.Ticket, stage.Decimal(r.Token)}, 1, lua.RenewHeld
	switch {
	case r.Marked:
		phase = lua.RenewWants
		if r.Phase == lua.PhaseIdle {
			phase = lua.RenewIdle
		}
	case r.Phase == lua.PhaseFinal:
		phase = lua.RenewFinal
	case r.Still:
		_ = h.besides() // It is there already where memory is full.
		keys, others, which, phase = []string{k.Queue, beside.key, k.Lock}, []string{beside.ticket, beside.token}, 2, lua.RenewStill
	}
	args := [][]string{others, others, others}
	args[which] = []string{r.Ticket, stage.Decimal(r.Token)}
	phases := strings.Repeat(string(lua.RenewHeld), which) + string(phase) + strings.Repeat(string(lua.RenewHeld), 2-which)
	s := lua.Fairlock.Renewals
	res := h.Call(keys, s, slices.Concat([]string{stage.Decimal(r.NotAfter), stage.Decimal(r.Lease), phases}, slices.Concat(args...)))
	now, ends, left, err := s.DecodeRenewals(res, 3)
	if err != nil || !slices.Contains(left, 0) || !slices.Contains(left, 3-which) && !r.Still {
		return reply, false, fmt.Errorf("several renewals: without %v: %w", left, err)
	}
	return lua.Tuple{Status: lua.Granted, Now: now, Token: uint64(r.Token), Until: ends}, !slices.Contains(left, which), nil
}

func (h host) put(k lua.Keys, tickets []lua.Arrival, high, lives int64) error {
	args := []string{"ZADD", k.Queue}
	for _, a := range tickets {
		args = append(args, stage.Decimal(a.Arrival), a.Ticket)
	}
	if err := h.Do(args...).Error(); err != nil {
		return err
	}
	if high != 0 {
		if err := h.Do("HSET", k.Lock, "high", stage.Decimal(high)).Error(); err != nil {
			return err
		}
	}
	return h.Do("PEXPIRE", k.Queue, stage.Decimal(lives/millisecond)).Error()
}

func (h host) state(k lua.Keys) (state, error) {
	all, err := h.State(k)
	if err != nil {
		return state{}, err
	}
	s := state{lock: all[0].Members, queue: sorted(all[1]), suspects: sorted(all[2])}
	for i := range all {
		s.left[i] = all[i].Left
	}
	s.past, err = h.Do("LRANGE", k.History, "0", "-1").AsStrSlice()
	if redisErr, ok := rueidis.IsRedisErr(err); ok && strings.HasPrefix(redisErr.Error(), "WRONGTYPE") {
		err = nil
	}
	if left, _ := h.Do("PTTL", k.History).AsInt64(); left > 0 {
		s.left[3] = left * millisecond
	}
	return s, err
}

// sorted is a set in the order in which Redis has it.
func sorted(k stage.Key) []scored {
	var list []scored
	for name, score := range k.Members {
		list = append(list, scored{name, score})
	}
	slices.SortFunc(list, func(a, b scored) int {
		return cmp.Or(cmp.Compare(k.Number(a.name), k.Number(b.name)), strings.Compare(a.name, b.name))
	})
	return list
}

// reached reports whether a pass looks at a ticket: up to the cursor of the pass before nobody was alive. But
// if the request names a ticket that stands there, the pass begins at the head again.
func (h *happened) reached(a lua.Arrival) bool {
	if h.scan == nil || a.Arrival > h.scan.Arrival {
		return true
	}
	var named []lua.Arrival
	switch r := h.request.(type) {
	case Ask:
		for _, s := range h.before.queue {
			if arrival, _ := strconv.ParseInt(s.score, 10, 64); s.name == r.Ticket {
				named = append(named, lua.Arrival{Ticket: s.name, Arrival: arrival})
			}
		}
	case Check:
		named = r.Tickets
	}
	return slices.ContainsFunc(named, func(b lua.Arrival) bool { return b.Arrival <= h.scan.Arrival })
}

// order: the first that is alive is granted; where nobody is, whoever asks (I3). A lock is not left free
// with somebody alive in the queue (R3).
func (h *happened) order() error {
	if h.held() && !h.freed() || h.reply.Status == lua.Late || h.reply.Status == lua.Refused && !h.serves() {
		return nil
	}
	var first string
	for _, a := range h.queue() {
		if h.reached(a) && h.alive(lua.TicketClient(a.Ticket)) {
			first = a.Ticket
			break
		}
	}
	if h.granted() && first != "" && h.after.owner() != first {
		return fmt.Errorf("%s was granted, %s is the first that is alive", h.after.owner(), first)
	}
	if h.granted() && first == "" {
		if ask, ok := h.request.(Ask); !ok || ask.Ticket != h.after.owner() {
			return fmt.Errorf("%s was granted and is not alive", h.after.owner())
		}
	}
	if h.after.owner() == "" && first != "" && !h.reply.Has(lua.More) && !h.reply.Has(lua.Unwoken) {
		return fmt.Errorf("the lock is free, and %s is alive", first)
	}
	return nil
}

// serves reports whether a request that was refused serves the queue all the same.
func (h *happened) serves() bool {
	_, renew := h.request.(Renew)
	return !renew
}

// dropped: only the dead leave the queue unasked, and where it looks as if the server had lost its
// subscriptions nobody does before a mark has passed (R6).
func (h *happened) dropped() error {
	stays := map[string]bool{h.after.owner(): true}
	for _, s := range h.after.queue {
		stays[s.name] = true
	}
	named := map[string]bool{} // by a check: what it names of a deaf client leaves the queue
	if check, ok := h.request.(Check); ok {
		for _, a := range check.Tickets {
			named[a.Ticket] = true
		}
	}
	var gone []string
	silent, alive := map[string]bool{}, false
	for _, a := range h.queue() {
		client := lua.TicketClient(a.Ticket)
		alive = alive || h.alive(client)
		if !h.alive(client) && !h.suspect(client) {
			silent[client] = true
		}
		if stays[a.Ticket] || named[a.Ticket] {
			continue
		}
		gone = append(gone, a.Ticket)
		if stage.Lease(a.Ticket) != 0 && h.alive(client) && h.reached(a) {
			return fmt.Errorf("%s was dropped though it is alive", a.Ticket)
		}
	}
	switch mark := h.before.number("mark"); {
	case len(gone) == 0:
	case len(gone) > line.Drops:
		return fmt.Errorf("%d tickets were dropped at once", len(gone))
	case !h.granted() && !alive && len(silent) >= 2 && (mark == 0 || h.now < mark):
		return fmt.Errorf("%v were dropped although %d clients are silent and nobody is alive", gone, len(silent))
	case h.held() && !h.freed() && !h.bounded():
		return fmt.Errorf("%v were dropped while the lock was held", gone)
	}
	return nil
}

// bounded reports whether the request had to see whether there is room.
func (h *happened) bounded() bool {
	switch r := h.request.(type) {
	case Ask:
		return r.Bound != nil
	case Check:
		return len(r.Bounds) > 0
	}
	return false
}

// placed: the places and the arrival in a reply are those in the queue.
func (h *happened) placed() error {
	place := func(ticket string) int {
		rank := slices.IndexFunc(h.after.queue, func(s scored) bool { return s.name == ticket })
		if rank >= 0 && h.after.owner() != "" {
			rank++
		}
		return rank
	}
	switch r := h.request.(type) {
	case Ask:
		if h.reply.Status != lua.Waiting || h.reply.Place < 0 {
			return nil
		}
		at := slices.IndexFunc(h.after.queue, func(s scored) bool { return s.name == r.Ticket })
		if at < 0 || h.reply.Place != int64(place(r.Ticket)) {
			return fmt.Errorf("place %d in the reply, %d in the queue", h.reply.Place, place(r.Ticket))
		}
		if score := h.after.queue[at].score; score != stage.Decimal(h.reply.Arrival) {
			return fmt.Errorf("arrival %d in the reply to %s, %s in the queue", h.reply.Arrival, r.Ticket, score)
		}
	case Check:
		for i, state := range h.reply.States {
			kind, at, queued := strings.Cut(state, " ")
			queued = queued && kind != lua.StateFull
			if want := place(r.Tickets[i].Ticket); queued != (want >= 0) || queued && at != strconv.Itoa(want) {
				return fmt.Errorf("%s is %q %s, its place is %d", r.Tickets[i].Ticket, kind, at, want)
			}
		}
	}
	return nil
}

// forgotten: suspects are forgotten when they have shown that they live, or after a minute, and after ten where they wait since
// before.
func (h *happened) forgotten() error {
	if !h.before.calmed(h.after) {
		return nil
	}
	for _, s := range h.before.suspects {
		at, _ := strconv.ParseInt(s.score, 10, 64)
		waits := func(a lua.Arrival) bool { return lua.TicketClient(a.Ticket) == s.name && a.Arrival <= at }
		if s.name != h.caller() && (at > h.now-minute || at > h.now-10*minute && slices.ContainsFunc(arrivals(h.before), waits)) {
			return fmt.Errorf("%s is a suspect since %d, and was forgotten", s.name, at)
		}
	}
	return nil
}

// room: who finds a full queue is told so, nobody else is, and it leaves nothing (I11).
func (h *happened) room() error {
	r := line.Room{Looked: h.before.lock["looked"], Now: h.now, Alive: h.alive}
	r.Before, r.After = arrivals(h.before), arrivals(h.after)
	switch q := h.request.(type) {
	case Ask:
		return r.Asked(q.Ticket, q.Bound, h.reply.Status == lua.Full, h.arrived())
	case Check:
		return r.Checked(q.Tickets, q.Bounds, h.reply.States)
	}
	return nil
}

// arrivals are those of the queue.
func arrivals(s state) []lua.Arrival {
	var all []lua.Arrival
	for _, t := range s.queue {
		arrival, _ := strconv.ParseInt(t.score, 10, 64)
		all = append(all, lua.Arrival{Ticket: t.name, Arrival: arrival})
	}
	return all
}
