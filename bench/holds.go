package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Holds is W8: what it costs one client to keep many leases.
type Holds struct {
	Contender string  `json:"contender"`
	Leases    int     `json:"leases"`
	Seconds   float64 `json:"seconds"`
	// Due is how many renewals a third of the lease asks for, Done how many there were, whatever number a script does.
	Due  float64 `json:"due"`
	Done float64 `json:"done"`
	// Late is the longest delay of a renewal behind a third of its lease, in ms, Left the least that was left of a
	// lease.
	Late float64 `json:"late_ms"`
	Left float64 `json:"left_ms"`
	// CPU of the client's process and of Redis, in parts of one CPU.
	ClientCPU float64 `json:"client_cpu"`
	RedisCPU  float64 `json:"redis_cpu"`
	// Lost are leases that were lost, while 64 workers locked and released beside them as often as Beside a second.
	Lost   int     `json:"lost"`
	Beside float64 `json:"beside_per_s"`
}

const (
	holdsFor    = 10 * time.Second // a lease by default, so three renewals each
	besideFor   = 4 * time.Second
	besideCrew  = 64
	holdsLook   = 200 * time.Millisecond // Looking at ten thousand costs the client too.
	holdsAtOnce = 64
)

// holds measures n leases of one client, of each contender whose holds tell how long they last.
func (r *runner) holds(ctx context.Context, n int) error {
	for _, c := range r.Contenders {
		if c.Missing != nil || c.Driver == nil || !c.OnRedis || len(c.Only) > 0 || c.Lease == 0 {
			continue
		}
		found, err := r.keep(ctx, c, n)
		switch {
		case errors.Is(err, errNotFor):
			continue
		case err != nil && ctx.Err() != nil:
			return err
		case err != nil:
			if err := r.missing(c, fmt.Sprintf("W8 n=%d", n), err); err != nil {
				return err
			}
			continue
		}
		r.log("%s W8 n=%d: %.0f renewals of %.0f due, %.0f ms late at most, %d lost", c.Name, n, found.Done, found.Due, found.Late, found.Lost)
		r.report.Holds = append(r.report.Holds, found)
		if err := r.line("holds", found); err != nil {
			return err
		}
	}
	return nil
}

func (r *runner) keep(ctx context.Context, c Contender, n int) (found Holds, err error) {
	client, err := c.Driver.NewClient(ctx)
	if err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, client.Close(context.WithoutCancel(ctx))) }()
	name := fmt.Sprintf("%s:%s:holds", r.prefix, c.Name)
	held := make([]Lasting, n)
	err = inParallel(ctx, holdsAtOnce, func(ctx context.Context, i int) error {
		for ; i < n; i += holdsAtOnce {
			h, err := client.Mutex(fmt.Sprintf("%s:%d", name, i)).Lock(ctx)
			if err != nil {
				return err
			}
			var ok bool
			if held[i], ok = h.(Lasting); !ok {
				return errNotFor
			}
		}
		return nil
	})
	if err == nil {
		found, err = r.watchHolds(ctx, c, client, held, name)
	}
	release := inParallel(ctx, holdsAtOnce, func(ctx context.Context, i int) error {
		for ; i < n; i += holdsAtOnce {
			if held[i] != nil {
				_ = held[i].Release(ctx) // One that was lost has been counted.
			}
		}
		return nil
	})
	if err == nil {
		err = release
	}
	return found, err
}

func (r *runner) watchHolds(ctx context.Context, c Contender, client Client, held []Lasting, name string) (Holds, error) {
	found := Holds{Contender: c.Name, Leases: len(held), Seconds: r.holdsFor.Seconds()}
	found.Due = float64(len(held)) * r.holdsFor.Seconds() / (c.Lease.Seconds() / 3)
	before, err := r.observer.snapshot(ctx)
	if err != nil {
		return found, err
	}
	cpu := cpuMicros()
	most, least, renewed, err := left(ctx, held, r.holdsFor)
	if err != nil {
		return found, err
	}
	found.ClientCPU = (cpuMicros() - cpu) / 1e6 / r.holdsFor.Seconds()
	after, err := r.observer.snapshot(ctx)
	if err != nil {
		return found, err
	}
	found.Done = float64(renewed)
	found.RedisCPU = (after.cpu - before.cpu) / r.holdsFor.Seconds()
	beside, leastBeside, err := r.beside(ctx, client, held, name)
	if err != nil {
		return found, err
	}
	least = min(least, leastBeside)
	found.Beside = beside
	found.Left = least.Seconds() * 1e3
	// The most that was left is a lease that was just renewed, less the margin that the library keeps.
	found.Late = max(0, (most-c.Lease/3-least).Seconds()*1e3)
	for _, h := range held {
		if h.Context().Err() != nil {
			found.Lost++
		}
	}
	return found, nil
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

// beside lets 64 workers of the same client lock and release beside the leases.
func (r *runner) beside(ctx context.Context, client Client, held []Lasting, name string) (perSecond float64, least time.Duration, err error) {
	looked, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var cycles [besideCrew]int
	var working sync.WaitGroup
	begun := time.Now()
	for i := range besideCrew {
		working.Go(func() {
			m := client.Mutex(fmt.Sprintf("%s:beside:%d", name, i))
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
	_, least, _, err = left(ctx, held, r.besideFor)
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
