package operator_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry/memory"
	"github.com/rota-dev/rota/schedule"
)

// A window of the schedule is listed, and then run: at most one of its fires is in flight at a time.
func ExampleOperator_Backfill() {
	ctx := context.Background()
	op, stop := startBilling(ctx, memory.New())
	defer stop()

	from := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	fires, err := op.ListFires(ctx, "settle", from, from.AddDate(0, 0, 2))
	fmt.Println(fires, err)
	fires, err = op.As("kim", "the ledger was down").Backfill(ctx, "settle", from, from.AddDate(0, 0, 2), 1)
	fmt.Println(len(fires), err)
	// Output:
	// [2026-03-01 03:00:00 +0000 UTC 2026-03-02 03:00:00 +0000 UTC] <nil>
	// 2 <nil>
}

// An instance is taken out of service before its machine is maintained. Drain returns when the instance owns nothing.
func ExampleOperator_Drain() {
	ctx := context.Background()
	op, stop := startBilling(ctx, memory.New())
	defer stop()

	fmt.Println(op.As("kim", "new kernel").Drain(ctx, "web-1"))
	in, err := op.Intent(ctx, "")
	fmt.Println("disabled:", in.Disabled.Instances, err)
	fmt.Println(op.Undrain(ctx, "web-1"))
	// Output:
	// <nil>
	// disabled: [web-1] <nil>
	// <nil>
}

// A job gets more shards until the load is back to normal. The preview shows what changes.
func ExampleOperator_Override() {
	ctx := context.Background()
	op, stop := startBilling(ctx, memory.New())
	defer stop()

	more := operator.Override{Shards: 6, Policies: map[string]any{"timeout": "10m"}}
	preview, err := op.PreviewOverride(ctx, "settle", more)
	fmt.Println(preview.ShardsBefore, "to", preview.Shards, err)
	fmt.Println(op.As("kim", "year end").Override(ctx, "settle", more))
	in, err := op.Intent(ctx, "settle")
	fmt.Println(in.Override.Shards, in.OverriddenBy.By, err)
	fmt.Println(op.As("kim", "").Override(ctx, "settle", operator.Override{})) // taken back
	// Output:
	// 2 to 6 <nil>
	// <nil>
	// 6 kim <nil>
	// <nil>
}

// A stuck run is cancelled: its context ends with executor.ErrCancelled. Its handler returns an error, so it counts as failed; it is not made again.
func ExampleOperator_Cancel() {
	ctx := context.Background()
	server := memory.New()
	e, err := executor.New(server.Client("a"), "billing", executor.Options{Instance: "web-1", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer e.Shutdown(ctx)
	begun, ended := make(chan struct{}), make(chan struct{})
	err = e.Register(executor.Job{Name: "settle", Handler: executor.HandlerFunc(func(ctx context.Context, r *executor.Run) error {
		defer close(ended)
		close(begun)
		<-ctx.Done()
		fmt.Println("shard", r.Shard, "ends:", context.Cause(ctx))
		return context.Cause(ctx)
	})})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := e.Start(ctx); err != nil {
		fmt.Println(err)
		return
	}
	if _, err := e.Trigger(ctx, "settle", executor.Trigger{}); err != nil {
		fmt.Println(err)
		return
	}
	<-begun

	runs, err := e.Operator().As("kim", "waits for a lock").Cancel(ctx, "settle")
	if err != nil {
		fmt.Println(err)
		return
	}
	<-ended
	fmt.Println("cancelled", runs[0].Shards)
	// Output:
	// shard 0 ends: run is cancelled
	// cancelled [0]
}

// startBilling starts a process with a job "settle" and returns an operator outside of its fleet.
func startBilling(ctx context.Context, server *memory.Server) (op *operator.Operator, stop func()) {
	e, err := executor.New(server.Client("a"), "billing", executor.Options{Instance: "web-1", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	if err := e.Register(executor.Job{
		Name: "settle", Schedule: schedule.Cron("0 3 * * *"), Shards: 2, Handler: executor.HandlerFunc(func(context.Context, *executor.Run) error { return nil }),
	}); err != nil {
		panic(err)
	}
	if err := e.Start(ctx); err != nil {
		panic(err)
	}
	if op, err = operator.New(server.Client("console"), "billing", ""); err != nil {
		panic(err)
	}
	return op.WithCompiler(executor.Compile), func() { e.Shutdown(ctx) }
}

// A deployment is made with all jobs of the group paused, those that it adds too.
func ExampleOperator_PauseGroup() {
	ctx := context.Background()
	op, stop := startBilling(ctx, memory.New())
	defer stop()

	op = op.As("deploy", "release 12")
	fmt.Println(op.PauseGroup(ctx))
	// ... deploy
	fmt.Println(op.ResumeGroup(ctx))
	// Output:
	// <nil>
	// <nil>
}

// Calls carry the name of who makes them, and a reason. The next person finds both with the intent.
func ExampleOperator_As() {
	ctx := context.Background()
	op, stop := startBilling(ctx, memory.New())
	defer stop()

	if err := op.As("kim", "the ledger moves").PauseUntil(ctx, "settle", time.Now().Add(2*time.Hour)); err != nil {
		fmt.Println(err)
		return
	}
	in, err := op.Intent(ctx, "settle")
	fmt.Println(in.Paused, in.HeldBy.By, in.HeldBy.Reason, time.Until(in.Until).Round(time.Hour), err)

	acts, err := op.Acts(ctx, "settle")
	fmt.Println(len(acts), acts[0].By, err)
	// Output:
	// true kim the ledger moves 2h0m0s <nil>
	// 1 kim <nil>
}
