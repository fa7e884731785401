// Command bench measures this library's lock against the floors of the machine it runs on.
//
//	go run ./bench/cmd/bench [flags]
//
// It prints one table, and with -out writes pages and pictures. It starts a redis-server of its own unless it is
// given one. An overlap of two holds, or a token that does not rise, makes it exit non-zero. Other locks next to this
// one are measured by bench/rivals/cmd/bench; with -pairs, the bare protocol and what this library builds on its lock by this one.
package main

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/bench"
	"github.com/headwaiter/headwaiter/bench/command"
	"github.com/headwaiter/headwaiter/bench/drivers"
)

func main() {
	os.Exit(command.Main(command.Tools{
		Contenders: contenders,
		Agent:      func(addr string) (bench.Driver, error) { return driver(addr), nil },
		On:         func(redis rueidis.ClientOption) bench.Driver { return drivers.Headwaiter{Redis: redis} },
		Standard:   []string{"-work", "W1,W2,W3,W4,W4h,W5,W6,W7,W8"},
	}))
}

func driver(addr string) bench.Driver {
	return drivers.Headwaiter{Redis: rueidis.ClientOption{InitAddress: []string{addr}}}
}

func contenders(_ context.Context, redis rueidis.ClientOption, names []string) ([]bench.Contender, map[string]string, func(), error) {
	own := drivers.Headwaiter{Redis: redis}
	c := drivers.Contender(own, lease)
	c.Command = func() *exec.Cmd {
		self, err := os.Executable()
		if err != nil {
			self = os.Args[0]
		}
		return exec.Command(self, "agent", redis.InitAddress[0])
	}
	all := []bench.Contender{c, drivers.BareContender(redis), drivers.MultilockContender(own, lease), drivers.CohortContender(own, lease), drivers.UnlockContender(own, lease), drivers.KeepContender(own, lease)}
	if slices.Contains(names, "plain") {
		all = append(all, drivers.PlainContender(redis)) // Few servers have what it needs.
	}
	cast, err := bench.Choose(all, names)
	return cast, nil, func() {}, err
}

const lease = 10 * time.Second
