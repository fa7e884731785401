package goredis_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/contrib/goredis"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

// BenchmarkSecondClient tells what a client of Headwaiter costs in addition to one of go-redis: connections, as all servers count them,
// and memory of the process, in KiB. Idle is after locks of twenty names, waiting is with one call that waits.
func BenchmarkSecondClient(b *testing.B) {
	for _, x := range []struct {
		kind  string
		start func() (rdb redis.UniversalClient, from redis.UniversalOptions, servers []*redistest.Server)
	}{
		{"server", func() (redis.UniversalClient, redis.UniversalOptions, []*redistest.Server) {
			s := redistest.Start(b)
			o := redis.UniversalOptions{Addrs: []string{s.Addr()}}
			return redis.NewUniversalClient(&o), o, []*redistest.Server{s}
		}},
		{"sentinel", func() (redis.UniversalClient, redis.UniversalOptions, []*redistest.Server) {
			s := redistest.Sentinel(b)
			o := redis.UniversalOptions{Addrs: s.Option().InitAddress, MasterName: s.Option().Sentinel.MasterSet}
			return redis.NewUniversalClient(&o), o, append(s.Servers(), s.Sentinels()...)
		}},
		{"cluster", func() (redis.UniversalClient, redis.UniversalOptions, []*redistest.Server) {
			s := redistest.Cluster(b)
			o := redis.UniversalOptions{Addrs: s.Option().InitAddress}
			var servers []*redistest.Server
			for _, node := range s.Nodes() {
				servers = append(servers, node.Server)
			}
			return redis.NewUniversalClient(&o), o, servers
		}},
	} {
		b.Run(x.kind, func(b *testing.B) {
			rdb, from, servers := x.start()
			defer rdb.Close()
			o, err := goredis.From(&from)
			require.NoError(b, err)
			plain := o
			o.Redis.ClientName, o.Redis.Sentinel.ClientName = "second", "second"
			other, err := headwaiter.Dial(plain)
			require.NoError(b, err)
			defer other.Shutdown(context.Background())
			held, err := fairlock.New(other, "orders").Lock(b.Context())
			require.NoError(b, err)

			before := heap()
			report := func(when string) {
				b.ReportMetric(float64(heap()-before)/float64(b.N)/1024, when+"-KiB")
				b.ReportMetric(float64(count(servers, "second"))/float64(b.N), when+"-conns")
			}
			clients := make([]*headwaiter.Client, b.N)
			for i := range clients {
				clients[i], err = headwaiter.Dial(o)
				require.NoError(b, err)
				for n := range 20 {
					own := fairlock.New(clients[i], fmt.Sprintf("%d of %d", n, i))
					require.NoError(b, own.Do(b.Context(), func(context.Context) error { return nil }))
				}
			}
			report("idle")
			var waits []*kit.Call[struct{}]
			for _, c := range clients {
				waits = append(waits, kit.Run(func() error {
					return fairlock.New(c, "orders").Do(b.Context(), func(context.Context) error { return nil })
				}))
			}
			for waiting := 0; waiting < b.N; {
				info, err := fairlock.New(other, "orders").Inspect(b.Context())
				require.NoError(b, err)
				waiting = info.Waiting
			}
			report("waiting")
			require.NoError(b, held.Release(b.Context()))
			for _, w := range waits {
				require.NoError(b, w.Err(b))
			}
			for _, c := range clients {
				require.NoError(b, c.Shutdown(context.Background()))
			}
		})
	}
}

// heap is what the process has on its heap and its stacks.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// count is how many connections with the name the servers have.
func count(servers []*redistest.Server, name string) (n int) {
	for _, s := range servers {
		n += strings.Count(s.Text("CLIENT", "LIST"), " name="+name+" ")
	}
	return n
}
