package model

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/headwaiter/headwaiter/internal/model/stage"
	"github.com/headwaiter/headwaiter/lua"
)

// host is a server of the stage, asked as the clients of a lock ask it.
type host struct{ stage.Host }

var _ backend = host{}

// scripts are those of the lock.
var scripts = []*lua.Script{
	lua.Fairlock.Ask, lua.Fairlock.End, lua.Fairlock.Renew, lua.Fairlock.Renewals, lua.Fairlock.Check, lua.Fairlock.Force,
}

// startEmbedded returns also what sets the clock of the server.
func startEmbedded(t testing.TB) (h host, set func(now int64)) {
	s := stage.Embed(t, scripts...)
	return host{s}, s.Set
}

// startStandalone returns also what lets the memory of the server be full.
func startStandalone(t testing.TB) (h host, fill func(full bool)) {
	s := stage.Serve(t, scripts...)
	return host{s}, s.Fill
}

func (h host) run(k lua.Keys, r Request) (lua.Reply, error) {
	s := r.Script()
	keys := k.All()
	if s == lua.Fairlock.Renew {
		keys = keys[:1]
		if reply, ok, err := h.renewals(k, r.Args()); ok || err != nil {
			return reply, err
		}
	}
	return s.Decode(h.Call(keys, s, r.Args()))
}

// renewals asks for a renewal as one of several, as a client does that has nothing to tell of entries, and reports
// whether it was done: else the single one answers. The others are of a key that is of another type, or absent.
func (h host) renewals(k lua.Keys, args []string) (reply lua.Reply, ok bool, err error) {
	if len(args) > 6 {
		return reply, false, nil
	}
	s, hold := lua.Fairlock.Renewals, args[:4]
	res := h.Call([]string{k.Queue, k.Lock, k.Suspects}, s, slices.Concat(args[4:6], hold, hold, hold))
	now, ends, err := s.DecodeRenewals(res, 3)
	if err != nil || ends[0] != 0 || ends[2] != 0 {
		return reply, false, fmt.Errorf("several renewals: %v: %w", ends, err)
	}
	token, _ := strconv.ParseUint(hold[1], 10, 64)
	return lua.Reply{Status: lua.Granted, Now: now, Token: token, Until: ends[1]}, ends[1] != 0, nil
}

func (h host) put(k lua.Keys, tickets []lua.Arrival, lives int64) error {
	args := []string{"ZADD", k.Queue}
	for _, a := range tickets {
		args = append(args, decimal(a.Arrival), a.Ticket)
	}
	if err := h.Do(args...).Error(); err != nil {
		return err
	}
	return h.Do("PEXPIRE", k.Queue, decimal(lives/millisecond)).Error()
}

func (h host) sent(k lua.Keys) ([]Sent, error) {
	woken, err := h.Woken(k)
	var sent []Sent
	for _, m := range woken {
		sent = append(sent, Sent(m))
	}
	return sent, err
}

func (h host) state(k lua.Keys) (state, error) {
	all, err := h.State(k)
	if err != nil {
		return state{}, err
	}
	s := state{lock: all[0].Members, queue: sorted(all[1]), suspects: sorted(all[2])}
	for i := range s.left {
		s.left[i] = all[i].Left
	}
	return s, nil
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
