package handler_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/handler"
	"github.com/rota-dev/rota/registry/memory"
	"github.com/rota-dev/rota/schedule"
)

// A document shows from here:

var jobs = []executor.Job{
	{
		Name:        "settle",
		Schedule:    schedule.Cron("0 3 * * *").In("Asia/Shanghai"),
		Shards:      3,
		ShardParams: map[int]string{0: "Beijing", 1: "Shanghai", 2: "Guangzhou"},
		Handler:     handler.Command("/opt/bin/settle", "--region={{.ShardParam}}", "--fence={{.Fence}}"),
	},
	{
		Name:     "backup",
		Schedule: schedule.Cron("0 1 * * *"),
		Handler: &handler.Cmd{
			Path:      "/bin/bash",
			Script:    `set -euo pipefail; pg_dump ledger | gzip > "/backup/$ROTA_FIRE.gz"`,
			Permanent: []int{64, 78},
		},
	},
	{
		Name:     "poll",
		Schedule: schedule.Every(time.Minute),
		Shards:   64,
		Handler: handler.HTTP(handler.Request{
			URL:     "https://tenants.internal/poll/{{.Shard}}",
			Header:  map[string]string{"X-Fence": "{{.Fence}}"},
			Body:    `{"tenant": {{json .ShardParam}}}`,
			Timeout: 20 * time.Second,
		}),
	},
}

// To here.

func TestPage_ItsJobsAreValid(t *testing.T) {
	for _, job := range jobs[:2] {
		job.Handler.(*handler.Cmd).Path = "/bin/sh" // the page's programs need not exist here
	}
	ex, err := executor.New(memory.New().Client("a"), "shop", executor.Options{})
	require.NoError(t, err)
	assert.NoError(t, ex.Register(jobs...))
}
