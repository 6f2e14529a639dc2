package executor_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/registry/memory"
)

// An observer receives the end of each run. The shutdown delivers the events before it.
func ExampleObserver() {
	ctx := context.Background()
	observer := executor.Observer{
		RunEnded: func(e executor.RunEnded) { fmt.Println(e.Run.Job, e.Run.Shard, e.Run.Trigger, e.Outcome, e.Err) },
	}
	ex, err := executor.New(memory.New().Client("my-host"), "shop", executor.Options{Logger: quiet, Observer: observer})
	if err != nil {
		fmt.Println(err)
		return
	}
	ran := make(chan struct{})
	err = ex.Register(executor.Job{
		Name: "report",
		Handler: executor.HandlerFunc(func(context.Context, *executor.Run) error {
			close(ran)
			return errors.New("no paper")
		}),
	})
	fmt.Println(err, ex.Start(ctx))
	number, err := ex.Trigger(ctx, "report", executor.Trigger{})
	fmt.Println(number, err)
	<-ran
	fmt.Println(ex.Shutdown(ctx))
	// Unordered output:
	// <nil> <nil>
	// 1 <nil>
	// report 0 1 failed no paper
	// <nil>
}
