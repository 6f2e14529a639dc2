package notify

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/operator"
)

var begin = time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)

// script drives a decider through the states of one job, a round every ten seconds, as a sender would.
type script struct {
	t    *testing.T
	d    *decider
	rec  record.Receiver
	now  time.Time
	said []string // "2m0s failing", with " x3" for three changes
}

func newScript(t *testing.T) *script {
	return &script{t: t, d: newDecider(rules{time.Minute, 15 * time.Minute}), rec: record.Receiver{Name: "ops"}, now: begin}
}

// stay has the job in a state for a time.
func (s *script) stay(st state, d time.Duration) {
	for end := s.now.Add(d); s.now.Before(end); s.now = s.now.Add(10 * time.Second) {
		seen := map[string]observation{}
		if st != stateOK || slices.Contains(s.d.tracked(&s.rec), "j") {
			seen["j"] = observation{state: st, text: string(st)}
		}
		next, changes, rest := s.d.decide(&s.rec, seen, s.now, false)
		assert.Zero(s.t, rest)
		require.NoError(s.t, next.Check())
		s.rec = next
		for _, c := range changes {
			text := fmt.Sprintf("%v %s", s.now.Sub(begin), c.Transition)
			if c.Changes > 1 {
				text += fmt.Sprintf(" x%d", c.Changes)
			}
			s.said = append(s.said, text)
		}
	}
}

// step is a state for a time. A state "takeover" is another sender, which has only the record.
type step struct {
	st state
	d  time.Duration
}

func TestDecide(t *testing.T) {
	const failing, late, unowned, takeover, away = state("failing"), state("late"), state("unowned"), state("takeover"), state("away")
	m := func(n float64) time.Duration { return time.Duration(n * float64(time.Minute)) }
	for name, c := range map[string]struct {
		steps []step
		want  string
	}{
		"a state that lasts is reported once":           {[]step{{failing, m(60)}}, "1m0s failing"},
		"a state that does not last is not":             {[]step{{failing, m(0.5)}, {stateOK, m(60)}}, ""},
		"a recovery is reported at once":                {[]step{{failing, m(5)}, {stateOK, m(60)}}, "1m0s failing, 6m0s recovered"},
		"a recovery that does not last is not":          {[]step{{failing, m(5)}, {stateOK, m(0.5)}, {failing, m(60)}}, "1m0s failing"},
		"every second run fails":                        {slices.Repeat([]step{{failing, m(0.5)}, {stateOK, m(0.5)}}, 20), "1m0s failing"},
		"one run of many fails":                         {slices.Repeat([]step{{failing, m(0.5)}, {stateOK, m(2)}}, 20), ""},
		"a change in the quiet time waits":              {[]step{{failing, m(3)}, {stateOK, m(2)}, {failing, m(60)}}, "1m0s failing, 4m0s recovered, 16m0s failing"},
		"changes in the quiet time are summed up":       {[]step{{failing, m(3)}, {stateOK, m(2)}, {failing, m(2)}, {stateOK, m(60)}}, "1m0s failing, 4m0s recovered, 16m0s recovered x2"},
		"a job that changes for hours":                  {slices.Repeat([]step{{failing, m(2)}, {stateOK, m(2)}}, 12), "1m0s failing, 3m0s recovered, 16m0s recovered x6, 31m0s recovered x8, 46m0s failing x7, 47m0s recovered"},
		"another trouble waits for the quiet time":      {[]step{{failing, m(3)}, {late, m(60)}}, "1m0s failing, 16m0s late"},
		"another trouble and back is summed up":         {[]step{{failing, m(3)}, {late, m(3)}, {failing, m(60)}}, "1m0s failing, 16m0s failing x2"},
		"troubles in turn last together":                {slices.Repeat([]step{{late, m(0.5)}, {failing, m(0.5)}}, 2), "1m0s late"},
		"a pause keeps the state":                       {[]step{{failing, m(3)}, {stateHeld, m(60)}, {failing, m(60)}}, "1m0s failing"},
		"a recovery after a pause is reported":          {[]step{{failing, m(3)}, {stateHeld, m(60)}, {stateOK, m(60)}}, "1m0s failing, 1h4m0s recovered"},
		"a paused job begins no state":                  {[]step{{failing, m(0.5)}, {stateHeld, m(60)}, {failing, m(0.5)}, {stateOK, m(60)}}, ""},
		"a removed job that failed is reported":         {[]step{{failing, m(3)}, {stateRemoved, m(60)}}, "1m0s failing, 4m0s removed"},
		"a removed job that was ok is not":              {[]step{{failing, m(0.5)}, {stateRemoved, m(60)}}, ""},
		"a removed job that recovered is not":           {[]step{{failing, m(3)}, {stateOK, m(3)}, {stateRemoved, m(60)}}, "1m0s failing, 4m0s recovered"},
		"a job that is away for a moment":               {[]step{{failing, m(3)}, {stateRemoved, m(0.5)}, {failing, m(60)}}, "1m0s failing"},
		"a job that comes back begins anew":             {[]step{{failing, m(3)}, {stateRemoved, m(3)}, {failing, m(3)}}, "1m0s failing, 4m0s removed, 7m0s failing"},
		"another sender repeats nothing":                {[]step{{failing, m(3)}, {takeover, 0}, {failing, m(60)}}, "1m0s failing"},
		"another sender forgets nothing":                {[]step{{failing, m(3)}, {takeover, 0}, {stateOK, m(60)}}, "1m0s failing, 4m0s recovered"},
		"another sender keeps the quiet time":           {[]step{{failing, m(3)}, {stateOK, m(2)}, {takeover, 0}, {failing, m(60)}}, "1m0s failing, 4m0s recovered, 16m0s failing"},
		"a state that began with the sender before":     {[]step{{failing, m(0.5)}, {takeover, 0}, {failing, m(60)}}, "1m30s failing"},
		"recovered while there was no sender":           {[]step{{unowned, m(3)}, {away, m(60)}, {stateOK, m(60)}}, "1m0s unowned, 1h4m0s recovered"},
		"recovered and failed while there was none":     {[]step{{unowned, m(3)}, {away, m(60)}, {failing, m(60)}}, "1m0s unowned, 1h4m0s failing"},
		"removed while there was no sender":             {[]step{{unowned, m(3)}, {away, m(60)}, {stateRemoved, m(60)}}, "1m0s unowned, 1h4m0s removed"},
		"the same trouble, before and after no sender":  {[]step{{unowned, m(3)}, {away, m(60)}, {unowned, m(60)}}, "1m0s unowned"},
		"nothing is left of a job that is ok for long":  {[]step{{failing, m(3)}, {stateOK, m(60)}, {failing, m(3)}}, "1m0s failing, 4m0s recovered, 1h4m0s failing"},
		"a takeover while a recovery has not lasted":    {[]step{{failing, m(3)}, {stateOK, m(0.5)}, {takeover, 0}, {stateOK, m(60)}}, "1m0s failing, 4m30s recovered"},
		"a takeover in a quiet time with changes in it": {[]step{{failing, m(3)}, {late, m(2)}, {takeover, 0}, {failing, m(60)}}, "1m0s failing"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t)
			for _, step := range c.steps {
				switch step.st {
				case takeover:
					s.d = newDecider(s.d.rules)
				case away:
					s.d = newDecider(s.d.rules)
					s.now = s.now.Add(step.d)
				default:
					s.stay(step.st, step.d)
				}
			}
			assert.Equal(t, c.want, strings.Join(s.said, ", "))
		})
	}
}

