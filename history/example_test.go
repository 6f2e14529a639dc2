package history_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/rota-dev/rota/history"
)

var fire = time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)

func ended(shard int, took time.Duration, outcome history.Outcome) history.Run {
	return history.Run{
		ID: fmt.Sprintf("billing/default/settle/%d/2026-03-01T03:00:00Z/1", shard), Job: "settle", Fire: fire, Shard: shard, Shards: 3, Attempt: 1,
		Reason: "scheduled", Instance: "web-1", Fence: 7, Started: fire, Ended: fire.Add(took), Outcome: outcome,
	}
}

// A ring answers questions about the latest fires without a database.
func ExampleNewRing() {
	ring := history.NewRing(1000)
	recorder := history.New(ring, history.Options{Namespace: "billing"})
	for shard := range 3 {
		recorder.Add(ended(shard, time.Second, history.Succeeded))
	}
	failed := ended(2, 4*time.Second, history.Failed)
	failed.ID, failed.Attempt, failed.Error = "billing/default/settle/2/2026-03-01T03:00:00Z/2", 2, "ledger is locked"
	recorder.Add(failed)
	if err := recorder.Shutdown(context.Background()); err != nil {
		fmt.Println(err)
	}

	reader := ring.Reader("billing", "default")
	fires, _ := reader.Fires(context.Background(), history.FiresQuery{Job: "settle", Since: fire})
	for _, f := range fires {
		fmt.Printf("%s: %d ok, %d failed, longest %s\n", f.Fire.Format(time.TimeOnly), f.OK, f.Failed, f.MaxDuration)
	}
	failures, _ := reader.Failures(context.Background(), history.RunsQuery{})
	for _, r := range failures {
		fmt.Printf("shard %d, attempt %d: %s\n", r.Shard, r.Attempt, r.Error)
	}
	// Output:
	// 03:00:00: 3 ok, 1 failed, longest 4s
	// shard 2, attempt 2: ledger is locked
}

// Each record is a line, for a program that collects logs.
func ExampleJSONLines() {
	sink := history.JSONLines(os.Stdout) // usually a file that another program rotates
	recorder := history.New(runsOnly{sink}, history.Options{Namespace: "billing"})
	run := ended(0, time.Second, history.Failed)
	run.Error = "ledger is locked"
	recorder.Add(run)
	if err := recorder.Shutdown(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// {"kind":"run","namespace":"billing","group":"default","id":"billing/default/settle/0/2026-03-01T03:00:00Z/1","job":"settle","fire":"2026-03-01T03:00:00Z","shard":0,"shards":3,"attempt":1,"reason":"scheduled","instance":"web-1","fence":7,"started":"2026-03-01T03:00:00Z","ended":"2026-03-01T03:00:01Z","outcome":"failed","error":"ledger is locked"}
}

// runsOnly leaves out the records of fires, which have a random number.
type runsOnly struct{ history.Sink }

func (s runsOnly) Write(ctx context.Context, b history.Batch) error {
	return s.Sink.Write(ctx, history.Batch{Runs: b.Runs})
}
