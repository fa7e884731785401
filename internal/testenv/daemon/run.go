package daemon

import (
	"bytes"
	"context"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// quitTime is how long a server may take to end before it is killed, and after its end what it started may keep
	// its output.
	quitTime = 10 * time.Second
	// logLimit, in bytes, is how much of a log is kept at least.
	logLimit = 1 << 20
	// portTakenText is what servers log, in small letters, when somebody else has a port.
	portTakenText = "address already in use"
)

// run is one run of a server.
type run struct {
	cmd   *exec.Cmd
	alive context.Context // ends with the process, when its log is complete; the cause is errEnded
	log   *log
}

// newRun starts a process that the guard knows.
func newRun(cmd *exec.Cmd, g *guard, texts []string) (*run, error) {
	r := &run{cmd: cmd, log: &log{texts: texts, told: make(chan struct{})}}
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = r.log, r.log, quitTime
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	g.watch(cmd.Process.Pid)
	alive, end := context.WithCancelCause(context.Background())
	r.alive = alive
	go func() {
		_ = cmd.Wait() // How it ended is in its log; here it only has to be gone.
		// Its number may be somebody else's from now on.
		g.watch(0)
		end(errEnded)
	}()
	return r, nil
}

// kill ends the process and waits for its end.
func (r *run) kill(quit syscall.Signal) {
	_ = r.cmd.Process.Signal(quit)         // It may have ended by itself.
	_ = r.cmd.Process.Signal(resumeSignal) // A frozen one hears nothing but SIGKILL.
	patience := time.NewTimer(quitTime)
	defer patience.Stop()
	select {
	case <-r.alive.Done():
		return
	case <-patience.C:
	}
	_ = r.cmd.Process.Kill()
	<-r.alive.Done()
}

// log is what a process says.
type log struct {
	texts []string      // one of which says that it is ready
	told  chan struct{} // closed when it has said so

	mu   sync.Mutex // guards the fields below
	text bytes.Buffer
	is   bool // told is closed
}

// Write implements [io.Writer].
func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(p)
	for _, text := range l.texts {
		if !l.is && bytes.Contains(l.text.Bytes(), []byte(text)) {
			l.is = true
			close(l.told)
		}
	}
	if l.text.Len() > 2*logLimit {
		l.text.Next(l.text.Len() - logLimit)
	}
	return len(p), nil
}

// has looks for a text in small letters.
func (l *log) has(text string) bool { return strings.Contains(strings.ToLower(l.String()), text) }

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