func TestDecide_ARecoveredJobLeavesNothing(t *testing.T) {
	s := newScript(t)
	s.stay("failing", 3*time.Minute)
	assert.Len(t, s.rec.Jobs, 1)
	s.stay(stateOK, 20*time.Minute)
	assert.Empty(t, s.rec.Jobs)
	assert.Empty(t, s.d.jobs)
}

func TestDecide_HoldsMessagesWhileOthersWait(t *testing.T) {
	d, rec := newDecider(rules{time.Minute, 15 * time.Minute}), record.Receiver{Name: "ops", Rest: 3}
	seen := map[string]observation{"j": {state: "failing"}}
	for i := range 30 {
		next, changes, _ := d.decide(&rec, seen, begin.Add(time.Duration(i)*time.Minute), true)
		assert.Empty(t, changes)
		assert.Equal(t, 3, next.Rest)
		rec = next
	}
	_, changes, _ := d.decide(&rec, seen, begin.Add(time.Hour), false)
	require.Len(t, changes, 1)
	assert.Equal(t, begin, changes[0].Since, "the change is that of the time when it was held")
}

func TestDecide_ARecordIsBounded(t *testing.T) {
	d, rec := newDecider(rules{time.Minute, 15 * time.Minute}), record.Receiver{Name: "ops"}
	const jobs = 3000
	round := func(at time.Duration, st state) (changes []Change, rest int) {
		seen := map[string]observation{}
		for i := range jobs {
			seen[fmt.Sprintf("job-%04d", i)] = observation{state: st}
		}
		rec, changes, rest = d.decide(&rec, seen, begin.Add(at), false)
		require.NoError(t, rec.Check())
		_, err := record.Encode(&rec)
		require.NoError(t, err)
		return changes, rest
	}
	round(0, "failing")
	changes, rest := round(time.Minute, "failing")
	assert.Len(t, changes, record.MaxNotified)
	assert.Equal(t, jobs-record.MaxNotified, rest)
	assert.Equal(t, rest, rec.Rest)
	for i := range 10 {
		changes, _ = round(time.Duration(2+i)*10*time.Minute, "failing")
		assert.Empty(t, changes, "the rest is not reported again")
	}
	round(3*time.Hour, stateOK)
	changes, rest = round(3*time.Hour+time.Minute, stateOK)
	assert.Len(t, changes, record.MaxNotified)
	assert.Zero(t, rest)
	round(4*time.Hour, stateOK)
	assert.Empty(t, rec.Jobs)
	assert.Empty(t, d.jobs)
}

