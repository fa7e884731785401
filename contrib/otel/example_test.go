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

func Example() {
	server := kit.Must(miniredis.Run())
	defer server.Close()
	ctx := context.Background()

	// The program's own: with a batch processor and an exporter.
	exporter := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter))

	tracer := kit.Must(otel.New(otel.Options{TracerProvider: provider}))
	o := headwaiter.Options{Observer: tracer}
	o.Redis.InitAddress = []string{server.Addr()}
	client := kit.Must(headwaiter.Dial(o))
	defer client.Shutdown(ctx)

	err := fairlock.New(client, "orders:42").Do(ctx, func(ctx context.Context) error {
		_, span := provider.Tracer("shop").Start(ctx, "ship") // Below the span of the hold.
		defer span.End()
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}

	if err := provider.ForceFlush(ctx); err != nil {
		log.Fatal(err)
	}
	spans := exporter.GetSpans()
	names := map[any]string{}
	for _, s := range spans {
		names[s.SpanContext.SpanID()] = s.Name
	}
	for _, s := range spans {
		fmt.Printf("%s, below %q\n", s.Name, names[s.Parent.SpanID()])
	}
	if err := provider.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// headwaiter wait, below ""
	// ship, below "headwaiter hold"
	// headwaiter hold, below "headwaiter wait"
}
