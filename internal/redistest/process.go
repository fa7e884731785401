package redistest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// startLimit is far above what a start takes, also of a server that loads its data.
	startLimit = 30 * time.Second
	// readyText is what redis-server logs when it accepts connections, with a small letter for a socket.
	readyText = "eady to accept connections"
	// sentinelText is what it logs when it does so as a sentinel.
	sentinelText = "Sentinel ID is"
	// portTakenText is what it logs when somebody else has its port.
	portTakenText = "Address already in use"
)

// binary names the redis-server to run, which HEADWAITER_REDIS_SERVER overrides. The error says what to
// install.
func binary() (string, error) {
	if path := os.Getenv("HEADWAITER_REDIS_SERVER"); path != "" {
		return path, nil
	}
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return "", fmt.Errorf("redistest: redis-server is missing: install it with `apt-get install redis-server` " +
			"or `brew install redis`, or name it in HEADWAITER_REDIS_SERVER")
	}
	return path, nil
}

// before7 says whether the redis-server is older than Redis 7.
var before7 = sync.OnceValue(func() bool {
	path, err := binary()
	if err != nil {
		return false
	}
	version, err := exec.Command(path, "--version").Output()
	return err == nil && strings.Contains(string(version), "v=6.")
})

// debugArgs allows DEBUG where it has to be allowed: from Redis 7 on. Older ones refuse the argument.
func debugArgs() []string {
	if before7() {
		return nil
	}
	return []string{"--enable-debug-command", "yes"}
}

// process is one run of redis-server.
type process struct {
	cmd   *exec.Cmd
	guard *exec.Cmd     // kills the server if the test process ends without its clean-up
	line  *os.File      // the guard's standard input, open as long as the test process lives
	ready chan struct{} // closed when the server accepts connections
	ended chan struct{} // closed when it has ended and log is complete

	mu  sync.Mutex // guards log
	log []string
}

// launch starts redis-server, with additions to the environment, and waits until it accepts connections. If it
// ends before, the error has what it logged.
func launch(args []string, env ...string) (*process, error) {
	path, err := binary()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(path, args...), ready: make(chan struct{}), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.cmd.Stderr = p.cmd.Stdout
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	go p.follow(bufio.NewScanner(out))
	if err := p.watch(); err != nil {
		p.kill()
		return nil, err
	}
	limit := time.NewTimer(startLimit)
	defer limit.Stop()
	select {
	case <-p.ready:
		return p, nil
	case <-p.ended:
		err = fmt.Errorf("redistest: %s ended at its start:\n%s", path, p.text())
	case <-limit.C:
		err = fmt.Errorf("redistest: %s was not ready within %v:\n%s", path, startLimit, p.text())
	}
	p.kill()
	return nil, err
}

// follow collects the log, and tells from it when the server is ready.
func (p *process) follow(log *bufio.Scanner) {
	defer close(p.ended)
	ready := false
	for log.Scan() {
		p.mu.Lock()
		p.log = append(p.log, log.Text())
		p.mu.Unlock()
		if !ready && (strings.Contains(log.Text(), readyText) || strings.Contains(log.Text(), sentinelText)) {
			ready = true
			close(p.ready)
		}
	}
	// How it ended is for the test to judge; here it only has to be gone.
	_ = p.cmd.Wait()
}

// watch starts the guard: a shell that waits for the end of its input, which comes when this process
// ends in whatever way, and then kills the server.
func (p *process) watch() error {
	input, line, err := os.Pipe()
	if err != nil {
		return err
	}
	defer input.Close()
	p.guard = exec.Command("/bin/sh", "-c", fmt.Sprintf("trap '' INT TERM; read line; kill -KILL %d", p.cmd.Process.Pid))
	p.guard.Stdin, p.line = input, line
	return p.guard.Start()
}

// kill ends the server and waits for its end. The guard goes first: later the process id might be
// somebody else's.
func (p *process) kill() {
	if p.guard != nil && p.guard.Process != nil {
		_ = p.guard.Process.Kill()
		_ = p.guard.Wait()
		_ = p.line.Close()
		p.guard = nil
	}
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// running says whether the server has not ended, by whatever cause.
func (p *process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

func (p *process) signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

func (p *process) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.log, "\n")
}
