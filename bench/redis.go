package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// startPatience is how long a fresh redis-server may take until it answers.
const startPatience = 10 * time.Second

// A Redis is a redis-server that was started for a run: on loopback, with a port and a folder of its own,
// and without persistence.
type Redis struct {
	// Addr is where it listens.
	Addr string

	process *exec.Cmd
	ended   chan struct{} // closed when the process has ended
	folder  string
}

// StartRedis starts the redis-server that is in the path, with further arguments.
func StartRedis(ctx context.Context, args ...string) (*Redis, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("bench: %w: install it (apt-get install redis-server, brew install redis) or name a running one", err)
	}
	// Between the choice of a port and its use somebody else may take it: then there is another one.
	for range 3 {
		var r *Redis
		if r, err = startRedis(ctx, path, args); err == nil {
			return r, nil
		}
	}
	return nil, err
}

func startRedis(ctx context.Context, path string, args []string) (*Redis, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "headwaiter-bench-")
	if err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	var output strings.Builder
	r := &Redis{Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), folder: folder, ended: make(chan struct{})}
	args = append([]string{
		"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", folder,
	}, args...)
	r.process = exec.Command(path, args...)
	r.process.Stdout, r.process.Stderr = &output, &output
	if err := r.process.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("bench: start redis-server: %w", err), os.RemoveAll(folder))
	}
	go func() {
		defer close(r.ended)
		_ = r.process.Wait() // It is told to end; how it does is of no interest.
	}()
	if err := r.await(ctx); err != nil {
		r.Stop()
		return nil, fmt.Errorf("bench: start redis-server: %w: %s", err, strings.TrimSpace(output.String()))
	}
	return r, nil
}

// await returns when the server answers.
func (r *Redis) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startPatience, errors.New("it does not answer"))
	defer cancel()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for !r.answers(ctx) {
		select {
		case <-again.C:
		case <-r.ended:
			return errors.New("it ended")
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (r *Redis) answers(ctx context.Context) bool {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", r.Addr)
	if err != nil {
		return false
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	reply := make([]byte, 7)
	n, err := conn.Read(reply)
	return err == nil && strings.HasPrefix(string(reply[:n]), "+PONG")
}

// Stop ends the server and removes its folder.
func (r *Redis) Stop() {
	_ = r.process.Process.Kill()
	<-r.ended
	_ = os.RemoveAll(r.folder)
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("bench: find a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
