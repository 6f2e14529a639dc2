package view

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
)

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", time.Microsecond: "1ms", 340 * time.Millisecond: "340ms", 12 * time.Second: "12s", 60 * time.Second: "1m",
		9*time.Minute + 12*time.Second: "9m12s", 59*time.Minute + 59*time.Second: "59m", 90 * time.Minute: "1h30m",
		30 * time.Hour: "30h", 72 * time.Hour: "3d", -5 * time.Second: "-5s",
	} {
		assert.Equal(t, want, Span(d), d)
	}
}

func TestRanges(t *testing.T) {
	assert.Equal(t, "0-6,8,10-11", Ranges([]int{0, 1, 2, 3, 4, 5, 6, 8, 10, 11}))
	assert.Empty(t, Ranges(nil))
	assert.Equal(t, "1,3,5,7,9,11,13,15,17,...", few([]int{1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23}))
	assert.Equal(t, "shard 7", ShardsText([]int{7}))
}

func TestTimes(t *testing.T) {
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	zone := time.FixedZone("X", 8*3600)
	at := now.Add(90 * time.Minute)
	for mode, want := range map[string][3]string{
		"relative": {"in 1h30m", "in 30h", "2026-05-04T04:32:01Z (in 1h30m)"},
		"utc":      {"04:32:01Z", "2026-05-05 09:02Z", "2026-05-04T04:32:01Z"},
		"local":    {"12:32:01", "2026-05-05 17:02", "2026-05-04T12:32:01+08:00"},
	} {
		times := Times{Now: now, Mode: mode, Zone: zone}
		assert.Equal(t, want, [3]string{times.At(at), times.At(now.Add(30 * time.Hour)), times.Exact(at)}, mode)
		assert.Equal(t, "-", times.At(time.Time{}))
	}
	assert.Equal(t, "5s ago", Times{Now: now, Mode: "relative"}.At(now.Add(-5*time.Second)))
}

func TestShortSchedule(t *testing.T) {
	for text, want := range map[string]string{
		"":                                "-",
		"cron 0 3 * * * in Asia/Shanghai": "0 3 * * * Asia/Shanghai",
		"quartz 0 0 3 L * ?":              "quartz 0 0 3 L * ?",
		"every 10s":                       "every 10s",
	} {
		assert.Equal(t, want, ShortSchedule(text))
	}
}

// TestStates has a row for each state, with the words that a screen shows.
func TestStates(t *testing.T) {
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	late := now.Add(-2 * time.Minute)
	for _, c := range []struct {
		job   operator.JobSummary
		first string
		text  string
	}{
		{operator.JobSummary{Shards: 4}, OK, "ok"},
		{operator.JobSummary{Shards: 4, Disabled: 1}, OK, "ok, 1 disabled"},
		{operator.JobSummary{Shards: 4, Overdue: now.Add(-time.Second)}, OK, "ok"},
		{operator.JobSummary{Shards: 4, Overdue: late}, Late, "LATE"},
		{operator.JobSummary{Shards: 4, Overdue: late, Running: 1}, Late, "LATE: still runs"},
		{operator.JobSummary{Shards: 4, Overdue: late, Running: 1, AwaitedPool: "db"}, Late, "LATE: waits for pool db"},
		{operator.JobSummary{Shards: 4, Overdue: late, Running: 1, Unowned: 1, Failing: []int{1}}, Late, "LATE: no owner"},
		{operator.JobSummary{Shards: 4, Unowned: 1, Problem: "p"}, Unowned, "no owner"},
		{operator.JobSummary{Shards: 4, Problem: "p", Failing: []int{1}}, Problem, "p"},
		{operator.JobSummary{Shards: 4, Failing: []int{1, 2}}, Failing, "failing: shards 1-2"},
		{operator.JobSummary{Shards: 4, Paused: true}, Paused, "paused"},
		{operator.JobSummary{Shards: 4, Overdue: late, Expired: 2, ExpiredOwners: []string{"a", "b"}}, Late, "LATE: 2 owners expired"},
		{operator.JobSummary{Shards: 4, Expired: 2, ExpiredOwners: []string{"a"}}, Expired, "a expired"},
		{operator.JobSummary{Shards: 4, Expired: 2, ExpiredOwners: []string{"a"}, Failing: []int{1}}, Failing, "failing: shard 1"},
		{operator.JobSummary{Shards: 4, ScheduleStopped: true}, Stopped, "by trigger only"},
		{operator.JobSummary{}, New, "not planned"},
		{operator.JobSummary{Paused: true}, Paused, "paused, not planned"},
	} {
		states := statesOf(&c.job, now, LateAfter)
		assert.Equal(t, []string{c.first, c.text}, []string{states[0], describeState(&c.job, states)})
	}
}

