package view

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/operator"
)

func TestRetiring_IsNoAlarm(t *testing.T) {
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	j := operator.JobSummary{
		Job: "digest", Shards: 4, Overdue: now.Add(-time.Hour), Unowned: 4, Problem: "p", Failing: []int{1}, Paused: true, UnofferedSince: now.Add(-time.Hour),
		RetiredBy: operator.Act{At: now, By: "kim", What: "retire"},
	}
	assert.Equal(t, []string{Retiring}, statesOf(&j, now, time.Minute))
	st := operator.GroupStatus{At: now, Leader: operator.LeaderStatus{Instance: "a"}, Jobs: []operator.JobSummary{j}, Instances: []operator.InstanceStatus{{Instance: "a", Alive: true}}}
	v := JobsOf(st, JobsFilter{State: Retiring})
	assert.Equal(t, []string{"digest"}, v.Names())
	assert.Empty(t, v.Alerts)
	assert.Equal(t, "retiring by kim", v.Jobs[0].Describe())
	j.RetiredBy.By = ""
	without := JobOf(&j, now, time.Minute)
	assert.Equal(t, "retiring", without.Describe())
	check := CheckOf(st, CheckLimits{MaxLate: time.Minute})
	assert.Equal(t, CheckOK, check.Code, check.Reasons)
}

func TestUnoffered_NamesTheRemedy(t *testing.T) {
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	st := operator.GroupStatus{At: now, Leader: operator.LeaderStatus{Instance: "a"}}
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		st.Jobs = append(st.Jobs, operator.JobSummary{Job: name, Shards: 1, Unowned: 1, UnofferedSince: now})
	}
	remedy := "o live instance offers a, b, c, d, e and 2 more: start one that does; if it was removed or renamed on purpose: rota retire JOB"
	assert.Equal(t, []Alert{{Text: "N" + remedy + "."}}, JobsOf(st, JobsFilter{}).Alerts)
	assert.Equal(t, "n"+remedy, CheckOf(st, CheckLimits{MaxLate: time.Minute}).Reasons[0], "a monitor shows the first reasons only")
	assert.Contains(t, CheckOf(st, CheckLimits{Jobs: JobsFilter{Glob: "g"}, MaxLate: time.Minute}).Reasons[0], "no live instance offers g:")
}

func TestDescribeRetiring(t *testing.T) {
	leader := operator.LeaderStatus{Instance: "a"}
	for want, st := range map[string]operator.Status{
		"deleted once no instance offers it; now a, b": {Leader: leader, Members: []operator.MemberStatus{{Instance: "b", Alive: true, Unsupported: true}, {Instance: "a", Alive: true, Offers: true}}},
		"deleted once its last runs have ended, on a":  {Leader: leader, Members: []operator.MemberStatus{{Instance: "a", Alive: true, Shards: []int{1}}, {Instance: "b", Offers: true}}},
		"there is no leader to delete it: start an instance": {
			Members: []operator.MemberStatus{{Instance: "a", Offers: true, Shards: []int{1}}},
		},
		"the leader deletes it": {Leader: leader},
	} {
		assert.Equal(t, want, DescribeRetiring(&st))
	}
}
