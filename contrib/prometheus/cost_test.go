package prometheus_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/contrib/prometheus"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/observe"
)

// cycle is all that can be told of a call and a hold.
var cycle = []observe.Observation{
	{Moment: observe.Asked}, {Moment: observe.Queued, Place: 1}, {Moment: observe.Woken, Count: 1},
	{Moment: observe.Granted, Waited: time.Millisecond, Token: 7},
	{Moment: observe.RenewalFailed, Margin: time.Second, Lease: 2 * time.Second, Err: context.DeadlineExceeded},
	{Moment: observe.Renewed, Margin: time.Second, Lease: 2 * time.Second},
	{Moment: observe.Released, Held: 3 * time.Second}, {Moment: observe.HandedOff},
	{Moment: observe.Skipped, Count: 1}, {Moment: observe.Expired, Count: 1}, {Moment: observe.Missed},
	{Moment: observe.Asked}, {Moment: observe.Failed, Waited: time.Second, Err: context.Canceled},
	{Moment: observe.Asked}, {Moment: observe.Granted}, {Moment: observe.Lost, Held: time.Second, Err: lease.ErrExpired},
}

// request is one that was answered.
var request = observe.Request{Engine: "redis", Server: "a:6379", Client: "worker", Took: 3 * time.Millisecond}

// collectors are those whose cost is to be known.
func collectors() map[string]*prometheus.Collector {
	return map[string]*prometheus.Collector{
		"one class": prometheus.NewCollector(prometheus.Options{}),
		"classes":   prometheus.NewCollector(prometheus.Options{Class: func(name string) string { return name[:1] }}),
	}
}

func TestAnObservationAllocatesNothing(t *testing.T) {
	for name, c := range collectors() {
		require.Zero(t, testing.AllocsPerRun(100, func() { c.ObserveRequest(request) }), name)
		for _, o := range cycle {
			o.Kind, o.Name, o.Ticket = "lock", "orders:42", "a ticket"
			got := testing.AllocsPerRun(100, func() { c.Observe(context.Background(), o) })
			require.Zero(t, got, "%s: %v", name, o.Moment)
		}
	}
}

func BenchmarkObserve(b *testing.B) {
	for name, c := range collectors() {
		for _, o := range cycle[:8] {
			o.Kind, o.Name, o.Ticket = "lock", "orders:42", "a ticket"
			b.Run(fmt.Sprintf("%s/%v", name, o.Moment), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					c.Observe(context.Background(), o)
				}
			})
		}
	}
}

// What a scrape costs where there are as many classes as there may be.
func BenchmarkScrape(b *testing.B) {
	c := prometheus.NewCollector(prometheus.Options{Class: func(name string) string { return name }})
	for i := range 100 {
		for _, o := range cycle {
			o.Kind, o.Name = "lock", fmt.Sprint(i)
			c.Observe(context.Background(), o)
		}
	}
	for b.Loop() {
		scrape(b, c)
	}
}
