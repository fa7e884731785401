package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// A Keeping is many names that are held at once.
type Keeping struct {
	Leases int `json:"leases"`
	// Clients hold them in turn; 0 stands for one.
	Clients int `json:"clients,omitempty"`
	// Kind is what is held; empty for a mutex. Each name has one holder.
	Kind string `json:"synchronizer,omitempty"`
	// Lease is how long each lasts unless it is renewed; 0 for the contender's own.
	Lease time.Duration `json:"lease_ns,omitempty"`
	// For is how long their renewals are watched; 0: not at all.
	For time.Duration `json:"-"`
	// Load is for how long 64 workers lock and release meanwhile; 0: not at all.
	Load time.Duration `json:"-"`
	// Apart: each operation is looked at for itself, what is refused too, and what is left when all are released.
	Apart bool `json:"-"`
}

// An Operation is what one call costs where 64 are under way at a time.
type Operation struct {
	PerSecond float64 `json:"per_s"`
	Server    float64 `json:"server_cpu_us"`
	Client    float64 `json:"client_cpu_us"`
}

// Holds is W8: what it costs to keep many leases.
type Holds struct {
	Contender string `json:"contender"`
	Keeping
	Seconds float64 `json:"seconds"`
	// Due is how many renewals a third of the lease asks for, Done how many there were, whatever number a script does.
	Due  float64 `json:"due"`
	Done float64 `json:"done"`
	// Late is the longest delay of a renewal after a third of its lease, in ms, Left the least that was left of a
	// lease.
	Late float64 `json:"late_ms"`
	Left float64 `json:"left_ms"`
	// CPU of the client's process and of Redis, in parts of one CPU.
	ClientCPU float64 `json:"client_cpu"`
	RedisCPU  float64 `json:"redis_cpu"`
	// Lost are leases that were lost, while 64 workers locked and released as often as PerSecond.
	Lost      int     `json:"lost"`
	PerSecond float64 `json:"beside_per_s"`
	// Lock, Refused and Release are looked at apart; Refused where the lock can be tried.
	Lock    Operation `json:"lock,omitzero"`
	Refused Operation `json:"refused,omitzero"`
	Release Operation `json:"release,omitzero"`
	// Server and Client are bytes for each of them, where they are looked at apart.
	Server float64 `json:"server_bytes,omitempty"`
	Client float64 `json:"client_bytes,omitempty"`
	// Kept are the keys that outlast [Spare] when all is released: there should be none.
	Kept int `json:"keys_kept,omitempty"`
}

// Renewal is what one renewal costs; nothing where none was seen.
func (h Holds) Renewal() (o Operation) {
	if h.Done > 0 {
		o = Operation{PerSecond: h.Done / h.Seconds, Server: h.RedisCPU * h.Seconds / h.Done * 1e6, Client: h.ClientCPU * h.Seconds / h.Done * 1e6}
	}
	return o
}

const (
	holdsFor    = 10 * time.Second // a lease by default, so three renewals each
	loadFor     = 4 * time.Second
	loadCrew    = 64
	holdsLook   = 200 * time.Millisecond // Looking at ten thousand costs the client too.
	holdsAtOnce = 64
	// Spare is how long the keys of a name outlast its last hold at most.
	Spare = 75 * time.Second
)

// UsualKeeping is n leases as W8 has them.
func UsualKeeping(n int) Keeping { return Keeping{Leases: n, For: holdsFor, Load: loadFor} }

// String names it as tables do.
func (k Keeping) String() string {
	text := fmt.Sprintf("W8 n=%d", k.Leases)
	if k.Clients > 1 {
		text += fmt.Sprintf(" C=%d", k.Clients)
	}
	if k.Lease > 0 {
		text += fmt.Sprintf(" lease=%v", k.Lease)
	}
	if k.Kind != "" {
		text += " " + k.Kind
	}
	return text
}

// holds measures leases of each contender whose holds tell how long they last.
func (r *runner) holds(ctx context.Context, k Keeping) error {
	return each(ctx, r, "holds", k.String(), &r.report.Holds, Contender.here, func(c Contender) (Holds, string, error) {
		if c.Lease == 0 {
			return Holds{}, "", errNotFor
		}
		found, err := r.keep(ctx, c, k)
		text := fmt.Sprintf("%.0f renewals of %.0f due, %.0f ms late at most, %d lost", found.Done, found.Due, found.Late, found.Lost)
		if k.Apart {
			text += fmt.Sprintf("; lock %.1f, refused %.1f, renew %.1f, release %.1f µs of Redis, %.0f and %.0f bytes, %d keys kept",
				found.Lock.Server, found.Refused.Server, found.Renewal().Server, found.Release.Server, found.Server, found.Client, found.Kept)
		}
		return found, text, err
	})
}

