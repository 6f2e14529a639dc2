package rotatest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/faults"
	"github.com/rota-dev/rota/rotatest"
	"github.com/rota-dev/rota/schedule"
)

// The body of a test of a handler that stores a result, while replies of the store are lost.
func ExampleFleet_lostReplies() {
	var t *testing.T // the test's own
	settleSurvivesLostReplies(t)
}

func settleSurvivesLostReplies(t *testing.T) {
	rotatest.Run(t, func(f *rotatest.Fleet) {
		in := faults.New(7)
		f.T().Cleanup(func() {
			if t.Failed() {
				t.Logf("faults:\n%v", in) // faults.Parse injects them again
			}
		})
		f.Wrap = in.Wrap // the library's own transactions are affected too
		results := in.Wrap("results", f.Server().Client("results"))
		job := executor.Job{
			Name: "settle", Schedule: schedule.Every(time.Hour), Shards: 3,
			Handler: executor.HandlerFunc(func(ctx context.Context, r *executor.Run) error {
				key := registry.Join("results", r.FireTime.Format("150405"), string(rune('a'+r.Shard)))
				_, err := registry.Apply(ctx, results, registry.Txn{Then: []registry.Op{registry.Create(key, nil)}})
				if errors.Is(err, registry.ErrConflict) {
					return nil // an earlier attempt stored it
				}
				return err
			}),
		}
		f.Start("a", job)
		lost := in.Add(faults.Rule{Fault: faults.LoseReply, Ops: faults.Txn, Chance: 0.2})
		f.Sleep(24 * time.Hour)
		lost.End()
		f.Settle()
		for _, r := range f.Runs("settle") {
			if r.Err != nil {
				t.Error(r)
			}
		}
		if lost.Injected() == 0 {
			t.Error("no reply was lost")
		}
		if err := results.Close(f.T().Context()); err != nil {
			t.Error(err)
		}
	})
}
