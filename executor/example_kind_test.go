package executor_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/registry/memory"
)

// A process registers what the runs of a kind do. The jobs are data in the store: each is defined with a name, a schedule and
// parameters of its own, while the fleet runs.
func ExampleExecutor_RegisterKind() {
	ex, err := executor.New(memory.New().Client("my-host"), "billing", executor.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		fmt.Println(err)
		return
	}
	report := executor.Kind{
		Name:     "report",
		Handler:  executor.HandlerFunc(func(ctx context.Context, r *executor.Run) error { return sendReport(ctx, r.Job, r.Param) }),
		Defaults: executor.Job{Timeout: 10 * time.Minute, Retry: executor.Retry{Max: 3}},
		// At most 20 reports at once in this process, however many are defined.
		MaxRunning: 20,
	}
	fmt.Println(ex.RegisterKind(report))
	report.Defaults.MaxRunning = 5
	fmt.Println(ex.RegisterKind(report))
	// Output:
	// <nil>
	// invalid kind "report": Defaults.MaxRunning: must not be set: it is Kind.MaxRunning
}

func sendReport(context.Context, string, string) error { return nil }
