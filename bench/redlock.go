package bench

import (
	"context"

	"github.com/redis/rueidis"
)

// KindRedlock is a mutex on several servers.
const KindRedlock = "redlock"

// redlockNodes is on how many.
const redlockNodes = 5

// RedlockWorks returns R5: a Redlock on five nodes of this machine, uncontended, and handed on between 2 and 8 clients.
// The floors are those of one server, to which all of it is compared; the server's figures are of that one too, and
// say nothing here.
func RedlockWorks() []Work {
	return []Work{
		{ID: "R5", Clients: 1, Workers: 1, Kind: KindRedlock},
		{ID: "R5", Clients: 2, Workers: 1, Kind: KindRedlock},
		{ID: "R5", Clients: 8, Workers: 1, Kind: KindRedlock},
	}
}

// Nodes are servers that know nothing of each other.
type Nodes []*Redis

// StartNodes starts those that the works need, none where there is no R5.
func StartNodes(ctx context.Context, works []Work) (Nodes, error) {
	var nodes Nodes
	for _, w := range works {
		for w.Kind == KindRedlock && len(nodes) < redlockNodes {
			node, err := StartRedis(ctx)
			if err != nil {
				nodes.Stop()
				return nil, err
			}
			nodes = append(nodes, node)
		}
	}
	return nodes, nil
}

// Addrs are where the nodes listen.
func (n Nodes) Addrs() (addrs []string) {
	for _, node := range n {
		addrs = append(addrs, node.Addr)
	}
	return addrs
}

// Options lead to servers, one to each.
func Options(addrs []string) (options []rueidis.ClientOption) {
	for _, addr := range addrs {
		options = append(options, rueidis.ClientOption{InitAddress: []string{addr}})
	}
	return options
}

// Stop ends all nodes.
func (n Nodes) Stop() {
	for _, node := range n {
		node.Stop()
	}
}
