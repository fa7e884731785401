package otel_test

import (
	"context"
	"fmt"
	"log"

	"github.com/alicebob/miniredis/v2"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/contrib/otel"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
)

// Spans alone, where metrics come from elsewhere.
func ExampleNew_tracer() {
	server := kit.Must(miniredis.Run())
	defer server.Close()
	ctx := context.Background()
	exporter := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter))
	defer func() { _ = provider.Shutdown(ctx) }()

	tracer := kit.Must(otel.New(otel.Options{TracerProvider: provider}))
	o := headwaiter.Options{Observer: tracer}
	o.Redis.InitAddress = []string{server.Addr()}
	client := kit.Must(headwaiter.Dial(o))
	defer client.Shutdown(ctx)

	if err := fairlock.New(client, "orders:42").Do(ctx, func(context.Context) error { return nil }); err != nil {
		log.Fatal(err)
	}
	if err := provider.ForceFlush(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(exporter.GetSpans()))
	// Output: 2
}
