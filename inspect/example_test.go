package inspect_test

import (
	"context"
	"fmt"
	"time"

	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/inspect"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
)

func ExampleList() {
	ctx, clients, end := kit.Ready(1)
	defer end()
	for _, name := range []string{"orders:42", "users:7"} {
		if _, err := fairlock.New(clients[0], name).Lock(ctx); err != nil {
			panic(err)
		}
	}

	for n, err := range inspect.List(ctx, clients[0], "orders:*") {
		if err != nil {
			panic(err)
		}
		fmt.Println(n.Kind, n.Name, n.Info.Held, n.Info.Waiting)
	}
	// Output: lock orders:42 true 0
}

func ExampleFind() {
	ctx, clients, end := kit.Ready(1)
	defer end()
	if _, err := fairlock.New(clients[0], "orders:42").Lock(ctx); err != nil {
		panic(err)
	}

	found, err := inspect.Find(ctx, clients[0], "orders:42")
	if err != nil {
		panic(err)
	}
	for _, n := range found {
		fmt.Println(n.Kind, n.Info.Holder.Client == clients[0].ID())
	}
	// Output: lock true
}

// What `headwaiter log orders:42` prints.
func ExampleHistory() {
	ctx, clients, end := kit.Ready(1)
	defer end()
	orders := fairlock.New(clients[0], "orders:42", fairlock.WithHistory(20))
	if err := orders.Do(ctx, func(context.Context) error { return nil }); err != nil {
		panic(err)
	}

	holds, err := inspect.History(ctx, clients[0], "orders:42")
	if err != nil {
		panic(err)
	}
	for _, h := range holds { // The newest first.
		fmt.Println(h.How, h.Client == clients[0].ID())
	}
	// Output: released true
}

// Two clients take two locks in opposite order.
func ExampleDeadlocks() {
	ctx, clients, end := kit.Ready(2)
	defer end()
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
		graph, err := inspect.Deadlocks(ctx, clients[0], 10*time.Millisecond)
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

// What `headwaiter inspect --identity importer@host7` prints.
func ExampleFindIdentity() {
	ctx, clients, end := kit.Ready(1)
	defer end()
	_, found, err := inspect.FindIdentity(ctx, clients[0], "importer@host7")
	if err != nil {
		panic(err)
	}
	fmt.Println(found) // No client of a day has had it.
	// Output: false
}
