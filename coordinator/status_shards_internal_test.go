package coordinator

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/coordinator/internal/coordtest"
	"github.com/rota-dev/rota/coordinator/internal/due"
	"github.com/rota-dev/rota/internal/record"
)

func TestNextFire(t *testing.T) {
	began := coordtest.BubbleStart()
	at := func(d time.Duration) record.Instant { return record.InstantOf(began.Add(d)) }
	minutes := func(json.RawMessage) (due.Program, error) { return coordtest.Minutely{}, nil }
	plan := func(epochs ...record.Epoch) *record.Plan { return &record.Plan{Epochs: epochs} }
	paused := plan(record.Epoch{Number: 1, Until: at(150 * time.Second)})
	paused.Paused = true
	stopped := plan(paused.Epochs...)
	stopped.Stopped = true
	for rule, c := range map[string]struct {
		plan *record.Plan
		want time.Time
	}{
		"is after now":                             {plan(record.Epoch{Number: 1}), began.Add(time.Minute)},
		"is of an epoch that has begun by then":    {plan(record.Epoch{Number: 1, From: at(90 * time.Second)}), began.Add(2 * time.Minute)},
		"may be the first instant of an epoch":     {plan(record.Epoch{Number: 1, From: at(2 * time.Minute)}), began.Add(2 * time.Minute)},
		"is of no epoch that has ended by then":    {plan(record.Epoch{Number: 1, Until: at(time.Second)}, record.Epoch{Number: 2, From: at(150 * time.Second)}), began.Add(3 * time.Minute)},
		"is none while the job is paused":          {paused, time.Time{}},
		"is none while the schedule is stopped":    {stopped, time.Time{}},
		"is the first of epochs that follow later": {plan(record.Epoch{Number: 1, Until: at(90 * time.Second)}, record.Epoch{Number: 2, From: at(90 * time.Second)}), began.Add(time.Minute)},
	} {
		t.Run(rule, func(t *testing.T) {
			assert.Equal(t, c.want, nextFire(c.plan, compilePlan(c.plan, minutes), began))
		})
	}
	t.Run("ignores epochs whose definition does not compile", func(t *testing.T) {
		none := func(json.RawMessage) (due.Program, error) { return nil, errors.New("unknown word") }
		assert.Zero(t, nextFire(plan(record.Epoch{Number: 1}), compilePlan(plan(record.Epoch{Number: 1}), none), began))
	})
}
