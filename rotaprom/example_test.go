package rotaprom_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/registry/memory"
	"github.com/rota-dev/rota/rotaprom"
)

// A program registers the collector before it starts the executor, and serves /metrics by
// promhttp.Handler.
func ExampleCollector() {
	ctx := context.Background()
	ex, err := executor.New(memory.New().Client("my-host"), "billing", executor.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		fmt.Println(err)
		return
	}
	metrics := prometheus.NewRegistry() // or the default one: prometheus.MustRegister
	metrics.MustRegister(rotaprom.Collector(ex))

	ran := make(chan struct{})
	err = ex.Register(executor.Job{Name: "settle", Handler: executor.HandlerFunc(func(context.Context, *executor.Run) error {
		close(ran)
		return nil
	})})
	fmt.Println(err, ex.Start(ctx))
	_, err = ex.Trigger(ctx, "settle", executor.Trigger{})
	<-ran
	fmt.Println(err, ex.Shutdown(ctx))

	families, err := metrics.Gather()
	fmt.Println(err)
	for _, f := range families {
		for _, m := range f.Metric {
			if f.GetName() == "rota_runs_total" && strings.Contains(m.String(), `"ok"`) {
				fmt.Println(f.GetName(), m.Counter.GetValue())
			}
		}
	}
	// Output:
	// <nil> <nil>
	// <nil> <nil>
	// <nil>
	// rota_runs_total 1
}
