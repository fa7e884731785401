package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
)

// ServeAgent is the other side of an [Agent]: it obeys the lines that come in, until there are no more. A tool
// that wants clients in processes of their own calls it in its main function where it was started for that.
func ServeAgent(ctx context.Context, d Driver, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	s := &server{driver: d, out: bufio.NewWriter(out), calls: map[int]*lockCall{}, cancel: cancel}
	defer s.close()
	s.say(0, "ok %s", d.Name())
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("bench: agent: %w", err)
		}
		words := strings.Fields(line)
		if len(words) < 2 {
			return fmt.Errorf("bench: agent: %q is no command", line)
		}
		id, err := strconv.Atoi(words[0])
		if err != nil {
			return fmt.Errorf("bench: agent: %q is no command", line)
		}
		s.obey(ctx, id, words[1], words[2:])
	}
}

// server is an agent's own side.
type server struct {
	driver Driver
	cancel context.CancelCauseFunc
	work   sync.WaitGroup

	mu  sync.Mutex // guards out
	out *bufio.Writer

	// The fields below are used by the reader of commands alone, except what callMu guards.
	band      *localBand
	shift     shift
	clients   []Client // of single calls
	crowd     *crowd
	perCaller float64 // bytes of a caller of the crowd; 0: not measured

	stopSharing func() // ends the connections that clients share; nil where they share none

	callMu sync.Mutex // guards calls
	calls  map[int]*lockCall
}

// lockCall is one call of a lock.
type lockCall struct {
	hold chan Hold // gets the hold
}

func (s *server) say(id int, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = fmt.Fprintf(s.out, "%d %s\n", id, fmt.Sprintf(format, args...)) // If nobody listens the input ends too.
	_ = s.out.Flush()
}

// answer ends a reply.
func (s *server) answer(id int, text string, err error) {
	if err != nil {
		s.say(id, "failed %s", strings.ReplaceAll(err.Error(), "\n", "; "))
		return
	}
	s.say(id, "ok %s", text)
}

func (s *server) close() {
	s.cancel(errors.New("the agent ends"))
	s.work.Wait()
	ctx := context.Background()
	_ = s.leaveBand(ctx)
	for _, c := range s.clients {
		_ = c.Shutdown(ctx)
	}
	if s.stopSharing != nil {
		s.stopSharing()
	}
}

func (s *server) obey(ctx context.Context, id int, command string, args []string) {
	var err error
	text := ""
	switch command {
	case "share":
		err = s.share(args)
	case "open":
		err = s.open(ctx, args)
	case "begin":
		err = s.begin(ctx, id)
		if err == nil {
			return // It answers when all workers have ended.
		}
	case "measure":
		err = s.shift.measure(ctx)
		text = fmt.Sprintf("%.0f", cpuMicros())
	case "drain":
		text = fmt.Sprintf("%.0f", cpuMicros())
		err = s.shift.drain(ctx)
	case "close":
		err = s.leaveBand(ctx)
	case "events":
		err = s.events(ctx, id)
	case "lock":
		if err = s.lock(ctx, id, args); err == nil {
			return
		}
	case "release":
		if err = s.release(ctx, id, args); err == nil {
			return
		}
	case "bury":
		err = s.bury(ctx, args)
	case "crowd":
		err = s.gather(ctx, args)
	case "leave":
		err = s.leave(args)
	case "memory":
		text = s.memory(ctx)
	default:
		err = fmt.Errorf("%q is no command", command)
	}
	s.answer(id, text, err)
}

// share makes clients of the driver share a connection from now on.
func (s *server) share(args []string) error {
	n, err := numbers(strings.Join(args, " "))
	if err != nil || len(n) != 1 {
		return fmt.Errorf("share wants a number: %w", err)
	}
	sharer, can := s.driver.(Sharer)
	if !can {
		return fmt.Errorf("the clients of %s share nothing", s.driver.Name())
	}
	shared, stop, err := sharer.Shared(time.Duration(n[0]))
	if err != nil {
		return err
	}
	s.driver, s.stopSharing = shared, stop
	return nil
}

