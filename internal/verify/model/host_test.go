package model

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/verify/model/line"
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// host is a server of the stage, asked as the clients of a lock ask it.
type host struct {
	stage.Host
	light *lightly
}

// lightly counts the requests without all keys, and those that were not enough.
type lightly struct{ answered, unusual int }

// scripts are those of the lock.
var scripts = []*lua.Script{
	lua.Fairlock.Ask, lua.Fairlock.End, lua.Fairlock.Renew, lua.Fairlock.Renewals, lua.Fairlock.Check, lua.Fairlock.Checks, lua.Fairlock.Force.Plain(), lua.Move,
	lua.Fairlock.Bury, lua.Fairlock.Bury.Logged(), lua.MultiAsk, lua.MultiEnd,
	lua.Fairlock.Ask.Logged(), lua.Fairlock.End.Logged(), lua.Fairlock.Check.Logged(), lua.Fairlock.Force.Plain().Logged(), lua.Move.Logged(),
}

func startEmbedded(t testing.TB) host { return hostOf(t, stage.Embed(t, scripts...)) }

// startStandalone returns also what lets the memory of the server be full.
func startStandalone(t testing.TB) (h host, fill func(full bool)) {
	s := stage.Serve(t, scripts...)
	return hostOf(t, s), s.Fill
}

// other is a hold that lasts, to be renewed ahead of others by the same script.
var other = struct{ key, ticket, token string }{"other", "other:1:x:1:1:1", "1"}

func hostOf(t testing.TB, s stage.Host) host {
	h := host{s, &lightly{}}
	require.NoError(t, h.besides())
	return h
}

// besides makes the other hold, which lasts a year.
func (h host) besides() error {
	return h.Do("HSET", other.key, "owner", other.ticket, "token", other.token, "until", stage.Decimal(h.Now()+365*24*60*minute)).Error()
}

// historic is a request to a lock that keeps a history, which only some scripts do.
func historic(k lua.Keys, history int, s *lua.Script, keys, args []string) ([]string, *lua.Script, []string) {
	if history == 0 || s.Logged() == nil {
		return keys, s, args
	}
	return append(slices.Clip(keys), k.History), s.Logged(), append(slices.Clip(args), fmt.Sprint(history))
}

