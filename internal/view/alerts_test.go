package view

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/operator"
)

func TestAlerts(t *testing.T) {
	jobs := []operator.JobSummary{{Job: "settle", Shards: 3}}
	leader := operator.LeaderStatus{Instance: "a"}
	assert.Empty(t, alertsOf(&operator.GroupStatus{Leader: leader, Jobs: jobs, Instances: []operator.InstanceStatus{
		{Instance: "a", Alive: true, Shards: 3}, {Instance: "b", RestartGrace: time.Hour},
	}}, 1))
	assert.Empty(t, alertsOf(&operator.GroupStatus{}, 0), "a group without jobs needs no leader")

	v := JobsOf(operator.GroupStatus{Jobs: jobs, Instances: []operator.InstanceStatus{
		{Instance: "a", Alive: true, Skew: -90 * time.Second},
		{Instance: "b", RestartGrace: time.Hour, Shards: 1},
		{Instance: "c", Shards: 2},
	}}, JobsFilter{})
	assert.Equal(t, []Alert{
		{Text: "There is no leader, so no shard gets an owner and no act of an operator takes effect: see rota doctor.", Command: "rota doctor"},
		{Instance: "a", Text: "Its clock is 1m30s behind the fleet's median, so it owns no shards: correct the clock."},
		{
			Instance: "b", Text: "Its session has expired. For up to 1h, it is awaited with 1 shard: start it, or move them with rota drain b.",
			Command: "rota drain b", Act: "drain",
		},
		{Instance: "c", Text: "Its session has expired, and without a leader its 2 shards stay: start an instance."},
	}, v.Alerts)

	assert.Equal(t, "Its session has expired, and the leader is about to move its 2 shards.", describeFault(&operator.InstanceStatus{Shards: 2}, true))

	many := operator.GroupStatus{Leader: leader}
	for n := range 50 {
		many.Instances = append(many.Instances, operator.InstanceStatus{Instance: fmt.Sprint("i", n), Shards: 1})
	}
	fields := alertSection(alertsOf(&many, 0)).Fields
	assert.Len(t, fields, shownAlerts+1)
	assert.Equal(t, Field{"more", "45 instances: see rota instances"}, fields[shownAlerts])
}

func TestCheck_WarnsOfASkewedClock(t *testing.T) {
	st := operator.GroupStatus{
		Leader:    operator.LeaderStatus{Instance: "a"},
		Jobs:      []operator.JobSummary{{Job: "settle", Shards: 3, Expired: 1, ExpiredOwners: []string{"b"}}},
		Instances: []operator.InstanceStatus{{Instance: "a", Alive: true}, {Instance: "b", Shards: 1}},
	}
	assert.Equal(t, CheckOK, CheckOf(st, CheckLimits{MaxLate: time.Minute}).Code, "an instance that restarts")
	st.Instances[0].Skew = 3 * time.Hour
	v := CheckOf(st, CheckLimits{MaxLate: time.Minute})
	assert.Equal(t, CheckWarning, v.Code)
	assert.Equal(t, []string{"the clock of a is 3h ahead of the fleet's median"}, v.Reasons)
}

func TestCommandOf(t *testing.T) {
	at := time.Date(2026, 5, 4, 3, 0, 0, 0, time.UTC)
	for verb, want := range map[string]string{
		"Cancel": "rota cancel 'night run' --shard 0-1,7", "Disable": "rota drain web-1", "Enable": "rota enable 'night run' --shards 0-1,7",
		"Reset": "rota reset 'night run'", "Resume": "rota resume 'night run'",
		"ResumeGroup": "rota resume --all", "Retry": "rota retry 'night run' --fire 2026-05-04T03:00:00Z",
		"Trigger": "rota trigger 'night run' --shards 0-1,7", "": "",
	} {
		assert.Equal(t, want, commandOf("night run", &operator.Answer{Verb: verb, Instance: "web-1", Shards: []int{0, 1, 7}, Fire: at}, UnnamedHistory))
	}
}

func TestJob_NextHasCome(t *testing.T) {
	now := time.Now()
	j := Job{JobSummary: operator.JobSummary{NextFire: now.Add(-time.Second)}, State: OK}
	assert.Equal(t, "now", j.next(Times{Now: now, Mode: "relative"}))
}

func TestCheck_WarnsOfTwoClocksThatDiffer(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	st := operator.GroupStatus{
		At: at, Leader: operator.LeaderStatus{Instance: "a"}, Jobs: []operator.JobSummary{{Job: "j", Shards: 1}},
		Instances: []operator.InstanceStatus{{Instance: "a", Alive: true}, {Instance: "b", Alive: true, ClockDiffers: -7 * time.Second}},
	}
	v := CheckOf(st, CheckLimits{MaxLate: time.Minute, MinJobs: 1})
	assert.Equal(t, CheckWarning, v.Code)
	assert.Equal(t, []string{"the clock of b was 7s behind the leader's, and either may be wrong: check both"}, v.Reasons)
	assert.Contains(t, InstancesOf(st).Screen(Times{Now: at})[0].Table.Rows[1], "-7.0s?")
	assert.Equal(t, "clock differs", InstancesOf(st).Instances[1].State)

	st.Instances = []operator.InstanceStatus{{Instance: "a", Alive: true, Leader: true, ClockDiffers: time.Hour}}
	assert.Equal(t, []string{"the clock of a was 1h ahead of the store's, and either may be wrong: check both"}, CheckOf(st, CheckLimits{MaxLate: time.Minute, MinJobs: 1}).Reasons)
}

// A fire that is due is not hidden by the next one.
func TestJob_NextShowsAFireThatIsDue(t *testing.T) {
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	for overdue, want := range map[time.Duration]string{time.Second: "in 2s", 58 * time.Second: "due 58s", 2 * time.Minute: "late 2m"} {
		j := JobOf(&operator.JobSummary{Shards: 1, NextFire: now.Add(2 * time.Second), Overdue: now.Add(-overdue)}, now, LateAfter)
		assert.Equal(t, want, j.next(Times{Now: now, Mode: "relative"}))
	}
}
