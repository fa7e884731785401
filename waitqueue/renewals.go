package waitqueue

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/lua"
)

// Renewals of several holds in one script: to start one costs the server as much as what it does for a hold. They come
// together because renewals are due at the ticks of a grid, which begins when the client does.

const (
	// renewalsInScript is how many holds one script renews at the most, which takes the server about 0.6 ms.
	renewalsInScript = 128
	// renewalGrid is how many ticks there are in a lease.
	renewalGrid = 128
)

// renewAt is when a hold is to be renewed that was granted or renewed at a time for so long: a third of that later, since
// two renewals may then fail before the lease is in doubt, or at the tick before.
func (c *client) renewAt(from time.Time, lasts time.Duration) time.Time {
	due := from.Add(lasts / 3)
	if grid := lasts / renewalGrid; grid > 0 {
		due = due.Add(-(due.Sub(c.born) % grid))
	}
	return due
}

// renewTogether renews what can go together, and returns the rest: what is of another kind, or has more to tell, or was
// not renewed by such a script, which does nothing where anything is unusual.
func (c *client) renewTogether(n *conn.Node, a conn.Attempt, asked []renewal) (alone []renewal) {
	type alike struct {
		script *lua.Script
		lasts  time.Duration
	}
	groups := make(map[alike][]renewal, 1)
	for _, r := range asked {
		if s := r.hold.ticket.site.proto.Renewals; s != nil && r.entries == "" && (r.wish == noWish || r.wish == said && !r.final) {
			group := alike{s, r.lasts}
			groups[group] = append(groups[group], r)
		} else {
			alone = append(alone, r)
		}
	}
	var jobs []conn.Job
	var parts [][]renewal
	for as, group := range groups {
		for _, part := range c.inScripts(group) {
			if len(part) == 1 {
				alone = append(alone, part[0])
				continue
			}
			jobs = append(jobs, c.renewalsJob(as.script, as.lasts, part, a))
			parts = append(parts, part)
		}
	}
	if len(jobs) == 0 {
		return alone
	}
	for i, res := range c.servers.RunBeside(n, jobs) {
		part := parts[i]
		now, ends, left, err := jobs[i].Script.DecodeRenewals(res, len(part))
		switch {
		case err == nil:
			n.Clock.Observe(a, now, false)
		case conn.Answered(err):
			alone = append(alone, part...) // Each is told why by its own.
			continue
		}
		for k, r := range part {
			if len(left) > 0 && left[0] == k {
				left = left[1:]
				alone = append(alone, r)
				continue
			}
			if err == nil && !r.still {
				r.hold.kept = ends + lua.Spare.Microseconds()
			}
			r.answered(a, &lua.Reply{Status: lua.Granted, Now: now, Token: r.hold.token, Until: ends}, err)
		}
	}
	return alone
}

// inScripts parts renewals into those that one script may do: in a cluster, of one slot.
func (c *client) inScripts(group []renewal) (parts [][]renewal) {
	if !c.servers.Clustered() {
		return slices.Collect(slices.Chunk(group, renewalsInScript))
	}
	slot := func(r renewal) uint16 { return r.hold.ticket.site.slot }
	slices.SortFunc(group, func(a, b renewal) int { return cmp.Compare(slot(a), slot(b)) })
	for len(group) > 0 {
		n := 1
		for n < min(len(group), renewalsInScript) && slot(group[n]) == slot(group[0]) {
			n++
		}
		parts = append(parts, group[:n])
		group = group[n:]
	}
	return parts
}

func (c *client) renewalsJob(s *lua.Script, lasts time.Duration, part []renewal, a conn.Attempt) conn.Job {
	keys := make([]string, len(part))
	args := make([]string, 3, 3+2*len(part))
	phases := make([]byte, len(part))
	for i := range part {
		r := &part[i]
		t := r.hold.ticket
		r.still = !r.final && r.wish == noWish && r.hold.outlives(a.Latest, lasts)
		switch {
		case r.final:
			phases[i] = lua.RenewFinal
		case r.wish != noWish && r.idle:
			phases[i] = lua.RenewIdle
		case r.wish != noWish:
			phases[i] = lua.RenewWants
		case r.still:
			phases[i] = lua.RenewStill
		default:
			phases[i] = lua.RenewHeld
		}
		keys[i] = t.site.keys.Lock
		args = append(args, t.text, strconv.FormatUint(r.hold.token, 10))
	}
	args[0], args[1], args[2] = a.NotAfter, strconv.FormatInt(lasts.Milliseconds(), 10), string(phases)
	return conn.Job{Script: s, Keys: keys, Args: args}
}

// outlives reports whether the key of a hold is known to live longer than a lease that begins no later than latest, in
// server µs. Then a renewal need not prolong it. That is safe: every script that sets the life of a key leaves at least a
// minute beyond the present lease, and the lease of a hold only ever moves later.
func (h *hold) outlives(latest int64, lasts time.Duration) bool {
	return latest+(lasts+lua.Least).Microseconds() <= h.kept
}
