package fairlock_test

import (
	"errors"
	"fmt"

	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
)

func ExampleAdopt() {
	ctx, clients, end := kit.Ready(2)
	defer end()
	l := kit.Must(fairlock.New(clients[0], "shift").Lock(ctx))
	text, err := l.HandOver(ctx) // From here on the old process does nothing more that the lock protects.
	if err != nil {
		panic(err)
	}

	// The new process, which got the text through a pipe:
	next := kit.Must(fairlock.Adopt(ctx, clients[1], text))
	defer next.Unlock()
	fmt.Println("it goes on, and no waiter came in between:", next.Token() > l.Token())
	_, err = fairlock.Adopt(ctx, clients[1], text)
	fmt.Println("once more:", errors.Is(err, lease.ErrAdopted))
	// Output:
	// it goes on, and no waiter came in between: true
	// once more: true
}
