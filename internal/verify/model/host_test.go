package model

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

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
	lua.Fairlock.Ask, lua.Fairlock.End, lua.Fairlock.Renew, lua.Fairlock.Renewals, lua.Fairlock.Check, lua.Fairlock.Force, lua.Move,
	lua.MultiAsk, lua.MultiEnd,
	lua.Fairlock.Ask.Logged(), lua.Fairlock.End.Logged(), lua.Fairlock.Check.Logged(), lua.Fairlock.Force.Logged(), lua.Move.Logged(),
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
		if r.(Renew).Wants {
			keys = k.Wanting()
		}
		if reply, ok, err := h.renewals(k, r.(Renew)); ok || err != nil {
			return reply, err
		}
	}
	if reply, ok, err := h.lightly(k, history, r); ok || err != nil {
		return reply, err
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
	if r.Count > 0 || r.Wants && !r.Marked {
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
