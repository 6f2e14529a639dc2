package executor_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/registry/memory"
	"github.com/rota-dev/rota/schedule"
)

// A failed run is made again after growing delays, by the owner that its shard has then.
func ExampleRetry() {
	ex, err := executor.New(memory.New().Client("my-host"), "shop", executor.Options{Logger: quiet})
	if err != nil {
		fmt.Println(err)
		return
	}
	done := make(chan struct{})
	err = ex.Register(executor.Job{
		Name:  "charge",
		Retry: executor.Retry{Max: 5, Initial: 10 * time.Millisecond, MaxInterval: time.Minute},
		Handler: executor.HandlerFunc(func(_ context.Context, r *executor.Run) error {
			switch r.Retries {
			case 0:
				return errors.New("connection refused")
			case 1:
				return executor.RetryAfter(20*time.Millisecond, errors.New("too many requests"))
			}
			defer close(done)
			fmt.Println("attempt", r.Attempt, "is", r.Reason)
			return executor.Permanent(errors.New("no such account"))
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
	if _, err := ex.Trigger(ctx, "charge", executor.Trigger{}); err != nil {
		fmt.Println(err)
	}
	<-done
	if err := ex.Shutdown(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// attempt 3 is retried
}

// A job of which a slow run is not to be followed by another one at once.
func ExampleOverlapPolicy() {
	job := executor.Job{
		Name:          "refresh",
		Schedule:      schedule.Every(time.Minute),
		Timeout:       10 * time.Minute,
		OnOverlap:     executor.SkipOverlapping, // skip the fires of these minutes
		OnMisfire:     executor.RunAll(60),      // after an outage, make up for up to an hour
		CatchupWindow: time.Hour,
	}
	fmt.Println(job.OnOverlap, job.OnMisfire, job.CatchupWindow)
	// Output:
	// skip run all 60 1h0m0s
}

// A long run stores its progress. It returns early if somebody waits for its end: the next run of the
// shard goes on from there, on whichever instance.
func ExampleRun_Checkpoint() {
	rows := []string{"a", "b", "c"}
	handle := func(ctx context.Context, r *executor.Run) error {
		data, err := r.Resume(ctx)
		if err != nil {
			return err
		}
		next, _ := strconv.Atoi(string(data)) // 0 without a checkpoint
		for ; next < len(rows); next++ {
			select {
			case <-r.Yield():
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			default:
			}
			fmt.Println("copy", rows[next])
			if err := r.Checkpoint(ctx, []byte(strconv.Itoa(next+1))); err != nil {
				return err
			}
		}
		return r.Checkpoint(ctx, []byte("0")) // the next fire begins anew
	}
	r := &executor.Run{} // as a test calls it
	if err := r.Checkpoint(context.Background(), []byte("1")); err != nil {
		fmt.Println(err)
	}
	fmt.Println(handle(context.Background(), r))
	// Output:
	// copy b
	// copy c
	// <nil>
}