// keeping are leases under observation.
type keeping struct {
	Keeping
	name    string
	clients []Client
	mutexes []Mutex
	held    []Lasting
}

// mutex names one of them, for the client that holds it.
func (k *keeping) mutex(i int) Mutex {
	client, name := k.clients[i%len(k.clients)], fmt.Sprintf("%s:%d", k.name, i)
	if k.Kind != "" {
		if family, ok := client.(Family); ok {
			return family.Of(k.Kind, 1, name)
		}
		return nil
	}
	if k.Lease > 0 {
		if leased, ok := client.(Leased); ok {
			return leased.Lasting(name, k.Lease)
		}
		return nil
	}
	return client.Mutex(name)
}

// all does something with each name, 64 at once.
func (k *keeping) all(ctx context.Context, do func(ctx context.Context, i int) error) error {
	return inParallel(ctx, holdsAtOnce, func(ctx context.Context, i int) error {
		for ; i < k.Leases; i += holdsAtOnce {
			if err := do(ctx, i); err != nil {
				return err
			}
		}
		return nil
	})
}

func (k *keeping) lock(ctx context.Context, i int) error {
	h, err := k.mutexes[i].Lock(ctx)
	if err != nil {
		return err
	}
	var ok bool
	if k.held[i], ok = h.(Lasting); !ok {
		return errNotFor
	}
	return nil
}

// try asks for a name that is held, as the client after its holder.
func (k *keeping) try(ctx context.Context, i int) error {
	refused, err := k.mutexes[i].(Trier).Try(ctx)
	if err == nil && !refused {
		err = fmt.Errorf("bench: %s %d is held, and a try got it", k.name, i)
	}
	return err
}

func (k *keeping) release(ctx context.Context, i int) error {
	if k.held[i] == nil {
		return nil
	}
	if err := k.held[i].Release(ctx); k.Apart {
		return err
	}
	return nil // One that was lost has been counted.
}

func (r *runner) keep(ctx context.Context, c Contender, wanted Keeping) (found Holds, err error) {
	if wanted.Apart {
		if err := r.renew(); err != nil { // What others have left is not its own.
			return found, err
		}
	}
	found = Holds{Contender: c.Name, Keeping: wanted}
	k := &keeping{Keeping: wanted, name: fmt.Sprintf("%s:%s:holds:%s", r.prefix, c.Name, wanted.Kind), held: make([]Lasting, wanted.Leases), mutexes: make([]Mutex, wanted.Leases)}
	defer func() {
		for _, client := range k.clients {
			err = errors.Join(err, client.Shutdown(context.WithoutCancel(ctx)))
		}
	}()
	for range max(k.Clients, 1) {
		client, err := c.Driver.NewClient(ctx)
		if err != nil {
			return found, err
		}
		k.clients = append(k.clients, client)
	}
	for i := range k.mutexes {
		if k.mutexes[i] = k.mutex(i); k.mutexes[i] == nil {
			return found, errNotFor
		}
	}
	empty, err := r.weight(ctx, k)
	if err != nil {
		return found, err
	}
	if found.Lock, err = r.operation(ctx, k, k.lock); err == nil {
		err = r.look(ctx, c, k, empty, &found)
	}
	released, failed := r.operation(ctx, k, k.release)
	if err == nil {
		err = failed
	}
	if !k.Apart || err != nil {
		found.Lock = Operation{}
		return found, err
	}
	found.Release = released
	found.Kept, err = r.observer.outlasting(ctx, k.name, Spare+time.Second)
	return found, err
}

// look is what is seen of them while they are held.
func (r *runner) look(ctx context.Context, c Contender, k *keeping, empty weight, found *Holds) error {
	full, err := r.weight(ctx, k)
	if err != nil {
		return err
	}
	if k.Apart {
		found.Server, found.Client = (full.server-empty.server)/float64(k.Leases), (full.client-empty.client)/float64(k.Leases)
	}
	if err := r.watchHolds(ctx, c, k, found); err != nil {
		return err
	}
	if _, can := k.mutexes[0].(Trier); can && k.Apart {
		found.Refused, err = r.operation(ctx, k, k.try)
	}
	return err
}

