package acts

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/operator"
)

// minute returns the instant of a fire.
func minute(n int) time.Time { return epoch.Add(time.Duration(n) * time.Minute) }

// verbTest is an act of a verb in a fleet, with its results.
type verbTest struct {
	name string
	on   Target
	r    Request
	// before puts the fleet into the state in which the act is done; nil for none.
	before func(k *kit)
	text   string // of the result
	note   string
	act    string // the last one on record; empty for none
	// again is the text of the repeated act, which has nothing to end; empty for acts that do it again.
	again string
	// refused is an act that fails, and says why.
	refused Request
	why     string
}

var future = epoch.Add(2 * time.Hour)

var verbTests = []verbTest{
	{
		name: "trigger", on: OnJob, r: Request{Job: "settle", Shards: []int{1, 2}, Param: pointer("x")},
		text: "triggered settle: #1", act: "trigger 1 of shards 1-2",
		refused: Request{Job: "settle", Shards: []int{9}}, why: "there is no shard 9 of 4",
	},
	{
		name: "trigger", on: OnJob, r: Request{Job: "settle"}, text: "triggered settle: #1", act: "trigger 1",
		before: func(k *kit) {
			k.did("pause", OnJob, Request{Job: "settle"})
			k.did("disable", OnJob, Request{Job: "settle", Shards: []int{0}})
		},
		note:    "the job is paused by kim (quarter end); the run waits for the resume\nshard 0 is disabled; its run waits for rota enable",
		refused: Request{Job: "nowhere"}, why: "unknown job",
	},
	{
		name: "trigger", on: OnJob, r: Request{Job: "settle"}, text: "triggered settle: #1", act: "trigger 1",
		before: func(k *kit) {
			k.did("pause", OnGroup, Request{})
			k.fleet.Stop("a")
			k.fleet.Stop("b")
		},
		note:    "the group is paused by kim (quarter end); the run waits for the resume\nno instance is alive; the run waits for the start of one",
		refused: Request{Job: "settle", Shards: []int{}}, why: "shards: the list is empty",
	},
	{
		name: "retry", on: OnJob, r: Request{Job: "export", Fire: minute(1), Shards: []int{1}},
		text: "retries shard 1 of fire 2000-01-01T00:01:00Z of export: trigger #1", act: "retry 2000-01-01T00:01:00Z, trigger 1 of shard 1",
		refused: Request{Job: "settle", Fire: minute(1)}, why: "no failed run is on record",
	},
	{
		name: "backfill", on: OnJob, r: Request{Job: "settle", From: epoch, To: minute(1), Parallel: 2},
		text: "backfills 1 fire of settle, 2 at a time", act: "backfill 1: 1 fire from 2000-01-01T00:00:00Z to before 2000-01-01T00:01:00Z, 2 at a time",
		refused: Request{Job: "settle", From: epoch, To: future}, why: "after now",
	},
	{
		name: "stop-backfills", on: OnJob, r: Request{Job: "settle"}, text: "dropped 2 fires of settle", act: "stop backfills: 2 fires",
		before: func(k *kit) {
			k.did("pause", OnJob, Request{Job: "settle"})
			k.fleet.Sleep(time.Second)
			k.did("backfill", OnJob, Request{Job: "settle", From: minute(-2), To: minute(1)})
			k.fleet.Sleep(time.Second) // the first fire is in flight, and waits for the resume
		},
		refused: Request{Job: "nowhere"}, why: "unknown job",
	},
	{
		name: "cancel", on: OnJob, r: Request{Job: "long", Shards: []int{0}},
		text: "cancelled long: shard 0 of fire 2000-01-01T00:01:00Z, attempt 1", act: "cancel the runs of shard 0",
		refused: Request{Job: "settle"}, why: "no run is in progress or pending",
	},
	{
		name: "pause", on: OnJob, r: Request{Job: "settle", Until: future}, text: "paused settle until 2000-01-01T02:00:00Z", act: "pause until 2000-01-01T02:00:00Z",
		refused: Request{Job: "settle", Until: epoch}, why: "is not in the future",
	},
	{
		name: "pause", on: OnJob, r: Request{Job: "settle", ScheduleOnly: true}, text: "stopped the schedule of settle", act: "stop schedule",
		refused: Request{Job: "settle", ScheduleOnly: true, Until: future}, why: "schedule_only: ",
	},
	{
		name: "resume", on: OnJob, r: Request{Job: "settle"}, text: "resumed settle", act: "resume",
		before:  func(k *kit) { k.did("pause", OnJob, Request{Job: "settle"}) },
		again:   "settle is not paused: nothing changed",
		refused: Request{Job: "nowhere"}, why: "unknown job",
	},
	{
		name: "resume", on: OnJob, r: Request{Job: "settle"}, text: "settle is not paused itself, as the group is: nothing changed",
		before:  func(k *kit) { k.did("pause", OnGroup, Request{}) },
		again:   "settle is not paused itself, as the group is: nothing changed",
		refused: Request{Job: "settle", Again: true}, why: "again: resume of a job has no such argument",
	},
	{
		name: "disable", on: OnJob, r: Request{Job: "settle", Shards: []int{1}, Instances: []string{"c"}, Hosts: []string{"a", "d"}},
		text: "disabled shard 1, instance c, host a, host d for settle", act: "disable shards 1, instances c, hosts a d",
		note:    "no instance c is alive; this holds for its start. Alive: a, b\nno instance is alive on host d; this holds for its next instance. Alive: a, b",
		refused: Request{Job: "settle"}, why: "no shard, instance or host is named",
	},
	{
		name: "enable", on: OnJob, r: Request{Job: "settle", Shards: []int{1, 9}}, text: "enabled shards 1,9 for settle", act: "enable shards 1 9",
		note:    "settle has the shards 0 to 3",
		before:  func(k *kit) { k.did("disable", OnJob, Request{Job: "settle", Shards: []int{1}}) },
		again:   "shards 1,9 for settle: not disabled, nothing changed",
		refused: Request{Job: "nowhere", Shards: []int{1}}, why: "unknown job",
	},
	{
		name: "override", on: OnJob, r: Request{Job: "settle", Fields: map[string]any{"timeout": "2h", "max_attempts": nil, "run_on": map[string]any{"zone": "x"}}},
		text: "overrides max_attempts, run_on, timeout of settle", act: "override max_attempts, run_on, timeout",
		refused: Request{Job: "settle", Fields: map[string]any{"every": "5s"}}, why: "fields: there is no field \"every\"; write schedule='every 5s'",
	},
	{
		name: "override", on: OnJob, r: Request{Job: "settle", Clear: []string{"timeout"}}, text: "overrides shards of settle", act: "override shards",
		before: func(k *kit) {
			k.did("override", OnJob, Request{Job: "settle", Fields: map[string]any{"timeout": "2h", "shards": 8}})
		},
		again:   "the override of settle has none of these fields: nothing changed",
		refused: Request{Job: "settle", Clear: []string{"bogus"}}, why: `clear: "bogus" is no field of an override: one of schedule, `,
	},
	{
		name: "override", on: OnJob, r: Request{Job: "settle", ClearAll: true}, text: "took the override of settle back", act: "take the override back",
		before:  func(k *kit) { k.did("override", OnJob, Request{Job: "settle", Fields: map[string]any{"param": "x"}}) },
		again:   "settle has no override: nothing changed",
		refused: Request{Job: "settle", ClearAll: true, Clear: []string{"timeout"}}, why: "exclude each other",
	},
	{
		name: "reset", on: OnJob, r: Request{Job: "settle"}, text: "reset settle", act: "reset",
		refused: Request{Job: "nowhere"}, why: "unknown job",
	},
	{
		name: "define", on: OnJob, r: report(Request{DeleteAfter: "never"}, "param", "acme", "timeout", "30m"),
		text: "created acme/report: revision 1, next fire 2000-01-01T02:00:00Z", act: "define",
		again:   "acme/report is unchanged: revision 1",
		refused: report(Request{}, "timeout", "soon"), why: "fields.timeout: ",
	},
	{
		name: "define", on: OnJob, r: report(Request{IfRevision: 1, StartPaused: true}, "shards", 2), text: "changed acme/report: revision 2, next fire 2000-01-01T02:00:00Z",
		before:  func(k *kit) { k.did("define", OnJob, report(Request{})) },
		refused: report(Request{IfRevision: 2}), why: "another revision: it has revision 1, and 2 was expected",
	},
	{
		name: "delete", on: OnJob, r: Request{Job: "acme/report"}, text: "deleted acme/report",
		before:  func(k *kit) { k.did("define", OnJob, report(Request{})) },
		refused: Request{Job: "settle"}, why: "the job is registered in code",
	},
	{
		name: "retire", on: OnJob, r: Request{Job: "settle"}, text: "retires settle: deleted once no instance offers it; now a, b", act: "retire",
		again:   "retires settle: deleted once no instance offers it; now a, b",
		refused: Request{Job: "nowhere"}, why: "unknown job",
	},
	{
		name: "unretire", on: OnJob, r: Request{Job: "settle"}, text: "unretired settle", act: "unretire",
		before:  func(k *kit) { k.did("retire", OnJob, Request{Job: "settle"}) },
		again:   "settle is not retiring: nothing changed",
		refused: Request{Job: "nowhere"}, why: `unretire "nowhere": intent for "nowhere": unknown job`,
	},
	{
		name: "forget", on: OnJob, r: Request{Job: "gone"}, text: "forgot gone",
		refused: Request{Job: "settle"}, why: "the job is in use: a offers it, b offers it",
	},
	{
		name: "pause", on: OnGroup, r: Request{Until: future}, text: "paused all jobs of the group until 2000-01-01T02:00:00Z",
		act:     "pause the group until 2000-01-01T02:00:00Z",
		refused: Request{Until: epoch}, why: "is not in the future",
	},
	{
		name: "resume", on: OnGroup, text: "resumed the group", act: "resume the group",
		before:  func(k *kit) { k.did("pause", OnGroup, Request{}) },
		again:   "the group is not paused: nothing changed",
		refused: Request{Job: "settle"}, why: "job: resume of a group has no such argument",
	},
	{
		name: "disable", on: OnGroup, r: Request{Instances: []string{"a"}, Hosts: []string{"b"}}, text: "disabled instance a, host b for all jobs", act: "disable instances a, hosts b",
		refused: Request{Instances: []string{"no name"}}, why: "instance: ",
	},
	{
		name: "enable", on: OnGroup, r: Request{Hosts: []string{"b"}}, text: "enabled host b for all jobs", act: "enable hosts b",
		before:  func(k *kit) { k.did("disable", OnGroup, Request{Hosts: []string{"b"}}) },
		again:   "host b for all jobs: not disabled, nothing changed",
		refused: Request{}, why: "no shard, instance or host is named",
	},
	{
		name: "set-pool", on: OnGroup, r: Request{Pool: "db", Size: new(8)}, text: "pool db has 8 slots", act: "set pool db to 8",
		again:   "pool db has 8 slots: nothing changed",
		refused: Request{Pool: "db", Size: new(10_001)}, why: "size: 10001 is not between 0 and 10000",
	},
	{
		name: "set-pool", on: OnGroup, r: Request{Pool: "db", Size: new(0)}, text: "pool db has 0 slots", act: "set pool db to 0",
		refused: Request{Pool: "db"}, why: "size: it is missing",
	},
	{
		name: "delete-pool", on: OnGroup, r: Request{Pool: "db"}, text: "pool db has no size any more", act: "delete pool db",
		before:  func(k *kit) { k.did("set-pool", OnGroup, Request{Pool: "db", Size: new(8)}) },
		again:   "pool db has no size: nothing changed",
		refused: Request{Pool: "a/b"}, why: "pool: ",
	},
	{
		name: "acknowledge", on: OnGroup, text: "acknowledged: ", act: "acknowledge the loss of records: replaced", before: (*kit).lose,
		again:   "no loss of records is on record",
		refused: Request{Instance: "a"}, why: "instance: acknowledge of a group has no such argument",
	},
	{
		name: "drain", on: OnInstance, r: Request{Instance: "c"}, text: "drains c", act: "drain instance c",
		note:    "no instance c is alive; the drain holds for its start. Alive: a, b",
		refused: Request{}, why: "instance: it is missing",
	},
	{
		name: "undrain", on: OnInstance, r: Request{Instance: "a"}, text: "undrained a", act: "undrain instance a",
		before:  func(k *kit) { k.did("drain", OnInstance, Request{Instance: "a"}) },
		again:   "a is not drained: nothing changed",
		refused: Request{Instance: "no name"}, why: "undrain ",
	},
}

