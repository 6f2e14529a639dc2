package rotatest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
)

func TestWorkers(t *testing.T) {
	t.Run("begin the waiting runs of a job in the order of their fires: a re-run that arrives last goes first", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			release := make(chan struct{})
			var long int // the shard of b that keeps its worker
			job := every(time.Minute, 4, executor.HandlerFunc(func(ctx context.Context, r *executor.Run) error {
				switch {
				case r.Instance == "a":
					<-ctx.Done() // until the crash
				case r.Shard == long:
					<-release
				default:
					time.Sleep(time.Second) // so that the starts are in an order
				}
				return nil
			}))
			f.Start("a", job)
			f.Options.Workers = 1
			f.Start("b", job)
			for incarnation, shards := range plan(f).Owners {
				if instance, _ := splitIncarnation(incarnation); instance == "b" {
					long, _ = shards.Max()
				}
			}
			first := f.NextFire("job")
			f.NextFire("job") // claimed, and waits for the worker
			f.Crash("a")
			f.Sleep(30 * time.Second) // its runs are claimed by b, and wait too
			close(release)
			f.Sleep(10 * time.Second)
			var begun []time.Time
			for _, r := range f.Runs("job") {
				if r.Instance == "b" && r.Start.After(first.Add(61*time.Second)) {
					begun = append(begun, r.FireTime)
				}
			}
			second := first.Add(time.Minute)
			require.GreaterOrEqual(t, len(begun), 3)
			require.Equal(t, []time.Time{first, first, second}, begun[:3])
		})
	})
}
