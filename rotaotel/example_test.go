package rotaotel_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/registry/memory"
	"github.com/rota-dev/rota/rotaotel"
)

// A program passes its tracer provider, whose exporter sends spans to a collector.
func ExampleMiddleware() {
	ctx := context.Background()
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	ex, err := executor.New(memory.New().Client("my-host"), "billing", executor.Options{
		Logger:     slog.New(slog.DiscardHandler),
		Middleware: []executor.Middleware{rotaotel.Middleware(provider)},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ran := make(chan struct{})
	err = ex.Register(executor.Job{Name: "settle", Handler: executor.HandlerFunc(func(context.Context, *executor.Run) error {
		close(ran)
		return errors.New("no ledger")
	})})
	fmt.Println(err, ex.Start(ctx))
	_, err = ex.Trigger(ctx, "settle", executor.Trigger{})
	<-ran
	fmt.Println(err, ex.Shutdown(ctx))
	for _, s := range spans.GetSpans() {
		fmt.Println(s.Name, s.Status.Description)
	}
	// Output:
	// <nil> <nil>
	// <nil> <nil>
	// run settle no ledger
}