func TestInstanceStates(t *testing.T) {
	for want, i := range map[string]operator.InstanceStatus{
		"ok":                                   {Alive: true},
		"leader":                               {Alive: true, Leader: true},
		"left":                                 {Draining: true},
		"expired, draining":                    {Draining: true, Running: 1},
		"leader, draining":                     {Alive: true, Leader: true, Draining: true},
		"expired":                              {},
		"disabled, skewed":                     {Alive: true, Disabled: true, Skew: -7300 * time.Millisecond},
		"blocked":                              {Alive: true, Blocked: 2},
		"unsupported jobs, definitions differ": {Alive: true, Unsupported: []string{"a"}, Differs: []string{"b"}},
	} {
		assert.Equal(t, want, stateOf(&i, false))
	}
	assert.Equal(t, "drained", stateOf(&operator.InstanceStatus{Alive: true, Disabled: true}, true))
	assert.Equal(t, "being drained", stateOf(&operator.InstanceStatus{Alive: true, Disabled: true, Shards: 2}, true))
	assert.Equal(t, "expired, drained", stateOf(&operator.InstanceStatus{Disabled: true}, true))
	v := InstancesOf(operator.GroupStatus{Instances: []operator.InstanceStatus{{Instance: "a", Skew: -7300 * time.Millisecond}}})
	assert.Contains(t, v.Screen(Times{})[0].Table.Rows[0], "-7.3s")
	assert.Equal(t, []string{"+7.0s", "+1h", "-1m30s"}, []string{clockText(7 * time.Second), clockText(time.Hour + 30*time.Second), clockText(-90 * time.Second)})
}

func TestConditions(t *testing.T) {
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	idle := operator.Status{Job: "j", Shards: 1, PerShard: []operator.ShardStatus{{Owner: "a"}}}
	with := func(change func(*operator.Status)) *operator.Status {
		st := idle
		st.PerShard = append([]operator.ShardStatus{}, idle.PerShard...)
		change(&st)
		return &st
	}
	for _, c := range []struct {
		condition string
		change    func(*operator.Status)
		why       string
	}{
		{"idle", func(*operator.Status) {}, ""},
		{"idle", func(st *operator.Status) { st.PerShard[0].Running = true }, "1 shard running"},
		{"idle", func(st *operator.Status) { st.Reruns = []operator.Runs{{Shards: []int{1, 2}}} }, "2 pending re-runs"},
		{"idle", func(st *operator.Status) { st.Triggers = []uint64{1} }, "1 pending trigger"},
		{"idle", func(st *operator.Status) { st.Overdue = now.Add(-time.Second) }, "a fire has been due for 1s"},
		{"ok", func(*operator.Status) {}, ""},
		{"ok", func(st *operator.Status) { st.Problem = "p" }, "p"},
		{"ok", func(st *operator.Status) { st.Paused = true }, "paused"},
		{"moved", func(st *operator.Status) { st.Paused = true }, ""},
		{"moved", func(st *operator.Status) { st.Shards = 0 }, "the job has no plan"},
		{"moved", func(st *operator.Status) { st.Unowned = []int{0} }, "without an owner: shard 0"},
		{"moved", func(st *operator.Status) { st.Frozen = []int{0} }, "about to move: shard 0"},
		{"moved", func(st *operator.Status) {
			st.Members = []operator.MemberStatus{{Instance: "a", Alive: true}, {Instance: "b", Shards: []int{0}}}
		}, "b, whose session expired, owns shard 0"},
		{"moved", func(st *operator.Status) {
			st.Members = []operator.MemberStatus{{Instance: "b", Alive: true, Draining: true, Shards: []int{0}}}
		}, "b, which drains, owns shard 0"},
	} {
		holds, why := Conditions[c.condition](with(c.change), now)
		assert.Equal(t, c.why, why)
		assert.Equal(t, c.why == "", holds)
	}
	assert.Len(t, Conditions, len(ConditionNames))
}

