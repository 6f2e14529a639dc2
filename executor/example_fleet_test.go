package executor_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry/memory"
	"github.com/rota-dev/rota/schedule"
)

// quiet keeps what executors log out of the output of the examples.
var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// A process opens a registry, makes an executor, registers its jobs and runs until its
// context ends. The shutdown lets running handlers finish.
func ExampleNew() {
	ctx, stop := context.WithCancel(context.Background()) // a program has signal.NotifyContext here
	defer stop()
	reg := memory.New().Client("my-host") // and etcd.Open or zookeeper.Open here
	ex, err := executor.New(reg, "shop", executor.Options{Instance: "a", Logger: quiet})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = ex.Register(executor.Job{
		Name:     "poll",
		Schedule: schedule.Every(50 * time.Millisecond),
		Handler: executor.HandlerFunc(func(_ context.Context, r *executor.Run) error {
			if ctx.Err() == nil {
				fmt.Printf("%s polls shard %d of %d\n", r.Instance, r.Shard, r.Shards)
			}
			stop()
			return nil
		}),
	})
	fmt.Println("registered:", err)
	fmt.Println("left:", ex.Run(ctx))
	// Output:
	// registered: <nil>
	// a polls shard 0 of 1
	// left: <nil>
}

// All that is wrong with the jobs of one call is returned at once.
func ExampleExecutor_Register() {
	ex, err := executor.New(memory.New().Client("my-host"), "shop", executor.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	settle := executor.HandlerFunc(func(context.Context, *executor.Run) error { return nil })
	fmt.Println(ex.Register(
		executor.Job{Name: "settle", Schedule: schedule.Cron("0 3 * *"), Handler: settle},
		executor.Job{Name: "poll", Schedule: schedule.Every(time.Minute), Shards: 3, ShardParams: map[int]string{3: "east"}},
	))
	fmt.Println(ex.Register(
		executor.Job{Name: "settle", Revision: 2, Schedule: schedule.Cron("0 3 * * *"), Handler: settle},
	))
	// Output:
	// invalid job "settle": Schedule: schedule "cron 0 3 * *": expected 5 to 6 fields, found 4: [0 3 * *]
	// invalid job "poll": ShardParams: 1 are of shards that do not exist: there are 3, counted from 0, and no 3
	// invalid job "poll": Handler: is nil
	// <nil>
}

// A run by hand of one shard, with a parameter of its own. Any process of the fleet may ask
// for it; the owner of the shard runs it.
func ExampleExecutor_Trigger() {
	ctx := context.Background()
	ex, err := executor.New(memory.New().Client("my-host"), "shop", executor.Options{Logger: quiet})
	if err != nil {
		fmt.Println(err)
		return
	}
	ran := make(chan string)
	err = ex.Register(executor.Job{
		Name:   "rebuild", // without a Schedule: it runs when it is triggered
		Shards: 4,
		Param:  "changed rows",
		Handler: executor.HandlerFunc(func(_ context.Context, r *executor.Run) error {
			ran <- fmt.Sprintf("trigger %d: shard %d rebuilds %s", r.Trigger, r.Shard, r.Param)
			return nil
		}),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := ex.Start(ctx); err != nil {
		fmt.Println(err)
		return
	}
	number, err := ex.Trigger(ctx, "rebuild", executor.Trigger{Shards: []int{2}, Param: "all rows"})
	fmt.Println("number", number, err)
	fmt.Println(<-ran)
	fmt.Println("left:", ex.Shutdown(ctx))
	// Output:
	// number 1 <nil>
	// trigger 1: shard 2 rebuilds all rows
	// left: <nil>
}

// An Operator outside the fleet knows when a job fires next if it has the compiler of this
// package.
func ExampleCompile() {
	ctx, server := context.Background(), memory.New()
	ex, err := executor.New(server.Client("my-host"), "shop", executor.Options{Instance: "a", Logger: quiet})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = ex.Register(executor.Job{
		Name: "close the year", Schedule: schedule.Cron("0 3 1 jan *").In("Asia/Shanghai"),
		Handler: executor.HandlerFunc(func(context.Context, *executor.Run) error { return nil }),
	})
	if err == nil {
		err = ex.Start(ctx)
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ex.Shutdown(ctx)

	op, err := operator.New(server.Client("console"), "shop", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	op = op.WithCompiler(executor.Compile)
	st, err := op.Status(ctx, "close the year")
	for err == nil && st.Shards == 0 { // until the leader has planned the new job
		st, err = op.Status(ctx, "close the year")
	}
	fmt.Println(st.Schedule, err)
	fmt.Println("owner:", st.PerShard[0].Owner, "next fire:", st.NextFire.Format("2 January 15:04 MST"))
	// Output:
	// cron 0 3 1 jan * in Asia/Shanghai <nil>
	// owner: a next fire: 31 December 19:00 UTC
}
