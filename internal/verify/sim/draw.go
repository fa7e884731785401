package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/headwaiter/headwaiter/redlock"
)

// A draw makes a plan by chance.
type draw struct {
	*rand.Rand
	plan Plan
	only []Kind
}

// Draw returns the plan of a seed; with kinds, one for these primitives alone.
func Draw(seed uint64, only ...Kind) Plan { return Storm(seed, 1, only...) }

// Storm returns the plan of a seed with times as many faults.
func Storm(seed uint64, times int, only ...Kind) Plan {
	d := &draw{Rand: rand.New(rand.NewPCG(seed, 0x6865616477616974)), plan: Plan{Seed: seed, Only: only, Storm: times, Servers: 1}, only: only}
	d.plan.Length = d.span(3*time.Second, 9*time.Second)
	if d.one(4) {
		d.plan.Drift = d.span(-900*time.Microsecond, 900*time.Microsecond)
	}
	d.clients()
	d.objects()
	d.bounds(seed)
	d.actors()
	for range times {
		d.faults()
	}
	return d.plan
}

// one is true once in n times.
func (d *draw) one(n int) bool { return d.IntN(n) == 0 }

// span is a time between two others, in whole µs.
func (d *draw) span(from, to time.Duration) time.Duration {
	return from + time.Duration(d.Int64N(int64(to-from)/1000+1))*time.Microsecond
}

// some is a time up to most, short ones as often as long ones.
func (d *draw) some(least, most time.Duration) time.Duration {
	top := most
	for top/4 > least && d.one(2) {
		top /= 4
	}
	return d.span(least, top)
}

func pick[T any](d *draw, from ...T) T { return from[d.IntN(len(from))] }

func (d *draw) clients() {
	for i := range 2 + d.IntN(3) {
		c := ClientPlan{
			Latency:    d.some(150*time.Microsecond, 4*time.Millisecond) + time.Duration(i)*13*time.Microsecond,
			GrantLease: pick(d, 2*time.Second, 2*time.Second, 500*time.Millisecond, 150*time.Millisecond),
			Linger:     pick(d, 5*time.Second, time.Second, 100*time.Millisecond),
		}
		if i > 1 && d.one(3) {
			c.Start = d.some(0, d.plan.Length/2)
		}
		d.plan.Clients = append(d.plan.Clients, c)
	}
}

func (d *draw) objects() {
	for range 1 + d.IntN(2) {
		o := Object{Kind: Kind(d.IntN(int(kinds)))}
		if len(d.only) > 0 {
			o.Kind = pick(d, d.only...)
		}
		o.Lease = pick(d, 400*time.Millisecond, time.Second, 3*time.Second, 10*time.Second)
		if d.one(6) && o.Kind != Several {
			o.MaxHold = d.some(50*time.Millisecond, 2*o.Lease)
		}
		switch o.Kind {
		case Redlock:
			if o.MaxHold > 0 {
				o.MaxHold = max(o.MaxHold, redlock.MinLease)
			}
			o.Trusts = d.one(3)
			d.plan.Servers, d.plan.Objects = pick(d, 3, 3, 4, 5), []Object{o} // Of the servers nothing else is.
			if d.one(2) {
				d.plan.Apart = d.some(0, o.Lease/8) // All of them within a lease.
			}
			return
		case Striped, Several:
			o.Size = int64(2 + d.IntN(2))
			o.Bound = pick(d, time.Second, 100*time.Millisecond)
		case Latch:
			o.Size = int64(1 + d.IntN(8))
		case Barrier:
			o.Size = int64(2 + d.IntN(2))
		}
		d.plan.Objects = append(d.plan.Objects, o)
	}
}

// bounds draws short bounds of calls for several names, and maxima of their holds, by a chance of its own: what else
// a seed has is what it was without. A bound has to be many round trips.
func (d *draw) bounds(seed uint64) {
	own := &draw{Rand: rand.New(rand.NewPCG(seed, 0x626f756e6473))}
	var far time.Duration
	for _, c := range d.plan.Clients {
		far = max(far, 2*c.Latency)
	}
	for i := range d.plan.Objects {
		o := &d.plan.Objects[i]
		if o.Kind == Several && own.one(3) {
			o.Bound = own.span(5*far, 10*far)
		}
		if o.Kind == Several && own.one(3) {
			o.MaxHold = own.some(50*time.Millisecond, o.Lease)
		}
	}
}

func (d *draw) actors() {
	for i, o := range d.plan.Objects {
		n := 2 + d.IntN(4)
		switch o.Kind {
		case Barrier:
			n = int(o.Size) * (1 + d.IntN(2))
		case Latch:
			n += 2
		}
		for k := range n {
			a := ActorPlan{Client: (k + i) % len(d.plan.Clients), Object: i}
			if d.one(4) {
				a.Client = d.IntN(len(d.plan.Clients))
			}
			for range 2 + d.IntN(5) {
				a.Steps = append(a.Steps, d.step(o))
			}
			d.plan.Actors = append(d.plan.Actors, a)
		}
	}
}

