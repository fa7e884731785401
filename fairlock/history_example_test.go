package fairlock_test

import (
	"context"
	"fmt"

	"github.com/alicebob/miniredis/v2"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	look "github.com/headwaiter/headwaiter/inspect"
)

// What `headwaiter log orders:42` prints, in a program.
func ExampleWithHistory() {
	ctx := context.Background()
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	client, err := headwaiter.DialURL("redis://" + server.Addr())
	if err != nil {
		panic(err)
	}
	defer client.Shutdown(ctx)
	orders := fairlock.New(client, "orders:42", fairlock.WithHistory(20))
	for range 2 {
		if err := orders.Do(ctx, func(context.Context) error { return nil }); err != nil {
			panic(err)
		}
	}
	holds, err := look.History(ctx, client, "orders:42")
	if err != nil {
		panic(err)
	}
	for _, h := range holds { // The newest first.
		fmt.Println(h.How, h.Client == client.ID(), h.Until.After(h.Since))
	}
	// Output:
	// released true true
	// released true true
}
