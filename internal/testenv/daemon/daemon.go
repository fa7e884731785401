// Package daemon runs servers for tests and benchmarks: processes on free loopback ports, with their data in
// a temporary folder, that end with this process in whatever way it ends.
//
// A server is down, or it has a run: a process, its log, and whether it answers yet. A [Server] outlives its runs and
// keeps its ports and its folder. It may be used by several goroutines.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// StartLimit is how long a server may take to answer where the options do not say: far above what a start takes.
const StartLimit = time.Minute

// ErrPortTaken is why a start failed if somebody else had one of the server's ports.
var ErrPortTaken = errors.New("somebody else has its port")

var (
	errEnded  = errors.New("it ended at its start")
	errSilent = errors.New("it does not answer")
)

// Options say what a server is and when it is ready.
type Options struct {
	// Name is what errors call the server.
	Name string
	// Ports is how many free ports it needs.
	Ports int
	// Distances are how far above each port it needs others, in ascending order.
	Distances []int
	// Attr is how its processes are started, and where it has a credential also who owns the folder. May be nil.
	Attr *syscall.SysProcAttr

	// Place, if not nil, is called once for each choice of ports, before the server is started on them: it writes what
	// is to be in the folder.
	Place func() error
	// Command makes the command of each start. Its folder, output and Attr are set here.
	Command func() (*exec.Cmd, error)

	// Ready looks once whether the server answers, and returns at the latest when ctx ends. The bound of a look is
	// short at first and becomes longer with each that it ends, so neither one that hangs nor a server that is slow
	// uses up the limit.
	Ready func(ctx context.Context) bool
	// Texts are what the server logs when it is ready, one of them: for servers without Ready.
	Texts []string
	// Limit is how long a start may take, [StartLimit] if zero.
	Limit time.Duration
	// Quit ends the server at once, SIGKILL if zero. Whatever it is, one that does not end by it is killed.
	Quit syscall.Signal
}

// A Server is a process, the folder in which it runs, and its ports.
type Server struct {
	o     Options
	dir   string
	guard *guard

	mu     sync.Mutex // guards the fields below
	ports  []int      // none before the first start
	placed bool       // whether it has ever answered on them, so that they stay
	run    *run       // nil while it is down
	frozen bool
}

// New makes a server that is down, with an empty folder. The caller ends it with [Server.Stop].
func New(o Options) (*Server, error) {
	if o.Limit == 0 {
		o.Limit = StartLimit
	}
	if o.Quit == 0 {
		o.Quit = syscall.SIGKILL
	}
	dir, err := os.MkdirTemp("", "headwaiter-"+strings.ToLower(o.Name)+"-")
	if err != nil {
		return nil, fmt.Errorf("daemon: %s: %w", o.Name, err)
	}
	s := &Server{o: o, dir: dir}
	if err = allot(dir, o.Attr); err == nil {
		s.guard, err = newGuard(dir, o.Quit)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("daemon: %s: %w", o.Name, err), os.RemoveAll(dir))
	}
	return s, nil
}

// Dir is the server's folder, the same over restarts, which [Server.Stop] removes.
func (s *Server) Dir() string { return s.dir }

// Port is one of the server's ports, the same over restarts. There is none before the first start calls Place.
func (s *Server) Port(i int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ports[i]
}

// Address is the loopback address with one of its ports.
func (s *Server) Address(i int) string { return Loopback(s.Port(i)) }

// Pid is the number of the server's process, 0 while it is down.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run == nil {
		return 0
	}
	return s.run.cmd.Process.Pid
}

// Loopback is host and port of this machine as it sees itself.
func Loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// Kill ends the server at once and waits for its end, also if it is frozen; its data stay. Of one that is down nothing
// is done.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run != nil {
		s.run.kill(s.o.Quit)
		s.run, s.frozen = nil, false
	}
}

// Signal sends a signal to the server.
func (s *Server) Signal(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run == nil {
		return fmt.Errorf("daemon: %s: %v for a server that is down", s.o.Name, sig)
	}
	if err := s.run.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("daemon: %s: %v: %w", s.o.Name, sig, err)
	}
	switch sig {
	case pauseSignal:
		s.frozen = true
	case resumeSignal:
		s.frozen = false
	}
	return nil
}

// frozenTime is how long a server that does not answer must be silent to count as stopped.
const frozenTime = 200 * time.Millisecond

// Freeze stops the server's process, as a machine that hangs would be: connections stay open and nothing answers. With
// Ready it returns when nothing answers any more.
func (s *Server) Freeze() error {
	if err := s.Signal(pauseSignal); err != nil || s.o.Ready == nil {
		return err
	}
	for s.looks(context.Background(), frozenTime) {
		// The signal takes its time.
	}
	return nil
}

// Thaw lets it go on.
func (s *Server) Thaw() error { return s.Signal(resumeSignal) }

// looks calls Ready with a bound.
func (s *Server) looks(ctx context.Context, bound time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	return s.o.Ready(ctx)
}

// Running says whether the server can answer: it was not killed or frozen, and has not ended by itself.
func (s *Server) Running() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.run != nil && !s.frozen && s.run.alive.Err() == nil
}

// Log is what the server has logged in its present run, the newest of it if that is much, and empty while it is down.
func (s *Server) Log() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run == nil {
		return ""
	}
	return s.run.log.String()
}

// Stop ends the server for good and removes its folder.
func (s *Server) Stop() {
	s.Kill()
	s.mu.Lock()
	s.releaseLocked()
	s.mu.Unlock()
	_ = os.RemoveAll(s.dir) // What is left of a temporary folder hurts nobody.
	s.guard.dismiss()
}
