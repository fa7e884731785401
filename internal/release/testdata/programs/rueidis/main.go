package main // A program that has a rueidis client uses it for locks too: a counter that no update gets lost of.

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/redis/rueidis"
)

func process(ctx context.Context) error {
	o := rueidis.MustParseURL(os.Getenv("REDIS_URL"))
	o.DisableCache, o.PipelineMultiplex = true, -1 // as locks need it
	redis, err := rueidis.NewClient(o)
	if err != nil {
		return err
	}
	defer redis.Close()
	client, err := headwaiter.New(redis, headwaiter.Options{Name: "counter"})
	if err != nil {
		return err
	}
	defer client.Close() // It leaves redis open.
	return fairlock.New(client, "counter").Do(ctx, func(ctx context.Context) error {
		n, err := redis.Do(ctx, redis.B().Get().Key("counter").Build()).AsInt64()
		if err != nil && !rueidis.IsRedisNil(err) {
			return err
		}
		return redis.Do(ctx, redis.B().Set().Key("counter").Value(fmt.Sprint(n+1)).ExSeconds(5).Build()).Error()
	})
}

func main() {
	done := make(chan error)
	for range 3 {
		go func() { done <- process(context.Background()) }()
	}
	if err := errors.Join(<-done, <-done, <-done); err != nil {
		panic(err)
	}
	fmt.Println("rueidis: ok")
}
