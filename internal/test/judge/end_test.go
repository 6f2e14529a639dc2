package judge

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestJudgeServed_ExcusesWhatDisabledShardsHaveToMake(t *testing.T) {
	judged := func(reruns, triggered, disabled shards, epochs int) int {
		o := New("ns", "default", Options{})
		p := &planRecord{Disabled: disabled, Epochs: make([]epoch, epochs)}
		j := &jobState{plan: p, triggers: map[uint64]shards{}}
		if reruns != 0 {
			p.Reruns = runs{{Shards: reruns, run: run{Epoch: 1, Attempt: 2}}}
		}
		if triggered != 0 {
			p.Triggers, j.triggers[7] = []trigger{{Number: 7, Epoch: 1}}, triggered
		}
		o.judgeServed(j)
		return o.report.Broken[5]
	}
	assert.Equal(t, 0, judged(0, 0, 0b01, 1))
	assert.Equal(t, 0, judged(0b01, 0, 0b01, 2), "the disabled shard has a re-run, which keeps its epoch")
	assert.Equal(t, 0, judged(0, 0b01, 0b01, 2), "the disabled shard has not made the trigger")
	assert.Equal(t, 1, judged(0b10, 0, 0b01, 1), "another shard has the re-run")
	assert.Equal(t, 1, judged(0, 0b10, 0b01, 1), "the disabled shard has made the trigger")
	assert.Equal(t, 1, judged(0, 0, 0b01, 2), "nothing keeps the epoch")
}

// A leader may read an older plan of the followed job than the newest one, which lists a fire no more.
func TestJudgeCounts_AcceptBothCountsOfAFireThatAFollowedJobListsNoMore(t *testing.T) {
	judged := func(schedule string, failed int, skipped int) int {
		o := New("ns", "default", Options{})
		at := func(seconds int64) instant { return instantOf(time.Unix(seconds, 0)) }
		definition := definition{Shards: 5, Schedule: schedule}
		before := &planRecord{Epochs: []epoch{{Number: 1, Def: definition}}, Followed: &followedRecord{Through: at(10), Number: 1}}
		after := &planRecord{Epochs: before.Epochs, Followed: &followedRecord{Through: at(20), Number: 2}, Counts: tallies{Skipped: skipped}}
		parent := &jobState{
			name: "parent", ended: []endedFire{{Number: 1, At: at(10)}, {Number: 2, At: at(20), Failed: failed}, {Number: 3, At: at(30)}},
			plan: &planRecord{Fires: &firesRecord{Ended: []endedFire{{Number: 3, At: at(30)}}}},
		}
		j := &jobState{name: "follower", plan: before}
		o.jobs = map[string]*jobState{"parent": parent, "follower": j}
		o.countUpstream(j, after)
		j.plan = after
		delete(o.jobs, "parent")
		o.JudgeCounts()
		return o.report.Broken[2]
	}
	assert.Equal(t, 0, judged("after-failure parent", 0, 5), "the leader read the newest plan")
	assert.Equal(t, 0, judged("after-failure parent", 0, 0), "the leader read the plan that lists the fire, in which no run failed")
	assert.Equal(t, 1, judged("after-failure parent", 0, 6))
	assert.Equal(t, 1, judged("after-failure parent", 1, 0), "a leader that read the older plan releases the fire")
	assert.Equal(t, 1, judged("after-end parent", 0, 0))
}