// report returns a request on acme/report, a job of the kind report, with fields of the definition.
func report(r Request, fields ...any) Request {
	r.Job, r.Kind, r.Fields = "acme/report", "report", map[string]any{"schedule": "every 2h"}
	for i := 0; i < len(fields); i += 2 {
		r.Fields[fields[i].(string)] = fields[i+1]
	}
	return r
}

func TestVerbs(t *testing.T) {
	tested := map[string]bool{}
	for i := range verbTests {
		c := &verbTests[i]
		tested[c.name+" on "+string(c.on)] = true
		t.Run(fmt.Sprintf("%s on %s/%s", c.name, c.on, c.text), func(t *testing.T) {
			onFleet(t, func(k *kit) { c.test(k) })
		})
	}
	for i := range Verbs {
		assert.True(t, tested[Verbs[i].Name+" on "+string(Verbs[i].On)], "%s on %s", Verbs[i].Name, Verbs[i].On)
	}
}

func (c *verbTest) test(k *kit) {
	if c.before != nil {
		c.before(k)
	}
	jobs := []string{}
	if c.r.Job != "" {
		jobs = []string{c.r.Job}
	}
	before := k.recorded(c.r.Job)
	_, err := k.act(c.name, c.on, c.refused)
	require.ErrorContains(k, err, c.why)
	assert.Equal(k, before, k.recorded(c.r.Job))

	done, err := k.act(c.name, c.on, c.r)
	require.NoError(k, err)
	assert.Equal(k, c.act == "" && c.again != "", done.Unchanged)
	assert.Equal(k, view.Version, done.Version)
	assert.Equal(k, jobs, done.Jobs)
	assert.Contains(k, c.name, done.Verb)
	assert.True(k, strings.HasPrefix(done.Text, c.text), done.Text)
	assert.Equal(k, c.note, done.Note)
	acts := k.recorded(c.r.Job)
	if c.act != "" {
		require.Len(k, acts, len(before)+1)
		assert.Equal(k, c.act, acts[len(before)])
	}
	if c.again == "" {
		return
	}
	done, err = k.act(c.name, c.on, c.r)
	require.NoError(k, err)
	assert.Equal(k, c.again, done.Text)
	assert.Equal(k, c.name != "retire", done.Unchanged)
	assert.Equal(k, acts, k.recorded(c.r.Job), "nothing is recorded if nothing changes")
}