// weight is the memory of the server and of this process, in bytes.
type weight struct{ server, client float64 }

// weight is measured where operations are looked at apart.
func (r *runner) weight(ctx context.Context, k *keeping) (w weight, err error) {
	if !k.Apart {
		return w, nil
	}
	m := inUse()
	w.client = float64(m.HeapAlloc + m.StackInuse)
	w.server, err = r.observer.figure(ctx, "memory", "used_memory")
	return w, err
}

// operation is one for each name.
func (r *runner) operation(ctx context.Context, k *keeping, do func(ctx context.Context, i int) error) (o Operation, err error) {
	n := float64(k.Leases)
	_, cpu, err := r.observer.during(ctx, func() error {
		used, from := cpuMicros(), stamp()
		err := k.all(ctx, do)
		o.PerSecond, o.Client = n/time.Duration(stamp()-from).Seconds(), (cpuMicros()-used)/n
		return err
	})
	o.Server = cpu / n
	return o, err
}

func (r *runner) watchHolds(ctx context.Context, c Contender, k *keeping, found *Holds) error {
	lease := c.Lease
	if k.Lease > 0 {
		lease = k.Lease
	}
	found.Seconds = k.For.Seconds()
	found.Due = float64(k.Leases) * found.Seconds / (lease.Seconds() / 3)
	if k.For > 0 {
		var most, least time.Duration
		var renewed int
		_, cpu, err := r.observer.during(ctx, func() (err error) {
			used := cpuMicros()
			most, least, renewed, err = left(ctx, k.held, k.For)
			found.ClientCPU = (cpuMicros() - used) / 1e6 / found.Seconds
			return err
		})
		if err != nil {
			return err
		}
		found.Done = float64(renewed)
		found.RedisCPU = cpu / 1e6 / found.Seconds
		if k.Load > 0 {
			rate, leastLoaded, err := r.load(ctx, k)
			if err != nil {
				return err
			}
			least = min(least, leastLoaded)
			found.PerSecond = rate
		}
		found.Left = least.Seconds() * 1e3
		// The most that was left is a lease that was just renewed, less the margin that the library keeps.
		found.Late = max(0, (most-lease/3-least).Seconds()*1e3)
	}
	for _, h := range k.held {
		if h.Context().Err() != nil {
			found.Lost++
		}
	}
	return nil
}

// left looks at all leases for a while, and returns the most and the least that was left of one, and how often one was
// made longer.
func left(ctx context.Context, held []Lasting, d time.Duration) (most, least time.Duration, renewed int, err error) {
	least = time.Duration(1<<63 - 1)
	ends := make([]time.Time, len(held))
	for i, h := range held {
		ends[i] = h.Deadline()
	}
	end := time.Now().Add(d)
	for now := time.Now(); now.Before(end); now = time.Now() {
		for i, h := range held {
			at := h.Deadline()
			span := at.Sub(now)
			most, least = max(most, span), min(least, span)
			if at != ends[i] {
				ends[i] = at
				renewed++
			}
		}
		if err := pass(ctx, holdsLook); err != nil {
			return 0, 0, 0, err
		}
	}
	return most, least, renewed, nil
}

// errLooked says that the leases were looked at for as long as that was to be.
var errLooked = errors.New("looked at for long enough")

// load lets 64 workers of the same client lock and release while the leases are renewed.
func (r *runner) load(ctx context.Context, k *keeping) (perSecond float64, least time.Duration, err error) {
	looked, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var cycles [loadCrew]int
	var working sync.WaitGroup
	begun := time.Now()
	for i := range loadCrew {
		working.Go(func() {
			m := k.clients[0].Mutex(fmt.Sprintf("%s:load:%d", k.name, i))
			for looked.Err() == nil {
				h, err := m.Lock(ctx)
				if err == nil {
					err = h.Release(ctx)
				}
				if err != nil {
					stop(err)
					return
				}
				cycles[i]++
			}
		})
	}
	_, least, _, err = left(ctx, k.held, k.Load)
	stop(errLooked)
	working.Wait()
	if failed := context.Cause(looked); err == nil && !errors.Is(failed, errLooked) {
		err = failed
	}
	sum := 0
	for _, n := range cycles {
		sum += n
	}
	return float64(sum) / time.Since(begun).Seconds(), least, err
}
