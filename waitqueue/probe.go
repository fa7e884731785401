package waitqueue

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/lua"
)

// ErrUnusable: the server, or the user that was logged on as, lacks what the protocol needs.
var ErrUnusable = errors.New("this Redis cannot be used")

// probe asks the server whether it allows what the protocol does, before anything depends on it.
func (c *Client) probe() error {
	keys := lua.Fairlock.Keys(c.opts.Prefix, "probe:"+c.id)
	channel := keys.Channel(c.id)
	a := sending()
	fields, err := c.runUntil(context.Background(), lua.Probe, keys.All(), []string{channel}).ToArray()
	if err != nil {
		return refusal(err)
	}
	if len(fields) != 2 {
		return fmt.Errorf("waitqueue: %w: the probe answered %d fields", ErrUnusable, len(fields))
	}
	now, err1 := fields[0].ToInt64()
	missing, err2 := fields[1].AsStrSlice()
	if err := errors.Join(err1, err2); err != nil {
		return fmt.Errorf("waitqueue: %w: the probe's answer: %w", ErrUnusable, err)
	}
	if len(missing) > 0 {
		return fmt.Errorf("waitqueue: %w: the user may not %s; it needs %s", ErrUnusable,
			strings.Join(missing, ", "), rights(c.opts.Prefix))
	}
	c.clock.observe(a, now, true)
	return nil
}

// rights is the part of an ACL line that the protocol needs; docs/deploy.md has it whole.
func rights(prefix string) string {
	return fmt.Sprintf("~%[1]s:* &%[1]s:* +eval +evalsha +time +hget +hmget +hset +hdel +hexists +hlen +del +rename +pexpire +zadd +zrem +zcard "+
		"+zrange +zrank +zcount +zscore +zmscore +zrandmember +zremrangebyrank +zremrangebyscore "+
		"+publish +subscribe +pubsub|numsub +ping +hello", prefix)
}

// refusal turns an error of the probe into what to change.
func refusal(err error) error {
	redisErr, ok := rueidis.IsRedisErr(err)
	switch {
	case !ok:
		return fmt.Errorf("waitqueue: connect: %w", err)
	case strings.Contains(redisErr.Error(), "NOPERM") || strings.Contains(redisErr.Error(), "can't run"):
		return fmt.Errorf("waitqueue: %w: the user may not run scripts or what they call; it needs %s: %w",
			ErrUnusable, rights(defaultPrefix), err)
	}
	return fmt.Errorf("waitqueue: %w: %w", ErrUnusable, advise(err))
}
