package handler

import (
	"context"
	"testing"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/executor"
)

type counter struct{ n int }

func (c *counter) Run() { c.n++ }

func TestAdapters_CallOncePerRun(t *testing.T) {
	c := &counter{}
	for _, h := range []executor.Handler{Cron(c), Cron(cron.FuncJob(c.Run)), Func(c.Run)} {
		c.n = 0
		assert.NoError(t, h.(executor.Checker).Check())
		assert.NoError(t, h.Handle(context.Background(), run()))
		assert.Equal(t, 1, c.n)
	}
}

func TestAdapters_RefuseNil(t *testing.T) {
	for _, h := range []executor.Handler{Cron(nil), Cron(cron.FuncJob(nil)), Func(nil)} {
		assert.ErrorContains(t, h.(executor.Checker).Check(), "is nil")
	}
}
