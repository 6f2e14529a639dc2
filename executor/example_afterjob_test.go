package executor_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/registry/memory"
	"github.com/rota-dev/rota/schedule"
)

// A report follows a job of three shards. It runs once for each fire, after the last shard.
func ExampleAfterJob() {
	ctx := context.Background()
	ex, err := executor.New(memory.New().Client("web-1"), "billing", executor.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	reported := make(chan string)
	settle := executor.Job{
		Name: "settle", Shards: 3, Schedule: schedule.OnTrigger(),
		Handler: executor.HandlerFunc(func(ctx context.Context, r *executor.Run) error {
			time.Sleep(time.Duration(r.Shard) * 10 * time.Millisecond)
			return nil
		}),
	}
	report := executor.Job{
		Name: "report", Schedule: schedule.AfterJob("settle"),
		Handler: executor.HandlerFunc(func(ctx context.Context, r *executor.Run) error {
			reported <- "settled: all shards have succeeded"
			return nil
		}),
	}
	if err := ex.Register(settle, report); err != nil {
		panic(err)
	}
	if err := ex.Start(ctx); err != nil {
		panic(err)
	}
	defer ex.Shutdown(ctx)
	if _, err := ex.Trigger(ctx, "settle", executor.Trigger{}); err != nil {
		panic(err)
	}
	fmt.Println(<-reported)
	// Output: settled: all shards have succeeded
}
