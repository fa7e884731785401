package bench

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/internal/testenv/daemon"
)

const (
	// startPatience is how long a fresh redis-server may take until it answers.
	startPatience = 10 * time.Second
	// slowScript is from when on the server notes how long a script took.
	slowScript = 500 * time.Microsecond
	// clusterEnabled makes a server a node, which needs a second port so much higher than the first.
	clusterEnabled = "--cluster-enabled"
	busDistance    = 10000
)

// A Redis is a redis-server that was started for a run: on loopback, with a port and a folder of its own,
// and without persistence. It ends with this process, in whatever way that ends.
type Redis struct {
	// Addr is where it listens.
	Addr string

	server *daemon.Server
}

// StartRedis starts the redis-server that is in the path, with further arguments.
func StartRedis(ctx context.Context, args ...string) (*Redis, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("bench: %w: install it (apt-get install redis-server, brew install redis) or name a running one", err)
	}
	r := &Redis{}
	o := daemon.Options{
		Name: "redis-server", Ports: 1, Limit: startPatience, Texts: []string{"Ready to accept connections"},
		Command: func() (*exec.Cmd, error) {
			return exec.Command(path, append([]string{
				"--port", strconv.Itoa(r.server.Port(0)), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", r.server.Dir(),
				"--slowlog-log-slower-than", strconv.FormatInt(slowScript.Microseconds(), 10), "--slowlog-max-len", "4096",
			}, args...)...), nil
		},
	}
	if slices.Contains(args, clusterEnabled) {
		o.Distances = []int{busDistance}
	}
	if r.server, err = daemon.New(o); err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	if err := r.server.Start(); err != nil {
		r.Stop()
		return nil, fmt.Errorf("bench: %w", err)
	}
	if ctx.Err() != nil {
		r.Stop()
		return nil, context.Cause(ctx)
	}
	r.Addr = r.server.Address(0)
	return r, nil
}

// Stop ends the server and removes its folder.
func (r *Redis) Stop() { r.server.Stop() }

// Restart ends it and starts another at the same address, without data.
func (r *Redis) Restart() error {
	r.server.Kill()
	if err := r.server.Start(); err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	return nil
}

// Allowed is how many connections a server takes at once: less than it was told to, where it may not have as many files.
func Allowed(ctx context.Context, redis rueidis.ClientOption) (int, error) {
	o, err := newObserver(redis)
	if err != nil {
		return 0, err
	}
	defer o.close()
	answer, err := o.client.Do(ctx, o.client.B().ConfigGet().Parameter("maxclients").Build()).AsStrMap()
	if err != nil {
		return 0, fmt.Errorf("bench: CONFIG GET: %w", err)
	}
	return int(number(answer["maxclients"])), nil
}
