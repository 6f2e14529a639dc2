package view

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/operator"
)

func TestCheckOf_NamesTheReasonsForItsResultFirst(t *testing.T) {
	st := operator.GroupStatus{Leader: operator.LeaderStatus{Instance: "a"}, Instances: []operator.InstanceStatus{{Instance: "a", Alive: true}}}
	for i := range 6 {
		st.Jobs = append(st.Jobs, operator.JobSummary{Job: fmt.Sprint("bad", i), Problem: "strategy fails"})
	}
	c := CheckOf(st, CheckLimits{MaxLate: time.Minute, MinInstances: 3, MinJobs: 20})
	assert.Equal(t, CheckCritical, c.Code)
	assert.Equal(t, []string{"6 jobs, at least 20 expected", "1 live instance, at least 3 expected", "bad0: strategy fails"}, c.Reasons[:3])
	assert.Len(t, c.Reasons, 8)
}

// A monitor shows the first reasons only.
func TestCheckOf_NamesTheGravestReasonsFirst(t *testing.T) {
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	st := operator.GroupStatus{
		At: now, Leader: operator.LeaderStatus{Instance: "a"}, Instances: []operator.InstanceStatus{{Instance: "a", Alive: true, Skew: time.Minute}},
		Jobs: []operator.JobSummary{
			{Job: "big", Shards: 1, Failing: []int{0}},
			{Job: "fail", Shards: 1, Failing: []int{0}},
			{Job: "label", Shards: 1, Unowned: 1, Overdue: now.Add(-70 * time.Second)},
			{Job: "odd", Shards: 1, Problem: "strategy fails"},
		},
	}
	c := CheckOf(st, CheckLimits{MaxLate: 5 * time.Minute})
	assert.Equal(t, []string{
		"the clock of a is 1m ahead of the fleet's median", "label: no owner", "odd: strategy fails", "big: failing: shard 0", "fail: failing: shard 0",
	}, c.Reasons)
	assert.Contains(t, c.Nagios(), "late=0 failing=2 unowned=1 paused=0 max_late=70s;;300", "with the limit above which a job is late here")
	st.Jobs[3].Overdue, st.Jobs[2].Overdue = now.Add(-time.Hour), now.Add(-6*time.Minute)
	assert.Equal(t, []string{"odd has been due for 1h: strategy fails", "label has been due for 6m: LATE: no owner"}, CheckOf(st, CheckLimits{MaxLate: 5 * time.Minute}).Reasons[:2])
}
