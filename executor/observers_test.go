package executor

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/coordinator"
)

func TestObservers_CostNothingIfThereAreNone(t *testing.T) {
	e := &Executor{clock: time.Now}
	p, c, r := &program{}, &coordinator.Run{Job: "job"}, &Run{ID: "job"}
	events := e.memberEvents()
	ctx, at := context.Background(), time.Now()
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		e.observeClaimed(p, c, at)
		e.observeBegun(r)
		e.observeEnded(ctx, r, at, runSucceeded, nil)
		events.Shards(coordinator.ShardsEvent{Job: "job"})
		events.Skipped(coordinator.SkippedEvent{Job: "job"})
		events.Crashed(coordinator.CrashedEvent{Job: "job"})
	}))
}
