// Command bench measures this project's locks and others in turn, each against the floors of the machine
// it runs on.
//
//	go run ./bench/rivals/cmd/bench [flags]
//
// It starts the servers that it needs on loopback. An overlap of two holds, a token that does not rise, or an order
// that is promised and not kept makes it exit non-zero.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/bench"
	"github.com/headwaiter/headwaiter/bench/command"
	"github.com/headwaiter/headwaiter/bench/network"
	"github.com/headwaiter/headwaiter/bench/rivals"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == network.Word {
		if err := network.Serve(os.Stdin, os.Stdout, os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(command.Main(command.Tools{Contenders: contenders, Far: far, Nodes: rivals.RedsyncNodes, Agent: rivals.Agent, Standard: standard}))
}

// standard is the standard set: less than 25 minutes.
var standard = []string{
	"-pairs", "-locks", "all", "-work", "W1,W2,W3,W4,R1,R4,S4,S16,RW,L1,R5,W5,W6,W7,W8", "-dead", "2,100,1000", "-crowd", "100,1000,10000", "-holds", "10000",
	"-rounds", "9", "-slice", "200ms", "-floor-slice", "60ms", "-within", "20m", "-pin",
	"-out", "bench-results", "-docs", "docs/benchmarks.md", "-fill", "docs/choose.md,docs/performance.md,docs/redlock.md",
}

// warm is for how long servers are used before they are measured.
const warm = 15 * time.Second

func contenders(ctx context.Context, redis rueidis.ClientOption, names []string) ([]bench.Contender, map[string]string, func(), error) {
	cast, _, about, stop, err := far(ctx, redis, names, nil)
	return cast, about, stop, err
}

// far are the contenders as they are, and once more for each delay.
func far(ctx context.Context, redis rueidis.ClientOption, names []string, delays []time.Duration) (
	cast []bench.Contender, by map[string]rueidis.ClientOption, about map[string]string, stop func(), err error,
) {
	servers := rivals.StartServers(ctx, redis.InitAddress[0], rivals.Engines(names))
	servers.Warm(ctx, warm)
	cast, err = bench.Choose(rivals.Contenders(servers), names)
	by = map[string]rueidis.ClientOption{}
	for _, delay := range delays {
		var over *rivals.Servers
		if err == nil {
			over, err = servers.Over(delay)
		}
		if err != nil {
			break
		}
		link := bench.LinkOf(delay)
		by[link] = rueidis.ClientOption{InitAddress: []string{over.Redis}}
		linked, _ := bench.Choose(rivals.Contenders(over), names) // The names are those of before.
		for _, c := range linked {
			c.Link = link
			cast = append(cast, c)
		}
	}
	if err != nil {
		servers.Stop()
		return nil, nil, nil, nil, err
	}
	return cast, by, servers.Versions, servers.Stop, nil
}
