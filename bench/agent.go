package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"
)

// An Agent is a process that has clients of a contender and does what it is told, a line a command:
//
//	ID share KEEP_ALIVE_NS                     clients that are made from now on share a connection
//	ID open CLIENTS WORKERS OWN HOLD_NS NAME   make clients, and take and release each lock once
//	ID begin                                   all workers loop: warm, and later ended
//	ID measure, ID drain                       hold for HOLD_NS from now on; end after the hold
//	ID close                                   end the clients that open made
//	ID events                                  a line for each cycle since begin
//	ID lock CLIENT TIMEOUT_NS NAME             one call: asked, then held, or gave-up
//	ID release LOCK_ID AT                      end that hold, at that time
//	ID bury IDENTITY                           end what the dead client with that identity has left
//	ID crowd N NAME [CLIENTS]                  N calls, of as many clients in turn, each releases at once
//	ID leave N                                 that many of them give up
//	ID memory                                  bytes in use after garbage was collected; perhaps those
//	                                           of stacks, and those of the heap that a caller has
//
// and answers lines that begin with the same ID; the last is ok or failed. Times are ns of the wall clock.
// It ends with its input, and is killed to see what becomes of its tickets.
type Agent struct {
	// Version is what the agent said of its library.
	Version string

	cmd   *exec.Cmd
	in    io.WriteCloser
	ended chan struct{} // closed when the process has ended and all it said was read

	mu    sync.Mutex // guards the fields below
	last  int
	calls map[int]*reply
	done  bool
}

// reply is what comes for one command.
type reply struct {
	lines chan string
	agent *Agent
}

// agentStart is how long a process may take until it is ready: a Java machine on a busy one needs seconds.
const agentStart = 60 * time.Second

// replyRoom is how many lines of one reply wait for their reader.
const replyRoom = 1024

// StartAgent starts one.
func StartAgent(ctx context.Context, c Contender) (*Agent, error) {
	if c.Command == nil {
		return nil, fmt.Errorf("bench: %s has no clients in processes of their own", c.Name)
	}
	a := &Agent{cmd: c.Command(), ended: make(chan struct{}), calls: map[int]*reply{}}
	out, err := a.cmd.StdoutPipe()
	if err == nil {
		a.in, err = a.cmd.StdinPipe()
	}
	if err != nil {
		return nil, fmt.Errorf("bench: agent of %s: %w", c.Name, err)
	}
	if a.cmd.Stderr == nil {
		a.cmd.Stderr = os.Stderr
	}
	hello := a.expect(0)
	if err := a.cmd.Start(); err != nil {
		return nil, fmt.Errorf("bench: agent of %s: %w", c.Name, err)
	}
	go a.read(bufio.NewReader(out))
	ctx, cancel := context.WithTimeoutCause(ctx, agentStart, errors.New("it does not answer"))
	defer cancel()
	if a.Version, err = hello.ok(ctx); err != nil {
		a.Kill()
		return nil, fmt.Errorf("bench: agent of %s: %w", c.Name, err)
	}
	return a, nil
}

// read hands each line to whom it answers.
func (a *Agent) read(out *bufio.Reader) {
	defer close(a.ended)
	for {
		line, err := out.ReadString('\n')
		if err != nil {
			break
		}
		id, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		n, err := strconv.Atoi(id)
		if err != nil {
			continue // A library that prints.
		}
		a.mu.Lock()
		r := a.calls[n]
		a.mu.Unlock()
		if r != nil {
			r.lines <- rest
		}
	}
	_ = a.cmd.Wait() // How it ended is of no interest.
	a.mu.Lock()
	defer a.mu.Unlock()
	a.done = true
	for _, r := range a.calls {
		close(r.lines)
	}
	clear(a.calls)
}

func (a *Agent) expect(id int) *reply {
	r := &reply{make(chan string, replyRoom), a}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.done {
		close(r.lines)
		return r
	}
	a.calls[id] = r
	return r
}

// send sends a command.
func (a *Agent) send(format string, args ...any) (int, *reply) {
	a.mu.Lock()
	a.last++
	id := a.last
	a.mu.Unlock()
	r := a.expect(id)
	_, _ = fmt.Fprintf(a.in, "%d %s\n", id, fmt.Sprintf(format, args...)) // Who waits for the answer sees the end.
	return id, r
}

// do sends a command and waits for its end.
func (a *Agent) do(ctx context.Context, format string, args ...any) (string, error) {
	_, r := a.send(format, args...)
	return r.ok(ctx)
}

// Close lets the agent end by itself.
func (a *Agent) Close() {
	_ = a.in.Close()
	select {
	case <-a.ended:
	case <-time.After(agentStart):
		a.Kill()
	}
}

// Kill ends it with SIGKILL and waits for its end.
func (a *Agent) Kill() {
	_ = a.cmd.Process.Kill()
	for {
		select {
		case <-a.ended:
			_ = a.in.Close()
			return
		case <-time.After(time.Millisecond):
			a.discard()
		}
	}
}

// discard throws away what nobody reads any more, so that the reader comes to the end.
func (a *Agent) discard() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.calls {
		for len(r.lines) > 0 {
			<-r.lines
		}
	}
}

var errAgentEnded = errors.New("the process has ended")

// next returns the next line. ok and failed are the last.
func (r *reply) next(ctx context.Context) (word, rest string, err error) {
	select {
	case line, open := <-r.lines:
		if !open {
			return "", "", errAgentEnded
		}
		word, rest, _ = strings.Cut(line, " ")
		if word == "failed" {
			return "", "", errors.New(rest)
		}
		return word, rest, nil
	case <-ctx.Done():
		return "", "", context.Cause(ctx)
	}
}

// word waits for a line that begins with the word.
func (r *reply) word(ctx context.Context, want string) (string, error) {
	for {
		word, rest, err := r.next(ctx)
		if err != nil || word == want {
			return rest, err
		}
		if word == "ok" {
			return "", fmt.Errorf("no %s came", want)
		}
	}
}

func (r *reply) ok(ctx context.Context) (string, error) { return r.word(ctx, "ok") }

// numbers reads what stands in a line.
func numbers(line string) ([]int64, error) {
	var found []int64
	for _, field := range strings.Fields(line) {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("bench: an agent said %q: %w", line, err)
		}
		found = append(found, n)
	}
	return found, nil
}