// Retired jobs whose deletion has begun are reported together with those that nobody knows.
func TestRetire(t *testing.T) {
	onFleet(t, func(k *kit) {
		done, err := Retire(k.Context(), k.op, "settle", "nowhere", "export")
		require.ErrorIs(k, err, operator.ErrUnknownJob)
		require.Len(k, done, 2)
		assert.Equal(k, "retires settle: deleted once no instance offers it; now a, b", done[0].Text)
		assert.Equal(k, []string{"export"}, done[1].Jobs)
	})
}

// outcome returns all that an act can change: the result, the intents and acts, and the runs of the next seconds.
func (k *kit) outcome(do func() (view.Done, error)) string {
	done, err := do()
	if done.Jobs = nil; err != nil {
		done = view.Done{}
	}
	k.fleet.Sleep(5 * time.Second)
	text := fmt.Sprintf("%+v %v", done, err)
	for _, job := range []string{"", "settle", "export", "long", "gone", "acme/report", "acme/long"} {
		in, err := k.op.Intent(k.Context(), job)
		in.OverriddenBy, in.HeldBy = operator.Act{}, operator.Act{}
		text += fmt.Sprintf("\n%s: %+v %v %v", job, in, err, k.recorded(job))
		if job == "" {
			continue
		}
		var runs []string
		for _, run := range k.fleet.Runs(job) {
			runs = append(runs, fmt.Sprintf("\n%d %v #%d %q", run.Shard, run.FireTime, run.Trigger, run.Param))
		}
		slices.Sort(runs)
		text += strings.Join(runs, "")
	}
	return text
}

