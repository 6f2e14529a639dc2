package dump

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestControlOf_LeavesOutWhatMayHaveRun(t *testing.T) {
	b, err := controlOf([]byte(`{"job":"a","paused":true,"triggers":[{"number":3,"at":"2026-03-01T00:00:00Z"}],"last_trigger":3,` +
		`"cancels":[{"shards":"0","epoch":1,"fire":"2026-03-01T00:00:00Z","attempt":1}],` +
		`"backfills":[{"number":1,"at":"2026-03-01T00:00:00Z","parallel":1,"fires":["2026-03-01T00:00:00Z"]}],"last_backfill":1,"override":{"shards":2}}`))
	require.NoError(t, err)
	assert.JSONEq(t, `{"job":"a","paused":true,"last_trigger":3,"last_backfill":1,"override":{"shards":2}}`, string(b))
}

func TestControlOfPlan_IsTheJobsOwnIntent(t *testing.T) {
	const plan = `{"format":1,"job":"a","paused":true,"epochs":[{"number":1,"from":null,"definition":{"name":"a","shards":1}}],"owners":{}`
	for text, want := range map[string]string{
		plan + `}`:                  `{"job":"a","paused":true}`,
		plan + `,"group_pause":{}}`: `{"job":"a"}`,
		plan + `,"group_pause":{"schedule_stopped":true}}`: `{"job":"a","schedule_stopped":true}`,
	} {
		b, err := controlOfPlan([]byte(text))
		require.NoError(t, err)
		assert.JSONEq(t, want, string(b))
	}
}
