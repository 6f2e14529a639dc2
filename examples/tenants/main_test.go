package main

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/rotatest"
)

func TestFollow_GivesEachTenantItsSchedule(t *testing.T) {
	rotatest.Run(t, func(fleet *rotatest.Fleet) {
		t := fleet.T()
		var mu sync.Mutex
		reports := map[string]int{} // by tenant
		report := func(_ context.Context, r *executor.Run) error {
			mu.Lock()
			defer mu.Unlock()
			reports[r.Param]++
			return nil
		}
		take := func() map[string]int {
			mu.Lock()
			defer mu.Unlock()
			was := reports
			reports = map[string]int{}
			return was
		}
		a, b := fleet.Start("a"), fleet.Start("b")
		for _, ex := range []*executor.Executor{a, b} {
			require.NoError(t, ex.RegisterKind(reportKind(report)))
		}
		fleet.Sleep(90 * time.Second)
		require.NoError(t, follow(t.Context(), a.Operator(), []tenant{{"acme", "*/10 * * * *", "UTC"}, {"beta", "0 * * * *", "UTC"}}))
		fleet.Sleep(time.Hour)
		assert.Equal(t, map[string]int{"acme": 6, "beta": 1}, take())

		changed := []tenant{{"acme", "*/20 * * * *", "UTC"}, {"gamma", "*/30 * * * *", "Asia/Kolkata"}}
		require.NoError(t, follow(t.Context(), b.Operator(), changed), "by another process")
		require.NoError(t, follow(t.Context(), a.Operator(), changed), "again")
		fleet.Sleep(time.Hour)
		assert.Equal(t, map[string]int{"acme": 3, "gamma": 2}, take())

		require.NoError(t, follow(t.Context(), a.Operator(), nil))
		fleet.Sleep(time.Hour)
		assert.Empty(t, take())
	})
}