// filled has a value for each field of a request.
var filled = Request{
	Job: "export", Instance: "b", Shards: []int{1}, Instances: []string{"b"}, Hosts: []string{"b"}, Param: pointer("secret"), Fire: minute(1), Total: 2,
	From: epoch, To: minute(1), Until: future, Parallel: 3, Again: true, ScheduleOnly: true, Fields: map[string]any{"timeout": "3h"}, Clear: []string{"timeout"},
	ClearAll: true, Pool: "db", Size: new(8), Kind: "report", KindRevision: 1, In: "Asia/Shanghai", StartPaused: true, DeleteAfter: "24h", NoDefaults: true,
	KeepParams: true, IfAbsent: true, IfRevision: 7, AllowUnknownKind: true, AllowNoFires: true, CancelRuns: true,
}

// longReport defines acme/long, a job that exists before the act and whose runs last.
var longReport = Request{Job: "acme/long", Kind: "report", Fields: map[string]any{"schedule": "every 2s"}}

// bases are requests to which filled adds one field. Some fields need another base to have an effect.
var bases = map[string]Request{
	"retry": {Job: "export", Fire: minute(1)}, "retry total": {Job: "export", Fire: minute(-60), Shards: []int{0}}, "retry fire": {Job: "export"}, "retry job": {Job: "settle", Fire: minute(1)},
	"backfill": {Job: "settle", From: epoch.Add(-time.Hour), To: epoch.Add(time.Second)}, "backfill from": {Job: "settle", To: minute(1)}, "backfill to": {Job: "settle", From: epoch},
	"cancel": {Job: "long"}, "forget": {Job: "gone"},
	"set-pool": {Pool: "licence", Size: new(2)}, "delete-pool": {Pool: "licence"},
	"define": report(Request{}), "define kind": {Job: "acme/report", Fields: map[string]any{"schedule": "every 2h"}}, "define if_absent": longReport,
	"define keep_params": longReport, "define allow_unknown_kind": {Job: "acme/report", Kind: "unknown"},
	"define allow_no_fires": report(Request{}, "schedule", "at 1999-01-01T00:00:00Z"), "delete": {Job: "acme/long"},
	"drain": {Instance: "a"}, "undrain": {Instance: "a"},
}

