package main

import (
	"context"
	"time"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/cmd/headwaiter/internal/words"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// onRedis is what this library is for.
var onRedis = &engine{
	name: "redis", noun: "Redis", variable: redisVariable, fallback: defaultRedis, form: redisForm,
	shortest: lease.MinLease,
	connect: func(on where, client string, _ time.Duration) (server, error) {
		l := lookout{redisFlags{redis: on.url, tls: on.redis.tls}, on.redis.prefix, on.redis.identity}
		c, err := l.connect(client)
		return redisServer{c, on.redis}, err
	},
}

type redisServer struct {
	client *headwaiter.Client
	only   redisOnly
}

func (s redisServer) lock(name string, lasts time.Duration) mutex {
	return fairlock.New(s.client, name, headwaiter.WithLease(lasts), fairlock.WithHistory(s.only.history), headwaiter.WithMinHold(s.only.least), headwaiter.WithPrevious(s.only.remember))
}

func (s redisServer) situation(name string) (text string) {
	ctx, cancel := context.WithTimeout(context.Background(), moment)
	defer cancel()
	info, err := (*waitqueue.Client)(s.client).Queue(lua.Fairlock, name, waitqueue.DefaultTerms()).Inspect(ctx)
	if err != nil || !info.Held {
		return " …"
	}
	if info.Holder.Rests {
		return ", taken " + words.Rests(info.Holder)
	}
	text = ", held " + words.Since(info.Holder.Since, time.Now())
	if info.Holder.Who != "" {
		text += " by " + info.Holder.Who
	}
	for i, w := range info.Queue {
		if w.Client == s.client.ID() {
			text += aheadOfUs(i)
		}
	}
	return text
}

func (s redisServer) hangUp() { hangUp(s.client) }
