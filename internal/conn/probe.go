package conn

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// Probe asks the server whether it allows what the protocol does, before anything depends on it. It waits out what passes
// by itself, for so long.
func (c *Servers) Probe(patience time.Duration) error {
	began := time.Now()
	for tries := 0; ; tries++ {
		err := c.probe()
		var said *rueidis.RedisError
		// A server that says it is a replica is left, so a connection may end after that.
		passes := errors.As(err, &said) && isPassing(said.Error()) || said == nil && tries > 0
		if err == nil || !passes || time.Since(began) > patience {
			return err
		}
		if err := c.Rest(context.Background(), calls.Backoff(tries)); err != nil {
			return err
		}
	}
}

func (c *Servers) probe() error {
	keys := c.probeKeys()
	if err := c.probeMode(); err != nil {
		return err
	}
	if c.routes.table != nil {
		if err := c.probeCluster(keys.Channel(c.ID())); err != nil {
			return err
		}
	}
	n := c.routes.of(keys.Lock)
	a := Sending()
	p, err := c.Probed(context.Background())
	switch {
	case err != nil:
		return c.refusal(err)
	case p.Unfit != "":
		return fmt.Errorf("headwaiter: %w: %s", lease.ErrUnusable, p.Unfit)
	case len(p.Missing) > 0:
		return fmt.Errorf("headwaiter: %w: the user may not %s; it needs %s", lease.ErrUnusable,
			strings.Join(p.Missing, ", "), c.rights())
	case p.Uncounted:
		c.uncount.Store(true) // Where scripts may not ask who listens, nobody is skipped, and the checks carry it.
	}
	n.Clock.Observe(a, p.now, true)
	c.routes.only.Clock.newest.Store(n.Clock.newest.Load())
	if err := c.masters.differ(p.origin); err != nil {
		return fmt.Errorf("headwaiter: %w: %w", lease.ErrUnusable, err)
	}
	return nil
}

// probeMode finds out a cluster that was taken for a single server, because the user may not ask for its slots.
func (c *Servers) probeMode() error {
	if c.commands.Mode() != rueidis.ClientModeStandalone || c.opts.Redis.ForceSingleClient || c.opts.Redis.AlwaysRESP2 || c.sockets == nil {
		return nil
	}
	said, err := c.commands.Do(context.Background(), c.commands.B().Hello().Build()).AsStrMap()
	if err != nil || said["mode"] != "cluster" {
		return nil // A server before Redis 6 does not know HELLO.
	}
	if err := c.commands.Do(context.Background(), c.commands.B().ClusterSlots().Build()).Error(); Answered(err) {
		return fmt.Errorf("headwaiter: %w: it is part of a cluster, and the user may not ask for its slots; it needs %s %s: %w",
			lease.ErrUnusable, rights(c.opts.Prefix), clusterRights, err)
	}
	return nil
}

// recount stops the counting of subscribers where a cluster of several nodes has plain channels alone.
func (c *Servers) recount() {
	if c.Plain && len(c.Side.Nodes()) > 1 {
		c.uncount.Store(true)
	}
}

// nameless reports whether a node of the cluster names the masters of slots by a question mark. It does so if it is to
// give host names and knows none. rueidis leaves these out.
func (c *Servers) nameless() bool {
	for _, address := range c.opts.Redis.InitAddress {
		rc, end, err := DialOne(context.Background(), c.opts.Redis, address)
		if err != nil {
			continue
		}
		ranges, _ := rc.Do(context.Background(), rc.B().ClusterSlots().Build()).ToArray()
		end()
		for _, entry := range ranges {
			fields, _ := entry.ToArray()
			if len(fields) < 3 {
				continue
			}
			if master, _ := fields[2].ToArray(); len(master) > 0 {
				if host, _ := master[0].ToString(); host == "?" {
					return true
				}
			}
		}
	}
	return false
}

// probeCluster asks a cluster where its slots are, and whether it has sharded channels. Before Redis 7 every node
// delivers every message, so the subscribers at one node are not all: then nobody is skipped for having none, and the
// checks do the work. In a cluster of one node, as embedded servers say they are, they are all.
func (c *Servers) probeCluster(channel string) error {
	if err := c.routes.refresh(context.Background()); err != nil {
		if c.nameless() {
			return fmt.Errorf("headwaiter: %w: the nodes of the cluster do not say how to reach them (endpoint ?): "+
				"set cluster-announce-hostname on each, or cluster-preferred-endpoint-type ip", lease.ErrUnusable)
		}
		return fmt.Errorf("headwaiter: ask the cluster for its slots (the user needs +cluster|slots and +cluster|nodes): %w", Advise(err))
	}
	err := c.commands.Do(context.Background(), c.commands.B().Spublish().Channel(channel).Message(wire.EchoMessage("0")).Build()).Error()
	switch {
	case err == nil:
		c.Sharded = true
	case strings.Contains(err.Error(), "unknown command"):
		c.Plain = true
		c.recount()
	default:
		return c.refusal(err)
	}
	return nil
}

