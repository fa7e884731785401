package keeper_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/keeper"
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
	terms := func() keeper.Terms {
		return keeper.Terms{
			Token: token, Release: func(context.Context) error { return nil },
			Until: keeper.Until{Deadline: time.Now().Add(time.Hour), Slept: keeper.Slept()},
		}
	}
	ctx := context.Background()
	run("New, Release", func() {
		if err := keeper.New(ctx, terms()).Release(ctx); err != nil {
			b.Fatal(err)
		}
	})
	k := keeper.New(ctx, terms())
	defer k.End()
	held := k.Context()
	run("Context", func() { _ = k.Context() })
	run("Context.Err", func() {
		if held.Err() != nil {
			b.Fatal("lost")
		}
	})
	run("Extend", func() { k.Extend(terms().Until) })
	run("Deadline", func() { _ = k.Deadline() })
	run("FromContext", func() { _, _ = keeper.FromContext(held) })
	run("a child of Context", func() {
		_, cancel := context.WithCancel(held)
		cancel()
	})
	require.NoError(b, held.Err())
}
