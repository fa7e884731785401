package headwaiter_test

import (
	"context"
	"fmt"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
)

// A supervisor that has seen a process end frees what it held at once: nobody waits for a lease.
func ExampleClient_Bury() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	ctx := context.Background()
	dial := func(identity, run string) *headwaiter.Client {
		client, err := headwaiter.Dial(headwaiter.Options{
			Redis:    rueidis.ClientOption{InitAddress: []string{server.Addr()}, DisableCache: true},
			Identity: identity, Invocation: run,
		})
		if err != nil {
			panic(err)
		}
		return client
	}
	worker, supervisor := dial("worker@host7", "run 41"), dial("", "")
	defer worker.Close()
	defer supervisor.Close()
	if _, err := fairlock.New(worker, "orders:42").Lock(ctx); err != nil {
		panic(err)
	}

	_, found, err := supervisor.Bury(ctx, "worker@host7", "run 40") // An earlier run: a late witness ends nothing.
	fmt.Println(found, err)
	ended, found, err := supervisor.Bury(ctx, "worker@host7", "run 41")
	fmt.Println(ended, found, err)
	_, err = fairlock.New(supervisor, "orders:42").TryLock(ctx)
	fmt.Println(err)
	// Output:
	// false <nil>
	// [{lock orders:42 1}] true <nil>
	// <nil>
}
