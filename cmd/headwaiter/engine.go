package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/headwaiter/headwaiter/lease"
)

// An engine is a kind of server that a lock can be on.
type engine struct {
	name     string
	noun     string // as a sentence has it
	variable string // of the environment, names the server where no flag does
	fallback string // and the server where that does not either
	form     string // how its URLs are written
	// shortest is the shortest lease, and fixed tells that a hold has none that could be set: it ends with its process.
	shortest time.Duration
	fixed    bool
	// prepare does what the demo needs to have done once; nil if nothing.
	prepare func(ctx context.Context, e *engine, url string) error
	connect func(e *engine, url, client string, lasts time.Duration) (server, error)
}

// A server is the connection of one client to an engine.
type server interface {
	lock(name string, lasts time.Duration) mutex
	// situation tells who holds a lock and how many wait before this client, as far as the engine can say in a moment;
	// it begins with what follows on the name.
	situation(name string) string
	hangUp()
}

// A mutex is a lock by its name.
type mutex interface {
	Lock(ctx context.Context) (*lease.Lease, error)
	TryLock(ctx context.Context) (*lease.Lease, error)
}

func engines() []*engine { return []*engine{onRedis, onEtcd, onZooKeeper, onPostgres, onPostgresTable} }

// engineNames are those that --engine takes.
func engineNames() string {
	var names []string
	for _, e := range engines() {
		names = append(names, e.name)
	}
	return strings.Join(names, ", ")
}

// where is the choice of an engine and a server, as flags and environment make it.
type where struct {
	*engine
	url string
}

// chooser are the flags for it.
type chooser struct{ engine, url, redis string }

// flags adds the flags.
func (c *chooser) flags(f *pflag.FlagSet) {
	f.StringVar(&c.engine, "engine", onRedis.name, "kind of the servers: "+engineNames())
	f.StringVar(&c.url, "url", "", "the server (default $HEADWAITER_ETCD and the like, else one on this machine)")
	f.StringVar(&c.redis, "redis", "", "a Redis, as a URL (default $"+redisVariable+", else "+defaultRedis+")")
}

// choose finds the engine and its server: the flag's, else the environment's, else one on this machine.
func (c *chooser) choose() (where, error) {
	if c.redis != "" && (c.url != "" || c.engine != onRedis.name && c.engine != "") {
		return where{}, fail(exitUsage, "--redis URL says it all: it goes with neither --engine nor --url")
	}
	for _, e := range engines() {
		if e.name != c.engine && !(c.engine == "" && e == onRedis) {
			continue
		}
		for _, url := range []string{c.redis, c.url, os.Getenv(e.variable), e.fallback} {
			if url != "" {
				return where{e, url}, nil
			}
		}
	}
	return where{}, fail(exitUsage, "--engine %q: there is %s", c.engine, engineNames())
}

// dial connects a client that operators will see by the given name.
func (w where) dial(client string, lasts time.Duration) (server, error) {
	return w.connect(w.engine, w.url, client, lasts)
}

// shown is the server as it may be shown.
func (w where) shown() string { return w.noun + " at " + withoutPassword(w.url) }

// misread is the failure of a URL that makes no sense.
func (e *engine) misread(url string, why any) error {
	return fail(exitUsage, "cannot use %q as the address of %s: %v; write it like %s", withoutPassword(url), e.noun, why, e.form)
}

// unreachable is the failure of a server that cannot be used.
func (e *engine) unreachable(url string, err error) error {
	text := err.Error()
	for _, own := range []string{"waitqueue: ", "etcdlock: ", "sqllock: ", "zklock: "} {
		text = strings.TrimPrefix(text, own)
	}
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\t' }), " ")
	if url == e.fallback {
		text += fmt.Sprintf("; start one there, or name another by --url or %s", e.variable)
	}
	return fail(exitUnavailable, "cannot use %s at %s: %s", e.noun, withoutPassword(url), text)
}

// aheadOfUs is what a situation says of the place.
func aheadOfUs(n int) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf(", %d waiting before us", n)
}
