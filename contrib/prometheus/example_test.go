package prometheus_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	prom "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/contrib/prometheus"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
)

// connect is what a program does at its start.
func connect(url string) (*headwaiter.Client, http.Handler, error) {
	collector := prometheus.NewCollector(prometheus.Options{
		// orders:42 counts to orders. Leave it out where a program has few locks.
		Class: func(name string) string { return strings.Split(name, ":")[0] },
		Log:   slog.Default(),
	})
	registry := prom.NewRegistry()
	registry.MustRegister(collector)
	client, err := headwaiter.DialURL(url, func(o *headwaiter.Options) {
		o.Observer, o.Log = collector, slog.Default()
		o.HeldTooLong, o.WaitedTooLong = time.Minute, time.Minute
	})
	return client, promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), err
}

// Metrics of the locks of a program, on a page for Prometheus.
func Example() {
	server := kit.Must(miniredis.Run())
	defer server.Close()
	client, metrics, err := connect("redis://" + server.Addr())
	if err != nil {
		panic(err)
	}
	defer client.Close()

	for _, name := range []string{"orders:42", "orders:43", "invoices:7"} {
		err := fairlock.New(client, name).Do(context.Background(), func(context.Context) error { return nil })
		if err != nil {
			panic(err)
		}
	}
	page := httptest.NewRecorder()
	metrics.ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for lines := bufio.NewScanner(page.Body); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "headwaiter_attempts_total") && strings.Contains(lines.Text(), "granted") {
			fmt.Println(lines.Text())
		}
	}
	// Output:
	// headwaiter_attempts_total{class="invoices",kind="lock",outcome="granted"} 1
	// headwaiter_attempts_total{class="orders",kind="lock",outcome="granted"} 2
}
