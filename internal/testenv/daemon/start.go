package daemon

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"
)

const (
	// placings is how many choices of ports a first start may need: each fails if somebody else takes a port between
	// the look for a free one and the server's own bind.
	placings = 20
	// pause is the time from one look to the next.
	pause = 20 * time.Millisecond
	// A look may take from firstLook to lastLook: ZooKeeper, for one, sometimes answers the first question of its life
	// and never closes the connection, which is how its answers end.
	firstLook = 500 * time.Millisecond
	lastLook  = 15 * time.Second
)

// Start starts a server that is down and returns when it is ready. The first start chooses its ports, again if somebody
// else takes one of them; later ones keep them, and then that is [ErrPortTaken]. After a failure the server is down.
// The error has the server's log.
func (s *Server) Start() error { return StartAll(s) }

// StartAll starts servers that answer only together, such as members of a cluster: as [Server.Start], but all have their
// ports before any is started, and if one fails none runs.
func StartAll(servers ...*Server) error {
	for _, s := range servers {
		if s.up() {
			return fmt.Errorf("daemon: start %s: it runs already", s.o.Name)
		}
	}
	var err error
	for range placings {
		if err = place(servers); err != nil {
			return err
		}
		err = startAll(servers)
		if err == nil {
			settled(servers)
			return nil
		}
		for _, s := range servers {
			s.Kill()
		}
		if !errors.Is(err, ErrPortTaken) || !displace(servers) {
			return err
		}
	}
	return err
}

// place chooses ports for those that have none.
func place(servers []*Server) error {
	var fresh []*Server
	for _, s := range servers {
		s.mu.Lock()
		if !s.placed && s.ports == nil {
			fresh = append(fresh, s)
		}
		s.mu.Unlock()
	}
	for _, s := range fresh {
		ports := make([]int, s.o.Ports)
		for i := range ports {
			port, err := take(s.o.Distances)
			if err != nil {
				return fmt.Errorf("daemon: start %s: %w", s.o.Name, err)
			}
			ports[i] = port
		}
		s.mu.Lock()
		s.ports = ports
		s.mu.Unlock()
	}
	for _, s := range fresh {
		if s.o.Place == nil {
			continue
		}
		if err := s.o.Place(); err != nil {
			return fmt.Errorf("daemon: start %s: %w", s.o.Name, err)
		}
	}
	return nil
}

// displace takes their ports from those that never answered on them, and says whether there are any.
func displace(servers []*Server) (any bool) {
	for _, s := range servers {
		s.mu.Lock()
		if !s.placed {
			s.releaseLocked()
			s.ports, any = nil, true
		}
		s.mu.Unlock()
	}
	return any
}

// releaseLocked gives back the server's ports.
func (s *Server) releaseLocked() {
	for _, port := range s.ports {
		release(append(above(port, s.o.Distances), port))
	}
}

func settled(servers []*Server) {
	for _, s := range servers {
		s.mu.Lock()
		s.placed = true
		s.mu.Unlock()
	}
}

// startAll starts the processes and waits for all. The first error ends the waiting for the others.
func startAll(servers []*Server) error {
	for _, s := range servers {
		if err := s.launch(); err != nil {
			return fmt.Errorf("daemon: start %s: %w", s.o.Name, err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	errs := make([]error, len(servers))
	var done sync.WaitGroup
	for i, s := range servers {
		done.Go(func() {
			if errs[i] = s.await(ctx); errs[i] != nil {
				cancel()
			}
		})
	}
	done.Wait()
	return errors.Join(errs...)
}

// up says whether there is a process, frozen or not.
func (s *Server) up() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.run != nil && s.run.alive.Err() == nil
}

// launch starts the process.
func (s *Server) launch() error {
	cmd, err := s.o.Command()
	if err != nil {
		return err
	}
	cmd.Dir, cmd.SysProcAttr = s.dir, &syscall.SysProcAttr{}
	if s.o.Attr != nil {
		*cmd.SysProcAttr = *s.o.Attr
	}
	setApart(cmd.SysProcAttr)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frozen = false
	s.run, err = newRun(cmd, s.guard, s.o.Texts)
	return err
}

// await waits until the server is ready, it ends, its time is up, or ctx ends, which is no error of this server.
func (s *Server) await(ctx context.Context) error {
	s.mu.Lock()
	r := s.run
	s.mu.Unlock()
	if r == nil {
		return fmt.Errorf("daemon: start %s: it was killed", s.o.Name)
	}
	limited, cancel := context.WithTimeoutCause(r.alive, s.o.Limit, fmt.Errorf("%w within %v", errSilent, s.o.Limit))
	defer cancel()
	stop := context.AfterFunc(ctx, cancel)
	defer stop()
	if s.ready(limited, r) {
		return nil
	}
	if ctx.Err() != nil {
		return nil
	}
	why := context.Cause(limited)
	if errors.Is(why, errEnded) && r.log.has(portTakenText) {
		why = fmt.Errorf("%w: %w", why, ErrPortTaken)
	}
	return fmt.Errorf("daemon: start %s: %w:\n%s", s.o.Name, why, r.log)
}

// ready returns whether the server became ready before ctx ended.
func (s *Server) ready(ctx context.Context, r *run) bool {
	if s.o.Ready == nil {
		select {
		case <-r.log.told:
			return true
		case <-ctx.Done():
			return false
		}
	}
	again := time.NewTicker(pause)
	defer again.Stop()
	for bound := firstLook; ; {
		begun := time.Now()
		if s.looks(ctx, bound) {
			return true
		}
		if time.Since(begun) >= bound {
			bound = min(2*bound, lastLook)
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return false
		}
	}
}
