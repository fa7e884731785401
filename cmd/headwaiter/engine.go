package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
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
	url   string
	redis redisOnly
}

// redisOnly is what is said of a Redis alone.
type redisOnly struct {
	prefix   string        // of the keys, if not the usual one
	history  int           // how many holds the lock keeps
	least    time.Duration // for how long a lock stays taken from its grant
	identity string        // whose earlier holds end at the start
	tls      tlsFiles

	remember time.Duration // for how long it is known that a hold was not released; 0: for about a minute
}

// chooser are the flags for it.
type chooser struct {
	engine, url string
	redis       redisFlags
	only        redisOnly
}

// flags adds the flags.
func (c *chooser) flags(f *pflag.FlagSet) {
	f.StringVar(&c.engine, "engine", onRedis.name, "kind of the servers: "+engineNames())
	f.StringVar(&c.url, "url", "", "the server (default $HEADWAITER_ETCD and the like, else one on this machine)")
	c.redis.flags(f)
	f.StringVar(&c.only.prefix, "prefix", "", "what the keys of a Redis begin with (default headwaiter)")
	f.IntVar(&c.only.history, "history", 0, "how many holds of the lock a Redis keeps for headwaiter log")
}

// choose finds the engine and its server: the flag's, else the environment's, else one on this machine.
func (c *chooser) choose() (where, error) {
	i := slices.IndexFunc(engines(), func(e *engine) bool { return e.name == cmp.Or(c.engine, onRedis.name) })
	if i < 0 {
		return where{}, fail(exitUsage, "--engine %q: there is %s", c.engine, engineNames())
	}
	e, given := engines()[i], c.redis.given
	c.only.tls = c.redis.tls
	env, set := os.LookupEnv(e.variable)
	switch {
	case (given.Changed("redis") || given.Changed("redis-file")) && (given.Changed("url") || e != onRedis):
		return where{}, fail(exitUsage, "--redis URL, or --redis-file FILE, says it all: it goes with neither --engine nor --url")
	case e != onRedis && c.only != redisOnly{}:
		return where{}, fail(exitUsage, "%s has no meaning with --engine %s: it is for a Redis", c.onlyRedis(), e.name)
	case given.Changed("identity") && c.only.identity == "":
		return where{}, fail(exitUsage, "--identity is empty: is the variable set from which it comes?")
	case given.Changed("url") && c.url == "":
		return where{}, fail(exitUsage, "--url is empty: is the variable set from which it comes? Write it like %s", e.form)
	case c.url != "":
		return where{e, c.url, c.only}, nil
	case e == onRedis:
		err := c.redis.find()
		return where{e, c.redis.redis, c.only}, err
	case set && env == "":
		return where{}, fail(exitUsage, "%s is set and empty: unset it, or write it like %s", e.variable, e.form)
	}
	return where{e, cmp.Or(env, e.fallback), c.only}, nil
}

// onlyRedis is the first flag that was given of those for a Redis.
func (c *chooser) onlyRedis() string {
	for _, name := range []string{"prefix", "history", "min-hold", "identity", "remember", "tls-ca", "tls-cert", "tls-key"} {
		if c.redis.given.Changed(name) {
			return "--" + name
		}
	}
	return ""
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
