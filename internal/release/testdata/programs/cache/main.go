package main // One process fills a cache while the others wait; without Redis each fills it for itself.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/redis/rueidis"
)

var cache sync.Map // a store that all processes share, as it were

func get(client *headwaiter.Client, key string) error {
	fill := func(context.Context) error {
		if _, ok := cache.Load(key); !ok {
			cache.Store(key, <-time.After(200*time.Millisecond)) // the expensive work
		}
		return nil
	}
	m := fairlock.New(client, "cache:"+key, headwaiter.WithMaxWait(2*time.Second))
	if err := m.Do(context.Background(), fill); !errors.Is(err, headwaiter.ErrUnavailable) {
		return err
	}
	return fill(context.Background()) // Redis is away, and twice is better than never.
}

func main() {
	client, err := headwaiter.DialURL(os.Getenv("REDIS_URL"))
	other, err2 := headwaiter.DialURL(os.Getenv("REDIS_URL"))
	redis, err3 := rueidis.NewClient(rueidis.MustParseURL(os.Getenv("REDIS_URL")))
	if err := errors.Join(err, err2, err3); err != nil {
		panic(err)
	}
	done := make(chan error)
	go func() { done <- get(other, "prices") }() // another process, as it were
	away := redis.B().ClientPause().Timeout(2500).All().Build()
	if errors.Join(get(client, "prices"), <-done, redis.Do(context.Background(), away).Error(), get(client, "stock")) == nil {
		fmt.Println("cache: ok")
	}
}