func (h host) run(k lua.Keys, history int, r Request) (wire.Tuple, error) {
	s := r.Script()
	keys := stage.KeysOf(k, s, r.Args())
	if s == lua.Fairlock.Renew {
		keys = keys[:1]
		switch r := r.(Renew); {
		case r.Least > 0 || r.Keeps > 0:
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
		reply.Complete(wire.TicketTerms(a.Ticket))
	}
	return reply, err
}

// lightly asks without all keys, and reports whether that was enough. If not, it has changed nothing.
func (h host) lightly(k lua.Keys, history int, r Request) (reply wire.Tuple, ok bool, err error) {
	var ticket string
	var args []string
	switch r := r.(type) {
	case Ask:
		if !r.FastPath {
			return reply, false, nil
		}
		ticket, args, history = r.Ticket, r.Lightly(), 0 // It ends no hold.
	case End:
		if !r.FastPath {
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
	reply, err = r.Script().Tuple(h.Call(historic(k, history, r.Script(), k.FastPath(), args)))
	if err != nil || reply.Status != wire.MoreKeys {
		h.light.answered++
		lease, grant := wire.TicketTerms(ticket)
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
func (h host) renewals(k lua.Keys, r Renew) (reply wire.Tuple, ok bool, err error) {
	if r.Least > 0 || r.Keeps > 0 || r.Count > 0 || r.Wants && !r.Marked {
		return reply, false, nil
	}
	keys, others, which, phase := []string{k.Queue, k.Lock, k.Suspects}, []string{r.Ticket, stage.Decimal(r.Token)}, 1, wire.RenewHeld
	switch {
	case r.Marked:
		phase = wire.RenewWants
		if r.Phase == wire.PhaseIdle {
			phase = wire.RenewIdle
		}
	case r.Phase == wire.PhaseFinal:
		phase = wire.RenewFinal
	case r.Still:
		_ = h.besides() // It is there already where memory is full.
		keys, others, which, phase = []string{k.Queue, other.key, k.Lock}, []string{other.ticket, other.token}, 2, wire.RenewStill
	}
	args := [][]string{others, others, others}
	args[which] = []string{r.Ticket, stage.Decimal(r.Token)}
	phases := strings.Repeat(string(wire.RenewHeld), which) + string(phase) + strings.Repeat(string(wire.RenewHeld), 2-which)
	s := lua.Fairlock.Renewals
	res := h.Call(keys, s, slices.Concat([]string{stage.Decimal(r.NotAfter), stage.Decimal(r.Lease), phases}, slices.Concat(args...)))
	now, ends, left, err := s.DecodeRenewals(res, 3)
	if err != nil || !slices.Contains(left, 0) || !slices.Contains(left, 3-which) && !r.Still {
		return reply, false, fmt.Errorf("several renewals: without %v: %w", left, err)
	}
	return wire.Tuple{Status: wire.Granted, Now: now, Token: uint64(r.Token), Until: ends}, !slices.Contains(left, which), nil
}

func (h host) state(k lua.Keys) (state, error) {
	all, err := h.State(k)
	if err != nil {
		return state{}, err
	}
	past, left, err := h.past(k)
	return state{all, past, left}, err
}

// past is the history of a lock, and for how many µs it is kept.
func (h host) past(k lua.Keys) (past []string, lasts int64, err error) {
	past, err = h.Do("LRANGE", k.History, "0", "-1").AsStrSlice()
	if redisErr, ok := rueidis.IsRedisErr(err); ok && strings.HasPrefix(redisErr.Error(), "WRONGTYPE") {
		err = nil
	}
	left, _ := h.Do("PTTL", k.History).AsInt64()
	return past, max(left, 0) * millisecond, err
}

// order: the first that is alive is granted; where nobody is, whoever asks (I3). A lock is not left free
// with somebody alive in the queue (R3).
func (h *happened) order() error {
	if h.held() && !h.freed() || h.Reply.Status == wire.Late || h.Reply.Status == wire.Refused && !h.serves() {
		return nil
	}
	var first string
	for _, a := range h.queue() {
		if h.Reached(a) && h.Living(wire.TicketClient(a.Ticket)) {
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
	if h.after.owner() == "" && first != "" && !h.Reply.Has(wire.More) && !h.Reply.Has(wire.Unwoken) {
		return fmt.Errorf("the lock is free, and %s is alive", first)
	}
	return nil
}

// serves reports whether a request that was refused serves the queue all the same.
func (h *happened) serves() bool {
	_, renew := h.request.(Renew)
	return !renew
}

// dropped: only the dead leave the queue unasked.
func (h *happened) dropped() error {
	holds := func(ticket string) bool { return ticket == h.after.owner() }
	never := func(string) bool { return false }
	gone, err := h.Happened.Dropped(h.queue(), line.Drops, h.granted(), holds, never)
	if err == nil && len(gone) > 0 && h.held() && !h.freed() && h.Bound == nil && len(h.Bounds) == 0 {
		return fmt.Errorf("%v were dropped while the lock was held", gone)
	}
	return err
}

// forgotten: suspects are forgotten when they have shown that they live, or after a minute, and after ten where they wait since
// before.
func (h *happened) forgotten() error {
	if !h.before.calmed(h.after) {
		return nil
	}
	for client := range h.Before[2].Members {
		at := h.Before[2].Number(client)
		waits := func(a lua.Arrival) bool { return wire.TicketClient(a.Ticket) == client && a.Arrival < at }
		if client != h.Caller && (at > h.Now-minute || at > h.Now-10*minute && slices.ContainsFunc(line.QueueOf(h.Before), waits)) {
			return fmt.Errorf("%s is a suspect since %d, and was forgotten", client, at)
		}
	}
	return nil
}
