package goredis_test

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/contrib/goredis"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
)

func ExampleOptions() {
	rdb := redis.NewClient(&redis.Options{Addr: "redis.example:6379", Username: "app", Password: "secret", DB: 2})
	defer rdb.Close()

	o := kit.Must(goredis.Options(rdb))
	o.Name = "importer" // As operators see it. Then headwaiter.Dial(o).
	fmt.Println(o.Redis.InitAddress, o.Redis.Username, o.Redis.SelectDB)
	// Output: [redis.example:6379] app 2
}

func ExampleFrom() {
	options := &redis.FailoverOptions{MasterName: "orders", SentinelAddrs: []string{"sentinel.example:26379"}, SentinelPassword: "secret"}
	rdb := redis.NewFailoverClient(options)
	defer rdb.Close()

	o := kit.Must(goredis.From(options))
	fmt.Println(o.Redis.Sentinel.MasterSet, "by", o.Redis.InitAddress)
	// Output: orders by [sentinel.example:26379]
}

// What cannot be carried over is named. If locks can do without it, it is cleared in a copy of the options.
func ExampleFrom_without() {
	rdb := redis.NewClient(&redis.Options{
		Addr:      "redis.example:6379",
		OnConnect: func(context.Context, *redis.Conn) error { fmt.Println("connected"); return nil },
	})
	defer rdb.Close()
	_, err := goredis.Options(rdb)
	fmt.Println(err)

	own := *rdb.Options()
	own.OnConnect = nil
	var o headwaiter.Options
	o, err = goredis.From(&own)
	fmt.Println(o.Redis.InitAddress, err)
	// Output:
	// goredis: OnConnect cannot be carried over: it is called with a connection of go-redis; if locks can do without it, clear it in a copy of the options, and give that to goredis.From
	// [redis.example:6379] <nil>
}
