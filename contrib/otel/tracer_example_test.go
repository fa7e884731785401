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
)

// Spans alone, where metrics come from elsewhere.
func ExampleNewTracer() {
	server, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	ctx := context.Background()
	exporter := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter))
	defer func() { _ = provider.Shutdown(ctx) }()

	tracer, err := otel.NewTracer(provider)
	if err != nil {
		log.Fatal(err)
	}
	o := headwaiter.Options{Observer: tracer}
	o.Redis.InitAddress = []string{server.Addr()}
	client, err := headwaiter.Dial(o)
	if err != nil {
		log.Fatal(err)
	}
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