// TestShards has a row for each state of a shard, and for each note.
func TestShards(t *testing.T) {
	st := operator.Status{
		Job: "j", Shards: 6, Disabled: []int{3}, Frozen: []int{2},
		PerShard: []operator.ShardStatus{
			{Shard: 0},
			{Shard: 1, Owner: "a", Running: true},
			{Shard: 2, Owner: "a", Running: true},
			{Shard: 3, Owner: "a"},
			{Shard: 4, Owner: "b", LastTrigger: 5},
			{Shard: 5, Owner: "c"},
		},
		Reruns: []operator.Runs{{Shards: []int{0}, Attempt: 2}},
		Members: []operator.MemberStatus{
			{Instance: "a", Alive: true, Draining: true, Shards: []int{1}, Waiting: operator.Waiting{Shards: []int{1}, Behind: "other"}},
			{Instance: "b", Shards: []int{4}},
			{Instance: "c", Alive: true, Blocked: []int{0}},
		},
	}
	var got [][2]string
	for _, s := range ShardsOf(st, "", time.Time{}).Shards {
		got = append(got, [2]string{s.State, s.Note})
	}
	assert.Equal(t, [][2]string{
		{"no owner", "attempt 2 is pending; c may not own it: an earlier run there has not returned"},
		{"running", "a drains; waits for a worker behind other"},
		{"moving", ""},
		{"disabled", ""},
		{"idle", "session of b expired"},
		{"idle", ""},
	}, got)
	assert.Len(t, ShardsOf(st, "a", time.Time{}).Shards, 3)
	st.Paused = true
	assert.Equal(t, "paused", ShardsOf(st, "c", time.Time{}).Shards[0].State)
}

// Who paused a job follows the state, before what else there is to know.
func TestJobs_DescribesSeveralStatesAtOnce(t *testing.T) {
	by := operator.Act{At: time.Unix(1, 0), By: "kim"}
	const problem = "no live instance that offers the job has the labels gpu=yes"
	for want, j := range map[string]operator.JobSummary{
		"paused by kim, 2 disabled, differs on web-3":         {Shards: 4, Paused: true, HeldBy: by, Disabled: 2, Differs: []string{"web-3"}},
		"paused with the group, 1 disabled":                   {Shards: 4, Paused: true, GroupPaused: true, HeldBy: by, Disabled: 1},
		"paused, 1 disabled":                                  {Shards: 4, Paused: true, Disabled: 1},
		"retiring by kim, 1 disabled, differs on 2 instances": {Shards: 4, RetiredBy: by, Disabled: 1, Differs: []string{"a", "b"}},
		"paused by kim, not planned":                          {Paused: true, HeldBy: by},
		"not planned":                                         {},
		"ok, 1 disabled":                                      {Shards: 4, Disabled: 1},
		"failing: shard 2, paused":                            {Shards: 4, Failing: []int{2}, Paused: true, HeldBy: by, Disabled: 1},
		"paused, " + problem:                                  {Shards: 4, Problem: problem, Paused: true, HeldBy: by},
		"web-1 expired":                                       {Shards: 4, Expired: 1, ExpiredOwners: []string{"web-1"}, Disabled: 1},
	} {
		v := JobOf(&j, time.Now(), LateAfter)
		assert.Equal(t, want, v.Describe())
	}
}

func TestJobsFilter_Check(t *testing.T) {
	assert.NoError(t, JobsFilter{Glob: "a*", State: Late}.Check())
	assert.ErrorContains(t, JobsFilter{Glob: "a["}.Check(), `pattern "a["`)
	assert.ErrorContains(t, JobsFilter{State: "sad"}.Check(), `state is "sad", not one of late`)
}