func (d *draw) step(o Object) Step {
	s := Step{After: d.some(0, 800*time.Millisecond)}
	if d.one(4) {
		s.Patience, s.Cancel = d.some(100*time.Microsecond, 3*time.Second), d.one(2)
	}
	switch o.Kind {
	case Mutex, Redlock:
		s.Do = pick(d, Lock, Lock, Lock, Try)
	case Election:
		s.Do = pick(d, Lock, Proclaim)
	case Striped:
		s.Do = pick(d, Lock, Lock, Lock, Try)
		s.Parts = 1 << d.IntN(int(o.Size))
	case Several:
		s.Do = pick(d, Lock, Lock, Lock, Try, Each, TryEach)
		s.Parts = Parts(1 + d.IntN(1<<o.Size-1))
		if s.Do == Each && s.Patience == 0 {
			s.Patience = d.some(50*time.Millisecond, 2*time.Second) // Two of them may wait for each other.
		}
	case Latch:
		s.Do = pick(d, Await, Await, Down, Down, Down, Down, Set)
		s.After *= 2
		return s
	case Barrier:
		s.Do = pick(d, Await, Await, Await, Await, Reset)
		return s
	}
	if d.one(8) {
		s.Priority = pick(d, -2, 1, 3)
	}
	// Long holds now and then: an over-grant must last to be seen.
	s.Hold = d.some(time.Millisecond, 1200*time.Millisecond)
	if d.one(12) {
		s.Hold = d.span(time.Second, 3*time.Second)
	}
	return s
}

// faults draws what goes wrong. A third of the plans have one fault alone, so that what it may excuse is little;
// a third have many of one or two kinds, and the rest have all there are.
func (d *draw) faults() {
	if d.one(12) {
		return
	}
	if d.plan.Servers > 1 && d.one(2) {
		d.bare()
		return
	}
	n, among := 1, int(faultKinds)
	theme := d.Perm(int(faultKinds))
	switch d.IntN(3) {
	case 0:
		n = 2 + d.IntN(7)
	case 1:
		n, among = 3+d.IntN(6), 1+d.IntN(2)
	}
	for range n {
		f := Fault{
			At: d.span(50*time.Millisecond, d.plan.Length*4/5), Kind: FaultKind(theme[d.IntN(among)]),
			Client: d.IntN(len(d.plan.Clients)), Object: d.IntN(len(d.plan.Objects)), N: 1 + d.IntN(4),
			For: d.some(20*time.Millisecond, 3500*time.Millisecond),
		}
		if d.plan.Servers > 1 {
			f.Server = d.IntN(d.plan.Servers)
		}
		if d.one(2) {
			f.At = d.span(50*time.Millisecond, d.plan.Length/3) // When there is most to disturb.
		}
		if f.Kind == LoseReplies || f.Kind == LosePushes {
			f.For += 2 * time.Second // They wait for their victims.
		}
		if f.Kind.deadly() && d.deaths() >= len(d.plan.Clients)-1 {
			continue // Somebody has to live to tell of it.
		}
		d.plan.Faults = append(d.plan.Faults, f)
	}
	slices.SortFunc(d.plan.Faults, func(a, b Fault) int { return int(a.At - b.At) })
}

// bare cuts a client off from just as many servers that its holds have no vote to spare, if it has any, and costs others
// their data.
func (d *draw) bare() {
	client, few := d.IntN(len(d.plan.Clients)), pick(d, d.plan.Servers-1, d.plan.Servers)/2
	for i := range few {
		d.plan.Faults = append(d.plan.Faults, Fault{At: 50 * time.Millisecond, For: d.plan.Length, Kind: Outage, Client: client, Server: i, N: 1})
	}
	for range 3 + d.IntN(5) {
		d.plan.Faults = append(d.plan.Faults, Fault{
			At: d.span(100*time.Millisecond, d.plan.Length*4/5), For: d.some(20*time.Millisecond, time.Second),
			Kind: pick(d, RestartEmpty, RestartEmpty, RestartEmpty, FlushAll, ClockAhead, Restart), Client: client, Server: few + d.IntN(d.plan.Servers-few), N: 1 + d.IntN(4),
		})
	}
	slices.SortFunc(d.plan.Faults, func(a, b Fault) int { return int(a.At - b.At) })
}

// deaths is how many clients die.
func (d *draw) deaths() int {
	seen := map[int]bool{}
	for _, f := range d.plan.Faults {
		if f.Kind.deadly() {
			seen[f.Client] = true
		}
	}
	return len(seen)
}
