package lease_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/lease"
)

// What a hold costs without the requests to its engine.
func BenchmarkLease(b *testing.B) {
	run := func(name string, f func()) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				f()
			}
		})
	}
	terms := func() lease.Terms {
		return lease.Terms{
			Token: token, Release: func(context.Context) error { return nil },
			Until: lease.Until{Deadline: time.Now().Add(time.Hour), Slept: lease.Slept()},
		}
	}
	ctx := context.Background()
	run("New, Release", func() {
		if err := lease.New(ctx, terms()).Lease().Release(ctx); err != nil {
			b.Fatal(err)
		}
	})
	k := lease.New(ctx, terms())
	defer k.End()
	l := k.Lease()
	held := l.Context()
	run("Context", func() { _ = l.Context() })
	run("Context.Err", func() {
		if held.Err() != nil {
			b.Fatal("lost")
		}
	})
	run("Extend", func() { k.Extend(terms().Until) })
	run("Deadline", func() { _ = l.Deadline() })
	run("FromContext", func() { _, _ = lease.FromContext(held) })
	run("a child of Context", func() {
		_, cancel := context.WithCancel(held)
		cancel()
	})
	require.NoError(b, held.Err())
}
