package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
)

// idle are agents that have no clients: of contenders that take long to warm up, for their next work.
type idle struct {
	mu     sync.Mutex // guards the field below
	agents map[string][]*Agent
}

// get returns an agent that was kept, or a new one.
func (i *idle) get(ctx context.Context, c Contender) (*Agent, error) {
	i.mu.Lock()
	if all := i.agents[c.Name]; len(all) > 0 {
		defer i.mu.Unlock()
		i.agents[c.Name] = all[1:]
		return all[0], nil
	}
	i.mu.Unlock()
	return StartAgent(ctx, c)
}

// put keeps an agent, without its clients, or ends it.
func (i *idle) put(ctx context.Context, c Contender, a *Agent) {
	if c.Warm == 0 {
		a.Close()
		return
	}
	if _, err := a.do(ctx, "close"); err != nil {
		a.Kill()
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.agents[c.Name] = append(i.agents[c.Name], a)
}

// end ends them all.
func (i *idle) end() {
	for _, all := range i.agents {
		for _, a := range all {
			a.Close()
		}
	}
	clear(i.agents)
}

// remoteBand has its clients in other processes.
type remoteBand struct {
	contender Contender
	work      Work
	agents    []*Agent
	kept      *idle
}

// newRemoteBand spreads the clients of a work over processes.
func newRemoteBand(ctx context.Context, kept *idle, c Contender, w Work, name string, processes int) (*remoteBand, error) {
	if w.Kind != "" || w.Arrival > 0 || w.Locks > 1 || w.Clients%processes > 0 {
		return nil, fmt.Errorf("bench: %s: %v is for clients in this process", c.Name, w)
	}
	b := &remoteBand{contender: c, work: w, kept: kept}
	b.agents = make([]*Agent, processes)
	err := inParallel(ctx, processes, func(ctx context.Context, i int) (err error) {
		if b.agents[i], err = kept.get(ctx, c); err != nil {
			return err
		}
		own := 0
		if w.Own {
			own = 1
		}
		if w.Shared > 0 {
			if _, err := b.agents[i].do(ctx, "share %d", w.Shared); err != nil {
				return err
			}
		}
		_, err = b.agents[i].do(ctx, "open %d %d %d %d %s", w.Clients/processes, w.Workers, own, w.Hold, name)
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("bench: %s: %w", c.Name, err), b.close(ctx))
	}
	return b, nil
}

func (b *remoteBand) close(ctx context.Context) error {
	var all sync.WaitGroup
	for _, a := range b.agents {
		if a != nil {
			all.Go(func() { b.kept.put(ctx, b.contender, a) })
		}
	}
	all.Wait()
	return nil
}

// remoteShift is a remoteBand at work.
type remoteShift struct {
	band    *remoteBand
	allWarm chan struct{}
	end     chan error
	cpu     atomic.Int64
}

func (b *remoteBand) begin(ctx context.Context) (shift, error) {
	s := &remoteShift{band: b, allWarm: make(chan struct{}), end: make(chan error, 1)}
	var cold atomic.Int64
	cold.Store(int64(len(b.agents)))
	go func() {
		s.end <- inParallel(ctx, len(b.agents), func(ctx context.Context, i int) error {
			_, r := b.agents[i].send("begin")
			if _, err := r.word(ctx, "warm"); err != nil {
				return err
			}
			if cold.Add(-1) == 0 {
				close(s.allWarm)
			}
			_, err := r.ok(ctx)
			return err
		})
	}()
	return s, nil
}

func (s *remoteShift) warm() <-chan struct{} { return s.allWarm }
func (s *remoteShift) ended() <-chan error   { return s.end }

// tell sends a command to all agents, and adds up the CPU time in µs that each has used until then.
func (s *remoteShift) tell(ctx context.Context, command string) (int64, error) {
	var sum atomic.Int64
	err := inParallel(ctx, len(s.band.agents), func(ctx context.Context, i int) error {
		text, err := s.band.agents[i].do(ctx, "%s", command)
		if err != nil {
			return err
		}
		used, err := strconv.ParseInt(text, 10, 64)
		sum.Add(used)
		return err
	})
	return sum.Load(), err
}

func (s *remoteShift) measure(ctx context.Context) error {
	used, err := s.tell(ctx, "measure")
	s.cpu.Store(-used)
	return err
}

func (s *remoteShift) drain(ctx context.Context) error {
	used, err := s.tell(ctx, "drain")
	s.cpu.Add(used)
	return err
}

func (s *remoteShift) collect(ctx context.Context) (tally, error) {
	t := tally{cpu: float64(s.cpu.Load())}
	each := s.band.work.Clients / len(s.band.agents) * s.band.work.Workers
	for i, a := range s.band.agents {
		events, err := readEvents(ctx, a, i*each)
		if err != nil {
			return t, fmt.Errorf("agent: %w", err)
		}
		t.events = append(t.events, events...)
	}
	t.overlaps, t.backward = overlaps(t.events, s.band.work.inside())
	return t, nil
}

// readEvents gets the records of an agent, whose workers are counted from first.
func readEvents(ctx context.Context, a *Agent, first int) (events []event, err error) {
	_, r := a.send("events")
	for {
		word, rest, err := r.next(ctx)
		if err != nil || word == "ok" {
			return events, err
		}
		n, err := numbers(rest)
		if err != nil || len(n) != 7 {
			return nil, fmt.Errorf("bench: an agent said %q: %w", rest, err)
		}
		start := fromWall(n[2])
		events = append(events, event{
			worker: first + int(n[0]), lock: int(n[1]), due: start, start: start, acquired: fromWall(n[3]),
			releasing: fromWall(n[4]), released: fromWall(n[5]), token: uint64(n[6]),
		})
	}
}
