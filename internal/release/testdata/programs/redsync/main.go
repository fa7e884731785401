package main // A redsync user's program, moved: it has a go-redis client, sends the token, and learns of a loss.

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/contrib/goredis"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/fence"
	"github.com/redis/go-redis/v9"
)

func ship(ctx context.Context, m *fairlock.Mutex, send func(context.Context, uint64) error) (err error) {
	l, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Release(context.WithoutCancel(ctx))) }()
	return send(l.Bind(ctx), l.Token())
}

func main() {
	ctx, warehouse := context.Background(), fence.NewMemory(1).Key("orders:42") // It refuses old tokens.
	options, err := redis.ParseURL(os.Getenv("REDIS_URL"))
	o, err2 := goredis.Options(redis.NewClient(options))
	client, err3 := headwaiter.Dial(o)
	if err := errors.Join(err, err2, err3); err != nil {
		panic(err)
	}
	defer client.Close()
	m, arrived := fairlock.New(client, "orders:42"), func(context.Context) error { return nil }
	good := ship(ctx, m, func(ctx context.Context, token uint64) error { return warehouse.Do(ctx, token, arrived) })
	lost := ship(ctx, m, func(ctx context.Context, token uint64) error {
		_, err := m.ForceRelease(ctx, token) // as an operator would
		<-ctx.Done()                         // The work is told, and stops.
		return errors.Join(err, context.Cause(ctx))
	})
	fmt.Println(good, "\n", lost)
	if good == nil && errors.Is(lost, headwaiter.ErrLost) {
		fmt.Println("redsync: ok")
	}
}