// rights is the part of an ACL line that the protocol needs; docs/deploy.md has it whole.
func (c *Servers) rights() string {
	line := rights(c.opts.Prefix)
	switch c.commands.Mode() {
	case rueidis.ClientModeCluster:
		line += " " + clusterRights
		if c.Plain {
			line = strings.TrimSuffix(line, shardedRights)
		}
	case rueidis.ClientModeSentinel:
		line += " +role"
	}
	return line
}

const (
	clusterRights = "+cluster|slots +cluster|nodes +asking" + shardedRights
	// shardedRights are unknown before Redis 7.
	shardedRights = " +cluster|shards +spublish +ssubscribe +pubsub|shardnumsub"
)

func rights(prefix string) string {
	return fmt.Sprintf("~%[1]s:* resetchannels &%[1]s:* +eval +evalsha +time +hget +hmget +hset +hdel +hexists +hlen +del +rename +pexpire +zadd +zrem +zcard "+
		"+zrange +zrank +zcount +zscore +zmscore +zrandmember +zremrangebyrank +zremrangebyscore "+
		"+publish +subscribe +pubsub|numsub +ping +hello +client|id", prefix)
}

// refusal adds to an error of the probe what to change, as far as that is known.
func (c *Servers) refusal(err error) error {
	switch text := err.Error(); {
	case !Answered(err):
		if c.sockets != nil {
			err = said(c.sockets.refused.Load(), err)
		}
		return fmt.Errorf("headwaiter: connect: %w", err)
	case isPassing(text):
		return fmt.Errorf("headwaiter: connect: %w", Advise(err))
	case strings.Contains(text, "NOPERM") || strings.Contains(text, "can't run") || strings.Contains(text, "ACL failure"):
		return fmt.Errorf("headwaiter: %w: the user may not run scripts or what they call; it needs %s: %w",
			lease.ErrUnusable, c.rights(), err)
	}
	return fmt.Errorf("headwaiter: %w", Unusable(err))
}

// Probed is the server's account of what the protocol needs.
type Probed struct {
	Missing   []string // what the user is not allowed to do; servers before 7.0 do not tell
	Uncounted bool     // scripts may not count subscribers
	Unfit     string   // why no lock can be kept there, and what to do; "" if nothing tells of that

	now    int64
	origin string
}

func (c *Servers) probeKeys() lua.Keys { return lua.Fairlock.Keys(c.opts.Prefix, "probe:"+c.ID()) }

// Probed asks the server of the locks. It changes nothing.
func (c *Servers) Probed(ctx context.Context) (p Probed, err error) {
	keys := c.probeKeys()
	args := []string{keys.Channel(c.ID()), fmt.Sprint(!c.opts.WithoutSubscribe), fmt.Sprint(c.commands.Mode() == rueidis.ClientModeCluster),
		fmt.Sprint(!c.opts.WithoutSkip)}
	fields, err := c.runUntil(ctx, c.routes.of(keys.Lock), nil, lua.Probe, keys.All(), args).ToArray()
	if err == nil { // Of a script that the server knew this says nothing of EVAL, which it takes when a server has forgotten all.
		err = c.commands.Do(ctx, c.eval(c.commands.B(), lua.Probe, keys.All(), args)).Error()
	}
	if err != nil {
		if strings.Contains(err.Error(), "Could not find scripting engine") {
			return Probed{Unfit: "it has no Lua, in which all locks are written: load its module for Lua, which Valkey from 9.1 can be built and run without"}, nil
		}
		if Answered(err) && withoutScripts.MatchString(err.Error()) {
			return Probed{Unfit: "it has no EVAL, which all locks need: use Redis 6.2 or newer, or Valkey; if it is a sentinel, name Sentinel.MasterSet"}, nil
		}
		return p, err
	}
	if len(fields) != 5 {
		return p, fmt.Errorf("%w: the probe answered %d fields", lease.ErrUnusable, len(fields))
	}
	var errs [5]error
	p.now, errs[0] = fields[0].ToInt64()
	p.Missing, errs[1] = fields[1].AsStrSlice()
	p.Uncounted, errs[2] = fields[2].AsBool()
	p.Unfit, errs[3] = fields[3].ToString()
	p.origin, errs[4] = fields[4].ToString()
	if err := errors.Join(errs[:]...); err != nil {
		return p, fmt.Errorf("%w: the probe's answer: %w", lease.ErrUnusable, err)
	}
	return p, nil
}

// withoutScripts finds the error of a server that runs no scripts for anybody.
var withoutScripts = regexp.MustCompile(`(?i)unknown command.*eval|eval.*(support|disabled|not allowed)`)
