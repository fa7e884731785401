package traces

import (
	"slices"

	"github.com/headwaiter/headwaiter/internal/verify/sim"
)

// covered are the faults that the specification has.
var covered = []sim.FaultKind{
	sim.Cut, sim.Outage, sim.Pause, sim.DropOut, sim.DropIn, sim.Slow, sim.LateRequests, sim.LateReplies, sim.LoseReplies,
	sim.LosePushes, sim.Die, sim.DieSilent, sim.DieLate, sim.LoseMessages, sim.LateMessages, sim.DoubleMessages, sim.Restart, sim.FlushScripts,
}

// How many clients there are at the most, and tickets of each.
const clients, most = 3, 9

// plan is the plan of a seed, as far as the specification goes: one mutex, three clients at the most.
func plan(seed uint64) sim.Plan {
	p := sim.Draw(seed, sim.Mutex)
	p.Traced, p.Drift = true, 0
	p.Objects = p.Objects[:1]
	p.Objects[0].MaxHold, p.Objects[0].Limit = 0, 0
	p.Clients = p.Clients[:min(len(p.Clients), clients)]
	var actors []sim.ActorPlan
	for _, a := range p.Actors {
		if a.Object > 0 {
			continue
		}
		a.Client %= len(p.Clients)
		for i := range a.Steps {
			s := &a.Steps[i]
			s.Do, s.Priority = sim.Lock, 0
		}
		actors = append(actors, a)
	}
	p.Actors = actors
	p.Faults = slices.DeleteFunc(p.Faults, func(f sim.Fault) bool { return !slices.Contains(covered, f.Kind) || f.Client >= len(p.Clients) })
	return p
}
