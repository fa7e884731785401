//go:build !unix

package bench

import (
	"context"
	"errors"
)

// A Redis is a redis-server that was started for a run. There is none for this system.
type Redis struct {
	// Addr is where it listens.
	Addr string
}

// StartRedis fails: name a running server.
func StartRedis(context.Context, ...string) (*Redis, error) {
	return nil, errors.New("bench: no redis-server can be started on this system: name a running one")
}

// Stop does nothing.
func (r *Redis) Stop() {}

// Restart does nothing.
func (r *Redis) Restart() error { return nil }
