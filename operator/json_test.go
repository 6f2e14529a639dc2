package operator_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
)

// The JSON of an answer is that of the command rota, and decodes to the same answer.
func TestJSON(t *testing.T) {
	at := time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)
	act := operator.Act{At: at, By: "kim", What: "pause", Reason: "quarter end"}
	runs := operator.Runs{Shards: []int{3}, Fire: at, Attempt: 2}
	failure := operator.Failure{Runs: runs, More: 1, At: at, Error: "exit 1", Again: true}
	summary := operator.JobSummary{
		Job: "settle", Schedule: "every 1m", NextFire: at, Shards: 4, Expired: 1, ExpiredOwners: []string{"web-1"}, Failing: []int{3},
		LastFailure: failure, Paused: true, HeldBy: act, Ended: at,
	}
	instance := operator.InstanceStatus{Instance: "web-1", Incarnation: "web-1.7", Session: "7", Skew: time.Second, Labels: map[string]string{"zone": "a"}, RestartGrace: time.Minute}
	runsJSON := `"shards":[3],"fire":"2026-03-01T08:00:00Z","attempt":2`
	failureJSON := `{` + runsJSON + `,"more":1,"at":"2026-03-01T08:00:00Z","error":"exit 1","again":true}`
	actJSON := `{"at":"2026-03-01T08:00:00Z","by":"kim","reason":"quarter end","what":"pause"}`
	counts := `{"claimed":0,"succeeded":0,"failed":0,"skipped":0,"lost":0,"unknown":0,"retried":0}`

	isJSON(t, summary, `{"name":"settle","revision":0,"schedule":"every 1m","next":"2026-03-01T08:00:00Z","shards":4,"running":0,"unowned":0,"frozen":0,
		"disabled":0,"expired":1,"expired_owners":["web-1"],"reruns":0,"triggers":0,"failing":[3],"local_differs":null,"differs":null,
		"last_failure":`+failureJSON+`,"paused":true,"paused_by":`+actJSON+`,"counts":`+counts+`,"last_end":"2026-03-01T08:00:00Z"}`)
	isJSON(t, instance, `{"name":"web-1","incarnation":"web-1.7","host":"","session":"7","alive":false,"leader":false,"draining":false,"clock_skew_ns":1000000000,
		"disabled":false,"labels":{"zone":"a"},"weight":0,"restart_grace_ns":60000000000,"jobs":0,"unsupported":null,"differs":null,"shards":0,"running":0,
		"waiting":0,"blocked":0}`)
	isJSON(t, operator.MemberStatus{
		Instance: "web-1", Host: "n-1", Alive: true, Shards: []int{3}, Running: []operator.Runs{runs},
		Waiting: operator.Waiting{Shards: []int{3}, More: 2, Since: at, Behind: "MaxConcurrent"},
	}, `{"instance":"web-1","host":"n-1","alive":true,"draining":false,"offers":false,"unsupported":false,"revision":0,"differs":false,"local_differs":false,
		"shards":[3],"blocked":null,"running":[{`+runsJSON+`}],"waiting":[3],"waiting_more":2,"waiting_since":"2026-03-01T08:00:00Z","waits_behind":"MaxConcurrent"}`)
	isJSON(t, operator.Diagnosis{At: at, Findings: []operator.Finding{{Severity: operator.SeverityError, Kind: operator.FindingUnreadable, Key: "k", What: "w", Do: "d"}}},
		`{"at":"2026-03-01T08:00:00Z","findings":[{"severity":"error","kind":"unreadable","key":"k","what":"w","do":"d"}]}`)
	isJSON(t, operator.Explanation{Job: "settle", At: at, Known: true, Answers: []operator.Answer{{
		Shards: []int{3}, Fire: at, Gates: []operator.Gate{{Name: "owner", Verdict: operator.VerdictStop, Detail: "none"}}, Summary: "s", Do: "d", Verb: "Enable", Stops: true,
	}}}, `{"job":"settle","at":"2026-03-01T08:00:00Z","known":true,"answers":[{"shards":[3],"fire":"2026-03-01T08:00:00Z",
		"gates":[{"name":"owner","verdict":"stop","detail":"none"}],"summary":"s","do":"d","verb":"Enable","stops":true}]}`)
	isJSON(t, operator.Preview{At: at, Added: []string{"new-1"}, Jobs: []operator.JobMoves{{Job: "settle", Moves: []operator.Move{{Shards: []int{3}, From: "a", To: "b"}}, Problem: "p"}}},
		`{"at":"2026-03-01T08:00:00Z","added":["new-1"],"jobs":[{"job":"settle","moves":[{"shards":[3],"from":"a","to":"b"}],"unowned":null,"problem":"p"}]}`)
	isJSON(t, operator.OverridePreview{ShardsBefore: 2, Shards: 4, Fires: []time.Time{at}}, `{"shards_before":2,"shards":4,"fires_before":null,"fires":["2026-03-01T08:00:00Z"]}`)
	isJSON(t, operator.ShardStatus{Shard: 3, Owner: "a", LastFire: at, Attempt: 1, Running: true},
		`{"shard":3,"owner":"a","claimed_to":"2026-03-01T08:00:00Z","attempt":1,"running":true}`)

	decodesToTheSame(t, operator.GroupStatus{
		At: at, Namespace: "billing", Group: "default", Leader: operator.LeaderStatus{Instance: "web-1", Term: 7}, Jobs: []operator.JobSummary{summary},
		Instances: []operator.InstanceStatus{instance}, Disabled: operator.Scope{Hosts: []string{"n-1"}}, Paused: true, HeldBy: act, Unreadable: []registry.Key{"k"},
	})
	decodesToTheSame(t, operator.Status{
		Job: "settle", Intent: operator.Intent{Paused: true, HeldBy: act, Disabled: operator.Scope{Job: "settle", Shards: []int{1}}}, Unowned: []int{2},
		PerShard: []operator.ShardStatus{{Shard: 0, Owner: "a"}}, Reruns: []operator.Runs{runs}, Failures: []operator.Failure{failure},
		Backfills: []operator.Backfill{{Number: 1, Parallel: 2, Waiting: []time.Time{at}}}, Decisions: []operator.Decision{{At: at, By: "a", Term: 7, What: "w"}},
	})
}

func TestJSON_OfStatusHasNoParameters(t *testing.T) {
	secret := "secret"
	text, err := json.Marshal(operator.Status{Definition: json.RawMessage(`{"param":"secret"}`), Intent: operator.Intent{Override: operator.Override{Param: &secret}}})
	require.NoError(t, err)
	assert.NotContains(t, string(text), secret)
}

func isJSON[T any](t *testing.T, v T, want string) {
	t.Helper()
	text, err := json.Marshal(v)
	require.NoError(t, err)
	assert.JSONEq(t, want, string(text))
	decodesToTheSame(t, v)
}

func decodesToTheSame[T any](t *testing.T, v T) {
	t.Helper()
	text, err := json.Marshal(v)
	require.NoError(t, err)
	var read T
	require.NoError(t, json.Unmarshal(text, &read))
	assert.Equal(t, v, read)
}
