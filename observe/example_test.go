package observe_test

import (
	"context"
	"fmt"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/observe"
)

// moments is an Observer that prints what it is told of calls.
type moments struct{ said string }

func (m moments) Observe(_ context.Context, o observe.Observation) {
	fmt.Println(m.said, o.Event, o.Name)
}

func ExampleObservers() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	ctx := context.Background()
	client, err := headwaiter.Dial(headwaiter.Options{
		Redis:    rueidis.ClientOption{InitAddress: []string{server.Addr()}, ForceSingleClient: true},
		Observer: observe.Observers(moments{"metrics:"}, moments{"log:"}),
	})
	if err != nil {
		panic(err)
	}
	defer client.Shutdown(ctx)

	if _, err := fairlock.New(client, "orders:42").TryLock(ctx); err != nil {
		panic(err)
	}
	// What follows is said by Close, which gives back what was held.

	// Unordered output:
	// metrics: began orders:42
	// log: began orders:42
	// metrics: granted orders:42
	// log: granted orders:42
	// metrics: lost orders:42
	// log: lost orders:42
}
