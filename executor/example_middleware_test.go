package executor_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/registry/memory"
)

// Middleware acts before and after each run. That of the options is for all jobs, that of a job
// is within it.
func ExampleMiddleware() {
	timed := func(next executor.Handler) executor.Handler {
		return executor.HandlerFunc(func(ctx context.Context, r *executor.Run) error {
			began := time.Now()
			err := next.Handle(ctx, r)
			fmt.Printf("%s: measured: %t, error: %v\n", r.Job, time.Since(began) > 0, err)
			return err
		})
	}
	locked := func(next executor.Handler) executor.Handler {
		return executor.HandlerFunc(func(ctx context.Context, r *executor.Run) error {
			fmt.Println("before: lock the table")
			defer fmt.Println("after: unlock the table") // also if the handler panics
			return next.Handle(ctx, r)
		})
	}
	ex, err := executor.New(memory.New().Client("my-host"), "shop", executor.Options{
		Logger: quiet, Middleware: []executor.Middleware{timed},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ran := make(chan struct{})
	err = ex.Register(executor.Job{
		Name: "rebuild", Middleware: []executor.Middleware{locked},
		Handler: executor.HandlerFunc(func(context.Context, *executor.Run) error {
			defer close(ran)
			fmt.Println("rebuild the table")
			return errors.New("disk full")
		}),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	if err := ex.Start(ctx); err != nil {
		fmt.Println(err)
		return
	}
	if _, err := ex.Trigger(ctx, "rebuild", executor.Trigger{}); err != nil {
		fmt.Println(err)
	}
	<-ran
	fmt.Println("left:", ex.Shutdown(ctx)) // waits for the run
	// Output:
	// before: lock the table
	// rebuild the table
	// after: unlock the table
	// rebuild: measured: true, error: disk full
	// left: <nil>
}