func TestCheckOf(t *testing.T) {
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	leader := operator.LeaderStatus{Instance: "a"}
	live := []operator.InstanceStatus{{Instance: "a", Alive: true}}
	for _, c := range []struct {
		st   operator.GroupStatus
		code int
		want string
	}{
		{operator.GroupStatus{Namespace: "biling"}, CheckUnknown, `ROTA UNKNOWN - group "default" of namespace "biling" has no records: check -n, -g and the address of the registry | jobs=0 instances=0`},
		{operator.GroupStatus{Leader: leader, Instances: live}, CheckUnknown, "ROTA UNKNOWN - the group has no job |"},
		{operator.GroupStatus{Jobs: []operator.JobSummary{{Shards: 1}}}, CheckCritical, "ROTA CRITICAL - no leader"},
		{operator.GroupStatus{Namespace: "billing", Leader: leader, Jobs: []operator.JobSummary{{Shards: 1, Paused: true}}}, CheckOK, "ROTA OK - 1 job of billing/default"},
		{operator.GroupStatus{Leader: leader, Jobs: []operator.JobSummary{{Job: "j", Shards: 1, Failing: []int{0}}}}, CheckWarning, "ROTA WARNING - j: failing: shard 0"},
		{
			operator.GroupStatus{Leader: leader, Jobs: []operator.JobSummary{{Job: "a|b", Shards: 1, Overdue: now.Add(-6 * time.Minute)}}},
			CheckCritical, "ROTA CRITICAL - a/b has been due for 6m: LATE | jobs=1 instances=0 late=1 failing=0 unowned=0 paused=0 max_late=360s",
		},
		{operator.GroupStatus{Leader: leader, Jobs: []operator.JobSummary{{Shards: 1, Overdue: now.Add(-4 * time.Minute)}}}, CheckOK, "max_late=240s"},
		{operator.GroupStatus{Leader: leader, Jobs: []operator.JobSummary{{Shards: 1}}, Unreadable: []registry.Key{"k"}}, CheckWarning, "k cannot be read"},
	} {
		c.st.At, c.st.Group = now, "default"
		v := CheckOf(c.st, CheckLimits{MaxLate: 5 * time.Minute, MinJobs: 1})
		assert.Equal(t, c.code, v.Code)
		assert.Contains(t, v.Nagios(), c.want)
	}
}

func TestCheckOf_FindsFewerJobsOrInstancesThanExpected(t *testing.T) {
	st := operator.GroupStatus{
		Namespace: "billing", Group: "default", Leader: operator.LeaderStatus{Instance: "a"}, Jobs: []operator.JobSummary{{Job: "j", Shards: 1}},
		Instances: []operator.InstanceStatus{{Instance: "a", Alive: true}, {Instance: "b"}},
	}
	for _, c := range []struct {
		limits CheckLimits
		code   int
		want   string
	}{
		{CheckLimits{MinJobs: 1, MinInstances: 1}, CheckOK, "1 job of billing/default | jobs=1 instances=1"},
		{CheckLimits{MinJobs: 2}, CheckCritical, "1 job, at least 2 expected"},
		{CheckLimits{MinInstances: 2}, CheckCritical, "1 live instance, at least 2 expected"},
		{CheckLimits{MinJobs: 1, Jobs: JobsFilter{Glob: "setle"}}, CheckUnknown, `the group has no job "setle"`},
		{CheckLimits{Jobs: JobsFilter{Glob: "setle"}}, CheckOK, "0 jobs of billing/default"},
	} {
		c.limits.MaxLate = time.Minute
		v := CheckOf(st, c.limits)
		assert.Equal(t, c.code, v.Code, c.want)
		assert.Contains(t, v.Nagios(), c.want)
	}
	assert.Contains(t, CheckOf(st, CheckLimits{MinJobs: 2}).Prometheus(), "rota_check_up{rota_namespace=\"billing\",rota_group=\"default\"} 1")
}

// A problem of a plan is that of the leader that wrote it.
func TestCheckOf_WithoutALeaderSaysWhoseProblemItIs(t *testing.T) {
	st := operator.GroupStatus{Jobs: []operator.JobSummary{{Job: "j", Shards: 1, Problem: "every live instance is disabled"}}}
	assert.Equal(t, []string{"no leader", "j: the last leader reported: every live instance is disabled"}, CheckOf(st, CheckLimits{}).Reasons)
}

// An answer that refers to the run history has the command that reads it.
func TestExplanationOf_NamesTheCommandForTheRunHistory(t *testing.T) {
	at := time.Date(2026, 3, 1, 11, 0, 0, 0, time.UTC)
	for flags, want := range map[string][]string{
		UnnamedHistory:      {"rota runs settle --fire 2026-03-01T11:00:00Z --history URL", "", "rota retry settle --fire 2026-03-01T11:00:00Z"},
		"":                  {"rota runs settle --fire 2026-03-01T11:00:00Z", "", "rota retry settle --fire 2026-03-01T11:00:00Z"},
		" --file jobs.yaml": {"rota runs settle --fire 2026-03-01T11:00:00Z --file jobs.yaml", "", "rota retry settle --fire 2026-03-01T11:00:00Z --file jobs.yaml"},
	} {
		v := ExplanationOf(operator.Explanation{Job: "settle", Answers: []operator.Answer{
			{Fire: at, Do: "look into the run history, or the log of that time", Verb: "History"}, {Fire: at, Do: "wait for the leader"}, {Fire: at, Verb: "Retry"},
		}}, flags)
		for i, command := range want {
			assert.Equal(t, command, v.Answers[i].Command, flags)
		}
	}
}
