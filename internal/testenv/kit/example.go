package kit

import (
	"context"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter"
)

// Clients are n clients of a server of their own, for an example, which has no testing.T; and what ends them.
func Clients(n int) (clients []*headwaiter.Client, end func()) {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	for range n {
		client, err := headwaiter.Dial(headwaiter.Options{
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