func baseOf(v *Verb, field string) Request {
	base, ok := bases[v.Name+" "+field]
	if !ok {
		base, ok = bases[v.Name]
	}
	if !ok && v.On == OnJob {
		base.Job = "settle"
	}
	return base
}

// TestVerbs_ReadWhatTheyDeclare does each act without its check, with and without a field. A field that is declared changes something;
// all others together change nothing, and the check refuses each.
func TestVerbs_ReadWhatTheyDeclare(t *testing.T) {
	for i := range verbs {
		v := &verbs[i]
		known := map[string]string{} // outcomes, as most fields have the same base
		outcome := func(t *testing.T, r Request) (text string) {
			name := fmt.Sprintf("%+v", r)
			if known[name] != "" {
				return known[name]
			}
			defer func() { known[name] = text }()
			onFleet(t, func(k *kit) {
				k.did("override", OnJob, Request{Job: "settle", Fields: map[string]any{"timeout": "2h", "description": "x"}})
				k.did("disable", OnJob, Request{Job: "settle", Shards: []int{1}, Instances: []string{"b"}, Hosts: []string{"b"}})
				k.did("disable", OnGroup, Request{Instances: []string{"b"}, Hosts: []string{"b"}})
				if v.Origin == Defined {
					long := longReport
					long.Fields = map[string]any{"schedule": "every 2s", "param": "long"}
					k.did("define", OnJob, long)
					k.fleet.Sleep(5 * time.Second)
				}
				text = k.outcome(func() (view.Done, error) { return v.Do(k.Context(), k.op, r) })
			})
			return text
		}
		t.Run(v.Name+" on "+string(v.On), func(t *testing.T) {
			others := baseOf(v, "")
			for name := range fieldsOf(&Request{}) {
				with := baseOf(v, name)
				setField(&with, name)
				if _, declared := v.field(name); declared {
					assert.NotEqual(t, outcome(t, baseOf(v, name)), outcome(t, with), "it does not read %s", name)
					continue
				}
				setField(&others, name)
				checked, _ := Find(v.Name, v.On)
				_, err := checked.Do(t.Context(), nil, with)
				var wrong *FieldError
				require.ErrorAs(t, err, &wrong)
				assert.Equal(t, name, wrong.Field)
			}
			assert.Equal(t, outcome(t, baseOf(v, "")), outcome(t, others), "it reads a field that it does not declare")
		})
	}
}

// setField sets a field of a request to that of filled.
func setField(r *Request, name string) {
	values := maps.Collect(fieldsOf(&filled))
	for field, value := range fieldsOf(r) {
		if field == name {
			value.Set(values[name])
		}
	}
}
