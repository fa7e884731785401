package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
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
	connect  func(on where, client string, lasts time.Duration) (server, error)
	// shows is an address of this engine as it may be shown; nil where that is withoutPassword.
	shows func(url string) string
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
	url    string
	prefix string // of the keys of a Redis, if not the usual one
}

// chooser are the flags for it.
type chooser struct{ engine, url, redis, prefix string }

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
		if c.prefix != "" && e != onRedis {
			return where{}, fail(exitUsage, "--prefix has no meaning with --engine %s: it is what the keys of a Redis begin with", e.name)
		}
		for _, url := range []string{c.redis, c.url, os.Getenv(e.variable), e.fallback} {
			if url != "" {
				return where{e, url, c.prefix}, nil
			}
		}
	}
	return where{}, fail(exitUsage, "--engine %q: there is %s", c.engine, engineNames())
}

// dial connects a client that operators will see by the given name.
func (w where) dial(client string, lasts time.Duration) (server, error) {
	return w.connect(w, client, lasts)
}

// shown is the server as it may be shown.
func (w where) shown() string { return w.noun + " at " + w.address(w.url) }

// address is an address of this engine as it may be shown.
func (e *engine) address(url string) string {
	if e.shows != nil {
		return e.shows(url)
	}
	return withoutPassword(url)
}

// parseHosts reads a URL with several hosts by commas, where url.Parse takes one. The URL that it returns has the first.
func parseHosts(address string) (u *url.URL, hosts []string, err error) {
	if err := strayAt(address); err != nil {
		return nil, nil, err
	}
	scheme, rest, _ := strings.Cut(address, "://")
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	begin := strings.LastIndexByte(rest[:end], '@') + 1
	hosts = strings.Split(rest[begin:end], ",")
	for _, host := range hosts {
		one, err := url.Parse(scheme + "://" + rest[:begin] + host + rest[end:])
		if err != nil {
			return nil, nil, errors.New("no URL of that kind") // The error's own text repeats the address.
		}
		if one.Host == "" {
			return nil, nil, errors.New("a host is missing")
		}
		if u == nil {
			u = one
		}
	}
	return u, hosts, nil
}

// misread is the failure of a URL that makes no sense.
func (e *engine) misread(url string, why error) error {
	return fail(exitUsage, "cannot use %q as the address of %s: %v; write it like %s", e.address(url), e.noun, why, e.form)
}

// unreachable is the failure of a server that cannot be used.
func (e *engine) unreachable(url string, err error) error {
	text := err.Error()
	for _, own := range []string{"headwaiter: ", "etcdlock: ", "sqllock: ", "zklock: "} {
		text = strings.TrimPrefix(text, own)
	}
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\t' }), " ")
	if url == e.fallback {
		text += fmt.Sprintf("; start one there, or name another by --url or %s", e.variable)
	}
	return fail(exitUnavailable, "cannot use %s at %s: %s", e.noun, e.address(url), text)
}

// together is what a situation says where it is known how many wait, the one who asks among them.
func together(n int) string {
	if n <= 0 {
		return "" // It has been served meanwhile.
	}
	return fmt.Sprintf(", %d waiting, this one included", n)
}

// aheadOfUs is what a situation says of the place.
func aheadOfUs(n int) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf(", %d waiting before us", n)
}
