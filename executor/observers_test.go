package executor

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/internal/group/claimer"
	"github.com/rota-dev/rota/internal/group/event"
)

func TestObservers_CostNothingIfThereAreNone(t *testing.T) {
	e := &Executor{clock: time.Now}
	c := &claim{Run: claimer.Run{Job: "job"}, e: e, program: &program{}}
	r := &claimedRun{claim: c}
	events := e.memberEvents()
	ctx, at := context.Background(), time.Now()
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		e.observeClaimed(c, 0, at)
		r.observeBegun()
		r.observeEnded(ctx, at, runSucceeded, nil)
		events.Shards(event.Shards{Job: "job"})
		events.Skipped(event.Skipped{Job: "job"})
		events.Crashed(event.Crashed{Job: "job"})
	}))
}

func TestObservers_CloseReturnsWithTheLastCallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q observers
		q.add(Observer{})
		q.push(func(*Observer) { time.Sleep(deliveryTimeout / 10) })
		began := time.Now()
		q.close()
		assert.Equal(t, deliveryTimeout/10, time.Since(began))
	})
}
