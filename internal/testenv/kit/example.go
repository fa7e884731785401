package kit

import (
	"context"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter"
)

// Clients are n clients of a server of their own, for an example, which has no testing.T; and what ends them.
func Clients(n int) (clients []*headwaiter.Client, end func()) {
	server := Must(miniredis.Run())
	for range n {
		clients = append(clients, Must(headwaiter.Dial(headwaiter.Options{
			Redis: rueidis.ClientOption{InitAddress: []string{server.Addr()}, ForceSingleClient: true},
		})))
	}
	return clients, func() {
		for _, c := range clients {
			_ = c.Shutdown(context.Background())
		}
		server.Close()
	}
}

// Ready is Clients with a context for their calls.
func Ready(n int) (ctx context.Context, clients []*headwaiter.Client, end func()) {
	clients, end = Clients(n)
	return context.Background(), clients, end
}

// Must is what an example cannot do without.
func Must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