func TestDecide_ATroubleThatWasOverBeforeItCouldBeReported(t *testing.T) {
	d, rec := newDecider(rules{time.Minute, 15 * time.Minute}), record.Receiver{Name: "ops"}
	now := begin
	for _, st := range []state{"failing", "failing", stateOK, stateOK} {
		rec, _, _ = d.decide(&rec, map[string]observation{"j": {state: st}}, now, true)
		now = now.Add(time.Minute)
	}
	_, changes, _ := d.decide(&rec, map[string]observation{"j": {}}, now, false)
	require.Len(t, changes, 1)
	assert.Equal(t, []any{Recovered, 2}, []any{changes[0].Transition, changes[0].Changes})
}

func TestDecide_LongNamesFitTheRecord(t *testing.T) {
	d, rec := newDecider(rules{time.Minute, 15 * time.Minute}), record.Receiver{Name: "ops"}
	seen := map[string]observation{}
	for i := range 2000 {
		seen[fmt.Sprintf("%s%04d", strings.Repeat("x", 96), i)] = observation{state: "failing"}
	}
	_, _, _ = d.decide(&rec, seen, begin, false)
	next, changes, rest := d.decide(&rec, seen, begin.Add(time.Minute), false)
	assert.Less(t, len(changes), record.MaxNotifiedBytes/100+2)
	assert.Equal(t, 2000, len(changes)+rest)
	assert.NoError(t, next.Check())
}

// A receiver that a job has no longer gets no recovery.
func TestDecide_AJobOfOtherReceiversIsForgotten(t *testing.T) {
	s := newScript(t)
	s.stay("failing", 3*time.Minute)
	next, changes, _ := s.d.decide(&s.rec, nil, s.now, false)
	assert.Empty(t, changes)
	assert.Empty(t, next.Jobs)
	assert.Empty(t, s.d.jobs)
}

func TestObserve(t *testing.T) {
	now := begin
	fire, failed := now.Add(-3*time.Minute), now.Add(-2*time.Minute)
	sound := operator.JobSummary{Job: "j", Shards: 4, Ended: now.Add(-time.Second)}
	with := func(change func(j *operator.JobSummary)) operator.JobSummary {
		j := sound
		change(&j)
		return j
	}
	failure := func(j *operator.JobSummary) {
		j.Failing, j.LastFailure = []int{0, 1, 3}, operator.Failure{Runs: operator.Runs{Fire: fire}, At: failed, Error: "exit status 1"}
	}
	for name, c := range map[string]struct {
		j    operator.JobSummary
		want observation
	}{
		"ok":              {sound, observation{text: "ok", since: sound.Ended}},
		"failing":         {with(failure), observation{state: "failing", since: failed, text: "failing: shards 0-1,3", err: "exit status 1", fire: fire}},
		"late":            {with(func(j *operator.JobSummary) { failure(j); j.Overdue = fire; j.Running = 1 }), observation{state: "late", since: fire, text: "late: still runs", fire: fire}},
		"due":             {with(func(j *operator.JobSummary) { j.Overdue = now.Add(-59 * time.Second) }), observation{text: "ok", since: sound.Ended}},
		"unowned":         {with(func(j *operator.JobSummary) { j.Unowned = 3; j.UnofferedSince = failed }), observation{state: "unowned", since: failed, text: "3 of 4 shards have no owner"}},
		"problem":         {with(func(j *operator.JobSummary) { j.Problem = "follows itself" }), observation{state: "problem", text: "follows itself"}},
		"paused":          {with(func(j *operator.JobSummary) { failure(j); j.Paused = true }), observation{state: stateHeld}},
		"retiring":        {with(func(j *operator.JobSummary) { failure(j); j.RetiredBy.At = now }), observation{state: stateRemoved}},
		"without a plan":  {operator.JobSummary{Job: "j"}, observation{state: stateHeld}},
		"lost":            {operator.JobSummary{Job: "j", Problem: "x is missing"}, observation{state: "problem", text: "x is missing"}},
		"by trigger only": {with(func(j *operator.JobSummary) { j.ScheduleStopped = true }), observation{text: "by trigger only", since: sound.Ended}},
		"expired":         {with(func(j *operator.JobSummary) { j.Expired = 1; j.ExpiredOwners = []string{"a"} }), observation{text: "a expired", since: sound.Ended}},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.want, observe(&c.j, now, time.Minute)) })
	}
}
