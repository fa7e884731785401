package conn

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// Probe asks the server whether it allows what the protocol does, before anything depends on it.
func (c *Servers) Probe() error {
	keys := lua.Fairlock.Keys(c.opts.Prefix, "probe:"+c.opts.ID)
	channel := keys.Channel(c.opts.ID)
	if err := c.probeMode(); err != nil {
		return err
	}
	if c.routes.table != nil {
		if err := c.probeCluster(channel); err != nil {
			return err
		}
	}
	n := c.routes.of(keys.Lock)
	a := Sending()
	fields, err := c.runUntil(context.Background(), n, nil, lua.Probe, keys.All(), []string{channel}).ToArray()
	if err != nil {
		return c.refusal(err)
	}
	if len(fields) != 2 {
		return fmt.Errorf("headwaiter: %w: the probe answered %d fields", lease.ErrUnusable, len(fields))
	}
	now, err1 := fields[0].ToInt64()
	missing, err2 := fields[1].AsStrSlice()
	if err := errors.Join(err1, err2); err != nil {
		return fmt.Errorf("headwaiter: %w: the probe's answer: %w", lease.ErrUnusable, err)
	}
	if len(missing) > 0 {
		return fmt.Errorf("headwaiter: %w: the user may not %s; it needs %s", lease.ErrUnusable,
			strings.Join(missing, ", "), c.rights())
	}
	n.Clock.Observe(a, now, true)
	c.routes.only.Clock.newest.Store(n.Clock.newest.Load())
	return nil
}

// probeMode finds out a cluster that was taken for a single server, because the user may not ask for its slots.
func (c *Servers) probeMode() error {
	if c.commands.Mode() != rueidis.ClientModeStandalone || c.opts.Redis.ForceSingleClient || c.sockets == nil {
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

// probeCluster asks a cluster where its slots are, and whether it has sharded channels. Before Redis 7 there are
// only those that are told at every node: there the subscribers at one node are not all, so nobody is skipped for
// having none, and the checks carry it. Where there is one node, as with embedded servers that say that they are a
// cluster, they are all.
func (c *Servers) probeCluster(channel string) error {
	if err := c.routes.refresh(context.Background()); err != nil {
		return fmt.Errorf("headwaiter: ask the cluster for its slots (the user needs +cluster|slots and +cluster|nodes): %w", Advise(err))
	}
	b := c.commands.B()
	err := c.commands.Do(context.Background(), b.Spublish().Channel(channel).Message(lua.EchoMessage("0")).Build()).Error()
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
	case rueidis.ClientModeSentinel:
		line += " +role"
	}
	return line
}

const clusterRights = "+spublish +ssubscribe +pubsub|shardnumsub +cluster|slots +cluster|nodes +cluster|shards"

func rights(prefix string) string {
	return fmt.Sprintf("~%[1]s:* resetchannels &%[1]s:* +eval +evalsha +time +hget +hmget +hset +hdel +hexists +hlen +del +rename +pexpire +zadd +zrem +zcard "+
		"+zrange +zrank +zcount +zscore +zmscore +zrandmember +zremrangebyrank +zremrangebyscore "+
		"+publish +subscribe +pubsub|numsub +ping +hello", prefix)
}

// refusal turns an error of the probe into what to change.
func (c *Servers) refusal(err error) error {
	redisErr, ok := rueidis.IsRedisErr(err)
	switch {
	case !ok:
		return fmt.Errorf("headwaiter: connect: %w", err)
	case strings.Contains(redisErr.Error(), "NOPERM") || strings.Contains(redisErr.Error(), "can't run"):
		return fmt.Errorf("headwaiter: %w: the user may not run scripts or what they call; it needs %s: %w",
			lease.ErrUnusable, c.rights(), err)
	}
	return fmt.Errorf("headwaiter: %w: %w", lease.ErrUnusable, Advise(err))
}

// Missing asks the server of the locks which rights the user lacks.
func (c *Servers) Missing(ctx context.Context) ([]string, error) {
	keys := lua.Fairlock.Keys(c.opts.Prefix, "probe:"+c.opts.ID)
	res := c.runUntil(ctx, c.routes.of(keys.Lock), nil, lua.Probe, keys.All(), []string{keys.Channel(c.opts.ID)})
	fields, err := res.ToArray()
	if err != nil || len(fields) != 2 {
		return nil, err
	}
	return fields[1].AsStrSlice()
}