func (s *server) open(ctx context.Context, args []string) error {
	if len(args) != 5 {
		return errors.New("open wants five arguments")
	}
	n, err := numbers(strings.Join(args[:4], " "))
	if err != nil {
		return err
	}
	w := Work{Clients: int(n[0]), Workers: int(n[1]), Own: n[2] == 1, Hold: time.Duration(n[3])}
	s.band, err = newLocalBand(ctx, s.driver, w, args[4])
	return err
}

// leaveBand ends the clients that open made.
func (s *server) leaveBand(ctx context.Context) error {
	if s.band == nil {
		return nil
	}
	defer func() { s.band = nil }()
	return s.band.close(ctx)
}

func (s *server) begin(ctx context.Context, id int) (err error) {
	if s.band == nil {
		return errors.New("begin before open")
	}
	if s.shift, err = s.band.begin(ctx); err != nil {
		return err
	}
	here := s.shift
	s.work.Go(func() {
		select {
		case <-here.warm():
			s.say(id, "warm")
			s.answer(id, "", <-here.ended())
		case err := <-here.ended():
			select {
			case <-here.warm():
				s.say(id, "warm")
			default:
			}
			s.answer(id, "", err)
		}
	})
	return nil
}

func (s *server) events(ctx context.Context, id int) error {
	t, err := s.shift.collect(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range t.events {
		_, _ = fmt.Fprintf(s.out, "%d e %d %d %d %d %d %d %d\n", id, e.worker, e.lock,
			toWall(e.start), toWall(e.acquired), toWall(e.releasing), toWall(e.released), e.token)
	}
	return s.out.Flush()
}

// client returns a client for single calls.
func (s *server) client(ctx context.Context, i int) (Client, error) {
	for len(s.clients) <= i {
		c, err := s.driver.NewClient(ctx)
		if err != nil {
			return nil, err
		}
		s.clients = append(s.clients, c)
	}
	return s.clients[i], nil
}

func (s *server) bury(ctx context.Context, args []string) error {
	c, err := s.client(ctx, 0)
	if err != nil {
		return err
	}
	burier, can := c.(Burier)
	if !can || len(args) != 1 {
		return errors.New("nobody can be buried")
	}
	return burier.Bury(ctx, args[0])
}

func (s *server) lock(ctx context.Context, id int, args []string) error {
	if len(args) != 3 {
		return errors.New("lock wants three arguments")
	}
	n, err := numbers(strings.Join(args[:2], " "))
	if err != nil {
		return err
	}
	client, err := s.client(ctx, int(n[0]))
	if err != nil {
		return err
	}
	m := client.Mutex(args[2])
	call := &lockCall{make(chan Hold, 1)}
	s.callMu.Lock()
	s.calls[id] = call
	s.callMu.Unlock()
	s.work.Go(func() {
		limited, cancel := ctx, context.CancelFunc(func() {})
		if n[1] > 0 {
			limited, cancel = context.WithTimeout(ctx, time.Duration(n[1]))
		}
		defer cancel()
		s.say(id, "asked %d", toWall(stamp()))
		h, err := m.Lock(limited)
		at := toWall(stamp())
		switch {
		case err == nil:
			call.hold <- h
			s.say(id, "held %d %d", at, h.Token())
		case limited.Err() != nil:
			s.say(id, "gave-up %d", at)
			s.answer(id, "", nil)
		default:
			s.answer(id, "", err)
		}
	})
	return nil
}

func (s *server) release(ctx context.Context, id int, args []string) error {
	n, err := numbers(strings.Join(args, " "))
	if err != nil || len(n) != 2 {
		return fmt.Errorf("release wants two numbers: %w", err)
	}
	s.callMu.Lock()
	call := s.calls[int(n[0])]
	delete(s.calls, int(n[0]))
	s.callMu.Unlock()
	if call == nil {
		return errors.New("no such call")
	}
	s.work.Go(func() {
		var h Hold
		select {
		case h = <-call.hold:
		case <-ctx.Done():
			return
		}
		time.Sleep(time.Duration(fromWall(n[1]) - stamp()))
		from := toWall(stamp())
		err := h.Release(ctx)
		s.answer(id, fmt.Sprintf("%d %d", from, toWall(stamp())), err)
	})
	return nil
}

// crowd is many calls for one lock.
type crowd struct{ cancels []context.CancelFunc }

// gather makes calls that wait, and returns when all have been made.
func (s *server) gather(ctx context.Context, args []string) error {
	if len(args) < 2 || len(args) > 3 {
		return errors.New("crowd wants two or three arguments")
	}
	n, err := strconv.Atoi(args[0])
	clients := 1
	if err == nil && len(args) == 3 {
		clients, err = strconv.Atoi(args[2])
	}
	if err != nil || clients < 1 {
		return fmt.Errorf("crowd %s: %w", strings.Join(args, " "), errors.Join(err, errors.New("numbers are expected")))
	}
	mutexes := make([]Mutex, clients)
	for i := range mutexes {
		client, err := s.client(ctx, i)
		if err != nil {
			return err
		}
		mutexes[i] = client.Mutex(args[1])
	}
	if s.crowd == nil {
		s.crowd = &crowd{}
	}
	var made sync.WaitGroup
	for i := range n {
		m := mutexes[i%clients]
		limited, cancel := context.WithCancel(ctx)
		s.crowd.cancels = append(s.crowd.cancels, cancel)
		made.Add(1)
		s.work.Go(func() {
			defer cancel()
			made.Done()
			if h, err := m.Lock(limited); err == nil {
				_ = h.Release(ctx)
			}
		})
	}
	made.Wait()
	return nil
}

// leave lets the last of the crowd give up.
func (s *server) leave(args []string) error {
	if s.crowd == nil || len(args) != 1 {
		return errors.New("leave wants a crowd and a number")
	}
	n, err := strconv.Atoi(args[0])
	if err != nil || n > len(s.crowd.cancels) {
		return fmt.Errorf("leave %s: there are %d: %w", args[0], len(s.crowd.cancels), err)
	}
	rest := len(s.crowd.cancels) - n
	for _, cancel := range s.crowd.cancels[rest:] {
		cancel()
	}
	s.crowd.cancels = s.crowd.cancels[:rest]
	return nil
}

// memory is what this process uses, after garbage was collected: all, the stacks of goroutines, and what one call of a
// crowd takes on the heap before it calls the library.
func (s *server) memory(ctx context.Context) string {
	caller := s.caller(ctx)
	m := inUse()
	return fmt.Sprintf("%d %d %.0f", m.HeapAlloc+m.StackInuse, m.StackInuse, caller)
}

func inUse() (m runtime.MemStats) {
	runtime.GC()
	runtime.GC() // What is in a sync.Pool outlives one.
	runtime.ReadMemStats(&m)
	return m
}

// caller is what a goroutine that waits takes on the heap, with a context to call it back by: each caller of a
// library has those. It is measured once. The goroutines stay until the agent ends, or a crowd would find what they leave.
func (s *server) caller(ctx context.Context) float64 {
	const callers = 1000
	if s.perCaller != 0 {
		return s.perCaller
	}
	var made sync.WaitGroup
	before := inUse()
	for range callers {
		limited, cancel := context.WithCancel(ctx)
		made.Add(1)
		s.work.Go(func() {
			defer cancel()
			made.Done()
			<-limited.Done()
		})
	}
	made.Wait()
	s.perCaller = (float64(inUse().HeapAlloc) - float64(before.HeapAlloc)) / callers
	return s.perCaller
}
