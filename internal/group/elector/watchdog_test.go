package elector

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/registry"
)

func TestProgress(t *testing.T) {
	began := time.Now()
	p := Progress{since: began}
	t.Run("is stuck after longer than patience without progress", func(t *testing.T) {
		_, stuck := p.checkStuck(began.Add(time.Second), time.Second)
		assert.False(t, stuck)
		why, stuck := p.checkStuck(began.Add(time.Second+1), time.Second)
		assert.True(t, stuck)
		assert.Equal(t, "no progress for 1s, busy with nothing", why)
	})
	t.Run("describes the task and the last failure", func(t *testing.T) {
		p := Progress{since: began}
		p.SetTask("writes", "plans")
		p.RecordFailure(context.DeadlineExceeded)
		why, _ := p.checkStuck(began.Add(time.Minute), time.Second)
		assert.Equal(t, "no progress for 1m0s, busy with writes of plans; the last failure: context deadline exceeded", why)
	})
	t.Run("is not stuck while idle, nor when work begins", func(t *testing.T) {
		p := Progress{since: began.Add(-time.Hour), lastErr: errors.New("once")}
		p.MarkIdle()
		_, stuck := p.checkStuck(began, time.Second)
		assert.False(t, stuck)
		p.MarkBusy()
		_, stuck = p.checkStuck(time.Now(), time.Second)
		assert.False(t, stuck)
	})
	t.Run("counts a conflict as progress", func(t *testing.T) {
		p := Progress{since: began.Add(-time.Hour)}
		p.RecordFailure(fmt.Errorf("name: %w", &registry.ConflictError{}))
		_, stuck := p.checkStuck(time.Now(), time.Minute)
		assert.False(t, stuck)
	})
}
