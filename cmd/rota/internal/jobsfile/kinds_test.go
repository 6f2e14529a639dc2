package jobsfile

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
)

func TestLoad_Kinds(t *testing.T) {
	f := loadGood(t, "kinds.yaml", testHost())
	require.Len(t, f.Kinds, 3)
	assert.Empty(t, f.Jobs)
	k := f.Kinds[0]
	assert.Equal(t, []any{"report", "a report to a customer", 3, 2, 500}, []any{k.Name, k.Description, k.Revision, k.MaxRunning, k.MaxJobs})
	assert.Equal(t, executor.Job{
		Shards: 2, ShardParams: map[int]string{0: "Beijing", 1: "Shanghai"}, Param: "all", Timeout: 30 * time.Minute,
		OnMisfire: executor.SkipMissed, OnOverlap: executor.SkipOverlapping,
		CatchupWindow: 6 * time.Hour, OnCrash: executor.CountAsFailed, Tracking: executor.TrackClaims, Strategy: "sticky",
		RunOn: map[string]string{"zone": "a"},
	}, k.Defaults)
	assert.NotNil(t, k.Handler)
	assert.Equal(t, `/bin/echo {{.Param}} {{.ShardParam}}`, k.Work)
	assert.Equal(t, 7, f.Kinds[1].Revision)
	assert.Equal(t, executor.Job{Retry: executor.Retry{Max: 3, Initial: 10 * time.Second}}, f.Kinds[1].Defaults)
	assert.NotEqual(t, f.Kinds[1].Digest, f.Kinds[2].Digest)

	other, err := Load("f", []byte("kinds:\n  report: {shell: echo}\n"), Host{})
	require.NoError(t, err)
	same, err := Load("f", []byte("jobs:\n  report: {shell: echo, on: trigger}\n"), Host{})
	require.NoError(t, err)
	assert.NotEqual(t, other.Digest(), same.Digest(), "a kind and a job of one name are two things")
}

func TestLoad_DefaultsDoNotApplyToKinds(t *testing.T) {
	f, err := Load("f", []byte("defaults: {timeout: 1m}\nkinds:\n  a: {shell: echo}\njobs:\n  b: {shell: echo, every: 1m}\n"), Host{})
	require.NoError(t, err)
	assert.Zero(t, f.Kinds[0].Defaults.Timeout)
	assert.Equal(t, time.Minute, f.Jobs[0].Timeout)
}
