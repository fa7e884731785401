package waitqueue_test

import (
	"context"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// exampleClients are some clients of a server of their own, and what ends them.
func exampleClients(n int) (clients []*waitqueue.Client, end func()) {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	for range n {
		client, err := waitqueue.Dial(waitqueue.Options{
			Redis: rueidis.ClientOption{InitAddress: []string{server.Addr()}, ForceSingleClient: true},
		})
		if err != nil {
			panic(err)
		}
		clients = append(clients, client)
	}
	return clients, func() {
		for _, c := range clients {
			_ = c.Close(context.Background())
		}
		server.Close()
	}
}

func ExampleClient_List() {
	clients, end := exampleClients(1)
	defer end()
	ctx := context.Background()
	for _, name := range []string{"orders:42", "users:7"} {
		if _, err := fairlock.New(clients[0], name).Lock(ctx); err != nil {
			panic(err)
		}
	}

	for n, err := range clients[0].List(ctx, "orders:*") {
		if err != nil {
			panic(err)
		}
		fmt.Println(n.Kind, n.Name, n.Info.Held, n.Info.Waiting)
	}
	// Output: lock orders:42 true 0
}

func ExampleClient_Find() {
	clients, end := exampleClients(1)
	defer end()
	ctx := context.Background()
	if _, err := fairlock.New(clients[0], "orders:42").Lock(ctx); err != nil {
		panic(err)
	}

	found, err := clients[0].Find(ctx, "orders:42")
	if err != nil {
		panic(err)
	}
	for _, n := range found {
		fmt.Println(n.Kind, n.Info.Holder.Client == clients[0].ID())
	}
	// Output: lock true
}

// Two clients take two locks in opposite order.
func ExampleClient_WaitsFor() {
	clients, end := exampleClients(2)
	defer end()
	ctx := context.Background()
	names := []string{"orders", "stock"}
	for i, c := range clients {
		if _, err := fairlock.New(c, names[i]).Lock(ctx); err != nil {
			panic(err)
		}
	}
	for i, c := range clients {
		go func() { _, _ = fairlock.New(c, names[1-i]).Lock(ctx) }() // Until its client is closed.
	}

	for {
		graph, err := clients[0].WaitsFor(ctx, 10*time.Millisecond)
		if err != nil {
			panic(err)
		}
		for _, cycle := range graph.Cycles {
			fmt.Println("a deadlock of", len(cycle))
			return
		}
	}
	// Output: a deadlock of 2
}
