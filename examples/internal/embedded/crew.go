package embedded

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"iter"
	"os"
	"os/exec"
	"sync"
	"time"
)

// A Crew is processes of this same program. When one fails, or its context ends, all are killed; if this process ends
// they end too.
type Crew struct {
	ctx     context.Context
	fail    context.CancelCauseFunc
	redis   string
	started time.Time
	lines   chan Line
	running sync.WaitGroup

	mu        sync.Mutex // guards the fields below
	processes map[string]*exec.Cmd
	killed    map[string]bool
}

// A Line is what a process has printed.
type Line struct{ Who, Text string }

// NewCrew makes an empty one.
func NewCrew(ctx context.Context, redis string) *Crew {
	c := &Crew{
		redis: redis, started: time.Now(), lines: make(chan Line),
		processes: map[string]*exec.Cmd{}, killed: map[string]bool{},
	}
	c.ctx, c.fail = context.WithCancelCause(ctx)
	return c
}

// Start runs this program again, with more environment if there is any, under a name that is not in use. It is called
// before Lines, or inside of it while another process runs.
func (c *Crew) Start(name string, environment ...string) {
	if err := c.start(name, environment); err != nil {
		c.fail(fmt.Errorf("process %s: %w", name, err))
	}
}

func (c *Crew) start(name string, environment []string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(c.ctx, program)
	cmd.Env = append(append(os.Environ(), environment...), nameVariable+"="+name, redisVariable+"="+c.redis)
	cmd.Stderr = os.Stderr
	dieTogether(cmd)
	if _, err := cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	c.mu.Lock()
	c.processes[name] = cmd
	c.mu.Unlock()
	c.running.Go(func() { c.follow(name, cmd, out) })
	return nil
}

// follow passes on what a process prints until it ends.
func (c *Crew) follow(name string, cmd *exec.Cmd, out io.Reader) {
	for in := bufio.NewScanner(out); in.Scan(); {
		c.lines <- Line{Who: name, Text: in.Text()}
	}
	err := cmd.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil && !c.killed[name] {
		c.fail(fmt.Errorf("process %s: %w", name, err))
	}
}

// Signal sends a signal to a process that was started. One that is killed counts as ended well.
func (c *Crew) Signal(name string, s os.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.killed[name] = c.killed[name] || s == os.Kill
	if err := c.processes[name].Process.Signal(s); err != nil {
		c.fail(fmt.Errorf("process %s: %v: %w", name, s, err))
	}
}

// Lines prints what the processes say, when and who, and yields it, until all have ended.
func (c *Crew) Lines() iter.Seq[Line] {
	return func(yield func(Line) bool) {
		go func() {
			c.running.Wait()
			close(c.lines)
		}()
		wanted := true
		for line := range c.lines { // To the end in any case: a process that nobody reads would stop.
			fmt.Printf("%5.2fs  %s  %s\n", time.Since(c.started).Seconds(), line.Who, line.Text)
			wanted = wanted && yield(line)
		}
	}
}

// Err returns, once Lines has ended, why the crew failed, if it did.
func (c *Crew) Err() error { return context.Cause(c.ctx) }
