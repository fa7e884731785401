package main // At most two calls of an API at a time, over all processes, with metrics.

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/contrib/prometheus"
	"github.com/headwaiter/headwaiter/semaphore"
	prom "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

func main() {
	var running, most atomic.Int32
	call := func(context.Context) error {
		defer running.Add(-1)
		most.Store(max(most.Load(), running.Add(1)))
		time.Sleep(100 * time.Millisecond)
		return nil
	}
	collector, registry, done := prometheus.NewCollector(prometheus.Options{}), prom.NewRegistry(), make(chan error)
	registry.MustRegister(collector)
	for range 9 { // Nine processes, as it were.
		client, err := headwaiter.DialURL(os.Getenv("REDIS_URL"), func(o *headwaiter.Options) { o.Observer = collector })
		if err != nil {
			panic(err)
		}
		defer client.Close()
		go func() { done <- semaphore.New(client, "api", 2).Do(context.Background(), 1, call) }()
	}
	for range 9 {
		fmt.Println("call:", <-done)
	}
	page := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	if strings.Contains(page.Body.String(), `kind="semaphore",outcome="granted"} 9`) && most.Load() <= 2 {
		fmt.Println("limit: ok")
	}
}
