package judge

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// One commit ends an epoch, and a second one may move the end to after the last claimed fire. In between no
// owner can know that such a fire belongs to the epoch.
func TestJudgeLateClaim_ExcusesFiresThatAnEpochHoldsOnlySinceItsEndMoved(t *testing.T) {
	at := func(seconds int64) time.Time { return time.Unix(seconds, 0) }
	judged := func(ends ...instant) int {
		o := New("ns", "default", Options{Promptly: time.Second})
		o.sessions["S"] = &sessionState{client: "a"}
		j := &jobState{plan: &planRecord{}, shards: []*shardState{{owner: "a.S", epoch: 1, watermark: instantOf(at(600))}}}
		for i, end := range ends {
			o.now = at(500 + 111*int64(i))
			o.judgeEpochs(j, &planRecord{Epochs: []epoch{{Number: 1, Until: end, Def: definition{Shards: 1, Schedule: "every 10s"}}}})
		}
		o.now = at(630)
		o.judgeLateClaim(j, 0, "a.S", 1)
		return o.report.Broken[7]
	}
	before, after := instantOf(at(605)), instantOf(at(615)) // the fire at 610
	assert.Equal(t, 1, judged(after), "the epoch held it when it became due")
	assert.Equal(t, 1, judged(after, after))
	assert.Equal(t, 0, judged(before, after), "the epoch holds it since 611")
	assert.Equal(t, 0, judged(before))
}

// A disabled shard makes no re-run, and no fire passes a pending re-run.
func TestJudgeLateClaim_ExcusesFiresBehindAPendingRerunOfADisabledShard(t *testing.T) {
	at := func(seconds int64) time.Time { return time.Unix(seconds, 0) }
	judged := func(disabled bool) int {
		o := New("ns", "default", Options{Promptly: time.Second})
		o.sessions["S"] = &sessionState{client: "a"}
		crashed := run{Epoch: 1, Fire: instantOf(at(600)), Attempt: 1}
		plan := &planRecord{
			Owners: map[string]shards{"a.S": 1},
			Epochs: []epoch{{Number: 1, Def: definition{Shards: 1, Schedule: "every 10s", OnCrash: countAsFailed}}},
		}
		if disabled {
			plan.Disabled = 1
		}
		sh := &shardState{owner: "a.S", epoch: 1, watermark: crashed.Fire, orphan: &orphan{run: crashed, pending: true}}
		j := &jobState{plan: &planRecord{}, shards: []*shardState{sh}}
		o.now = at(500)
		o.judgeEpochs(j, plan)
		j.plan = plan
		o.now = at(630)
		o.judgeGivenUp(j, "a.S", &claimsRecord{Watermarks: []watermarkGroup{{Shards: 1, Epoch: 1, Fire: instantOf(at(610))}}}, 1)
		o.judgeLateClaim(j, 0, "a.S", 1)
		return o.report.Broken[7]
	}
	assert.Equal(t, 1, judged(false))
	assert.Equal(t, 0, judged(true))
}
