package main // One of three processes leads; when it resigns the next one does, and all can know who.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/election"
)

// process leads once, and knows who leads until then.
func process(ctx context.Context, name string) error {
	client, err := headwaiter.DialURL(os.Getenv("REDIS_URL"))
	if err != nil {
		return err
	}
	defer client.Close()
	e, led := election.New(client, "leader"), make(chan error, 1)
	lead := func(context.Context) error { time.Sleep(100 * time.Millisecond); return nil }
	go func() { led <- e.Run(ctx, name, lead) }()
	for leaders := e.Observe(ctx); ; {
		select {
		case l := <-leaders:
			if fmt.Println(name, "knows that", l.Value, "leads"); l.Err != nil {
				return l.Err
			}
		case err := <-led:
			return err
		}
	}
}

func main() {
	done := make(chan error)
	for _, name := range []string{"a", "b", "c"} {
		go func() { done <- process(context.Background(), name) }()
	}
	if err := errors.Join(<-done, <-done, <-done); err != nil {
		panic(err)
	}
	fmt.Println("leader: ok")
}
