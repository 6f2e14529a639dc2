package operator_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/membertest"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/schedule"
)

// defs is a group without a fleet, in which the kind "note" is stored, and an operator of it.
type defs struct {
	*membertest.Group
	t  *testing.T
	op *operator.Operator
}

func runDefs(t *testing.T, name string, f func(t *testing.T, d defs)) {
	t.Helper()
	membertest.RunBubble(t, name, func(t *testing.T, g *membertest.Group) {
		o, _ := g.NewOperator()
		g.PutRecord(g.Keys.Kind("note"), `{"name":"note","revision":2}`)
		f(t, defs{g, t, o.WithCompiler(executor.Compile)})
	})
}

// note returns a definition of the kind "note" that fires every ten minutes.
func note(name string) operator.Definition {
	return operator.Definition{Name: name, Kind: "note", Schedule: schedule.Every(10 * time.Minute)}
}

// read returns the record of a defined job, nil if there is none.
func (d defs) read(job string) *record.Defined {
	d.t.Helper()
	e, ok := d.GetRecord(d.Keys.Defined(record.Segment(job)))
	if !ok {
		return nil
	}
	rec, err := record.DecodeDefined(e.Value)
	require.NoError(d.t, err)
	return rec
}

// edit changes the record of a defined job as a leader would.
func (d defs) edit(job string, change func(*record.Defined)) {
	d.t.Helper()
	rec := d.read(job)
	change(rec)
	value, err := record.EncodeChecked(rec)
	require.NoError(d.t, err)
	d.PutRecord(d.Keys.Defined(record.Segment(job)), string(value))
}

// rest puts a job to rest from now on, as a leader would whose claims say this.
func (d defs) rest(job string, change func(*record.Rest)) {
	d.edit(job, func(rec *record.Defined) {
		rec.Rest = &record.Rest{Number: 1, Epoch: 3, From: record.InstantOf(time.Now())}
		rec.Next = record.InstantOf(time.Now().Truncate(10 * time.Minute).Add(10 * time.Minute))
		if change != nil {
			change(rec.Rest)
		}
	})
}

func (d defs) define(def operator.Definition, options ...operator.DefineOption) operator.DefineResult {
	d.t.Helper()
	r, err := d.op.Define(d.t.Context(), def, options...)
	require.NoError(d.t, err)
	return r
}

func instant(t time.Time) record.Instant { return record.InstantOf(t) }

func TestDefine(t *testing.T) {
	runDefs(t, "stores one record, which says all", func(t *testing.T, d defs) {
		time.Sleep(time.Minute)
		def := operator.Definition{
			Name: "acme/42", Kind: "note", KindRevision: 2, Schedule: schedule.At(time.Now().Add(time.Hour)), Shards: 2, Param: `{"a":"<b>"}`, ShardParams: map[int]string{1: "x"},
			Description: "reminds", Policies: map[string]any{"timeout": 90 * time.Second, "retry": map[string]any{"max": 3, "initial": 2 * time.Minute}}, StartPaused: true, DeleteAfter: time.Minute,
		}
		r, err := d.op.As("kim", "order 42").Define(t.Context(), def)
		require.NoError(t, err)
		assert.Equal(t, operator.DefineResult{Name: "acme/42", Outcome: operator.DefineCreated, Revision: 1, NextFire: time.Now().Add(time.Hour).UTC()}, r)
		rec := d.read("acme/42")
		require.Len(t, rec.Created, 13)
		text := strings.ReplaceAll(d.GetText(d.Keys.Defined(record.Segment("acme/42"))), rec.Created, "TOKEN")
		assert.Equal(t, `{"job":"acme/42","created":"TOKEN","revision":1,"definition":{"created":"TOKEN","description":"reminds","kind":"note","kind_revision":2,"max_attempts":3,`+
			`"name":"acme/42","on_crash":"rerun elsewhere","on_misfire":"run once","param":"{\"a\":\"<b>\"}","retry":{"factor":2,"initial":"2m","jitter":0.2,"max":3,"max_interval":"2m"},`+
			`"revision":1,"schedule":"at 2000-01-01T01:01:00Z","shard_params":{"1":"x"},"shards":2,"start_paused":true,"strategy":"sticky","timeout":"1m30s"},`+
			`"at":"2000-01-01T00:01:00Z","next":"2000-01-01T01:01:00Z","by":{"at":"2000-01-01T00:01:00Z","by":"kim","reason":"order 42","what":"define"},"delete_after":"1m0s"}`, text)
	})
	runDefs(t, "has the definition that executor.Job has", func(t *testing.T, d defs) {
		for i, job := range []executor.Job{
			{},
			{Schedule: schedule.Always()},
			{Schedule: schedule.Cron("0 3 * * *").In("Asia/Shanghai"), Shards: 3, Param: "p", Retry: executor.Retry{Max: 2}},
		} {
			job.Name, job.Handler = fmt.Sprint("job", i), executor.HandlerFunc(func(context.Context, *executor.Run) error { return nil })
			e, err := executor.New(d.Server.Client("x"), "other", executor.Options{})
			require.NoError(t, err)
			require.NoError(t, e.Register(job))
			require.NoError(t, e.Start(t.Context()))
			e.Shutdown(t.Context())
			def := operator.Definition{Name: job.Name, Kind: "note", Schedule: job.Schedule, Shards: job.Shards, Param: job.Param}
			if job.Retry.Max > 0 {
				def.Policies = map[string]any{"retry": map[string]int{"max": job.Retry.Max}}
			}
			d.define(def)
			other, err := record.NewKeys("other", "default")
			require.NoError(t, err)
			want, got := map[string]any{}, map[string]any{}
			require.NoError(t, json.Unmarshal([]byte(d.GetText(other.Job(job.Name))), &want))
			require.NoError(t, json.Unmarshal(d.read(job.Name).Definition, &got))
			want["kind"], want["created"], want["revision"] = "note", got["created"], 1.0
			assert.Equal(t, want, got)
		}
	})
	runDefs(t, "has the defaults of its kind below its own fields", func(t *testing.T, d defs) {
		d.PutRecord(d.Keys.Kind("note"), `{"name":"note","defaults":{"timeout":"1m","shards":4,"param":"p","later":{"b":1,"a":2},"name":"no","on_overlap":"skip","strategy":"average","start_paused":null}}`)
		d.define(operator.Definition{Name: "a", Kind: "note", Shards: 2, Policies: map[string]any{"on_overlap": nil, "strategy": nil}})
		rec := d.read("a")
		assert.JSONEq(t, `{"created":"`+rec.Created+`","kind":"note","later":{"a":2,"b":1},"max_attempts":3,"name":"a","on_crash":"rerun elsewhere","on_misfire":"run once","param":"p",
			"revision":1,"schedule":"on trigger","shards":2,"strategy":"sticky","timeout":"1m"}`, string(rec.Definition))
	})
	runDefs(t, "has leaders follow definitions from the first one on", func(t *testing.T, d defs) {
		d.define(note("a"), operator.DryRun())
		_, found := d.GetRecord(d.Keys.KindCounts())
		require.False(t, found)
		d.define(note("a"))
		assert.Equal(t, "{}", d.GetText(d.Keys.KindCounts()))
	})
	runDefs(t, "changes a definition in the same creation, as one more revision", func(t *testing.T, d defs) {
		time.Sleep(time.Minute)
		d.define(note("a"))
		first := d.read("a")
		d.edit("a", func(rec *record.Defined) { rec.By.Reason = "x" })
		time.Sleep(time.Minute)
		def := note("a")
		def.Shards, def.DeleteAfter = 2, -time.Hour
		r := d.define(def)
		assert.Equal(t, operator.DefineChanged, r.Outcome)
		assert.Equal(t, []string{"shards", "delete_after"}, r.Changed)
		rec := d.read("a")
		assert.Equal(t, first.Created, rec.Created)
		assert.Equal(t, first.At, rec.At)
		assert.Equal(t, 2, rec.Revision)
		assert.Equal(t, 2, rec.Parsed().Revision)
		assert.EqualValues(t, -1, rec.DeleteAfter)
		assert.Equal(t, "define: change shards, delete_after", rec.By.What)
		assert.Equal(t, instant(time.Now()), rec.Changed)
		assert.Empty(t, rec.Earlier)
	})
	runDefs(t, "writes nothing if nothing changes", func(t *testing.T, d defs) {
		def := note("a")
		def.Policies = map[string]any{"retry": map[string]any{"max": 1, "jitter": 0.5}}
		d.define(def)
		before := d.Server.Counts("console").Commits
		r := d.define(def)
		assert.Equal(t, operator.DefineUnchanged, r.Outcome)
		assert.Equal(t, 1, r.Revision)
		got, err := d.op.Definition(t.Context(), "a")
		require.NoError(t, err)
		assert.Equal(t, operator.DefineUnchanged, d.define(got.Definition).Outcome, "what Definition returns is what is stored")
		_, err = d.op.ReportingUnchanged().Define(t.Context(), def)
		assert.ErrorIs(t, err, operator.ErrUnchanged)
		assert.Equal(t, before, d.Server.Counts("console").Commits)
	})
	runDefs(t, "keeps fields of its record that a later version has added", func(t *testing.T, d defs) {
		d.define(note("a"))
		key := d.Keys.Defined("a")
		d.PutRecord(key, strings.Replace(d.GetText(key), `{"job"`, `{"later":[1],"job"`, 1))
		def := note("a")
		def.Shards = 2
		d.define(def)
		assert.Contains(t, d.GetText(key), `"later":[1]`)
	})
	runDefs(t, "does not change the kind of a job", func(t *testing.T, d defs) {
		d.PutRecord(d.Keys.Kind("other"), `{"name":"other"}`)
		d.define(note("a"))
		def := note("a")
		def.Kind = "other"
		_, err := d.op.Define(t.Context(), def)
		assert.ErrorIs(t, err, operator.ErrInvalidArgument)
		assert.EqualError(t, err, `define "a": kind: it is "note", and stays for as long as the job exists; delete the job first`)
	})
	runDefs(t, "creates only what is absent, and changes only the revision that is expected, if that is asked for", func(t *testing.T, d defs) {
		_, err := d.op.Define(t.Context(), note("a"), operator.IfRevision(1))
		assert.ErrorIs(t, err, operator.ErrOtherRevision)
		assert.Nil(t, d.read("a"))
		d.define(note("a"), operator.IfAbsent())
		_, err = d.op.Define(t.Context(), note("a"), operator.IfAbsent())
		assert.ErrorIs(t, err, operator.ErrExists)
		def := note("a")
		def.Shards = 2
		d.define(def, operator.IfRevision(1))
		def.Shards = 3
		_, err = d.op.Define(t.Context(), def, operator.IfRevision(1))
		assert.ErrorIs(t, err, operator.ErrOtherRevision)
		assert.EqualError(t, err, `define "a": the job has another revision: it has revision 2, and 1 was expected`)
		for _, options := range [][]operator.DefineOption{{operator.IfRevision(1), operator.IfAbsent()}, {operator.IfRevision(0)}} {
			_, err = d.op.Define(t.Context(), def, options...)
			assert.ErrorIs(t, err, operator.ErrInvalidArgument)
		}
		_, err = d.op.DefineAll(t.Context(), []operator.Definition{note("a"), note("b")}, operator.IfRevision(2))
		assert.ErrorIs(t, err, operator.ErrInvalidArgument)
	})
	runDefs(t, "refuses the name of a job that is registered in code, also one that is registered meanwhile", func(t *testing.T, d defs) {
		d.PutRecord(d.Keys.Job("a"), coordtest.Def("a", 0, 1, ""))
		_, err := d.op.Define(t.Context(), note("a"))
		assert.ErrorIs(t, err, operator.ErrRegistered)
		o, reg := d.NewOperator()
		reg.BeforeTxn(membertest.OnFirstWrite(membertest.IsKey(d.Keys.Defined("b")), func() { d.PutRecord(d.Keys.Job("b"), coordtest.Def("b", 0, 1, "")) }))
		_, err = o.WithCompiler(executor.Compile).Define(t.Context(), note("b"))
		assert.ErrorIs(t, err, operator.ErrRegistered)
		assert.Nil(t, d.read("b"))
	})
	runDefs(t, "refuses a kind that no process has stored, or not in that revision, unless that is permitted", func(t *testing.T, d defs) {
		def := note("a")
		def.Kind = "unknown"
		_, err := d.op.Define(t.Context(), def)
		assert.ErrorIs(t, err, operator.ErrUnknownKind)
		assert.EqualError(t, err, `define "a": kind: unknown kind: no process has stored "unknown"`)
		d.define(def, operator.AllowUnknownKind())
		def = note("b")
		def.KindRevision = 3
		_, err = d.op.Define(t.Context(), def)
		assert.EqualError(t, err, `define "b": kind_revision: unknown kind: "note" has revision 2, below 3`)
		d.define(def, operator.AllowUnknownKind())
		d.PutRecord(d.Keys.Kind("broken"), `{"name":"other"}`)
		def = note("c")
		def.Kind = "broken"
		_, err = d.op.Define(t.Context(), def, operator.AllowUnknownKind())
		assert.ErrorContains(t, err, `define "c": kind: read test/groups/default/kinds/broken: record of kind "other"`)
	})
	runDefs(t, "refuses a job beyond the limits of its kind and of the group, not a change", func(t *testing.T, d defs) {
		d.PutRecord(d.Keys.Kind("few"), `{"name":"few","max_jobs":3}`)
		d.PutRecord(d.Keys.KindCounts(), `{"by_kind":{"few":1}}`)
		few := func(name string) operator.Definition {
			def := note(name)
			def.Kind = "few"
			return def
		}
		results, err := d.op.DefineAll(t.Context(), []operator.Definition{few("a"), few("b"), few("c")})
		assert.ErrorIs(t, err, operator.ErrTooManyJobs)
		assert.EqualError(t, err, `define "c": too many jobs are defined: 3 of kind "few", at most 3`)
		assert.Equal(t, operator.DefineCreated, results[1].Outcome)
		d.PutRecord(d.Keys.KindCounts(), fmt.Sprintf(`{"by_kind":{"x":%d}}`, record.DefaultMaxJobs))
		def := few("a")
		def.Shards = 2
		d.define(def)
		_, err = d.op.Define(t.Context(), note("d"))
		assert.EqualError(t, err, `define "d": too many jobs are defined: 100000 in the group, at most 100000`)
		d.PutRecord(d.Keys.KindCounts(), `?`)
		d.define(note("d"))
	})
	runDefs(t, "needs a compiler", func(t *testing.T, d defs) {
		o, _ := d.NewOperator()
		_, err := o.Define(t.Context(), note("a"))
		assert.ErrorIs(t, err, operator.ErrNoCompiler)
	})
	runDefs(t, "refuses a record that it cannot read", func(t *testing.T, d defs) {
		d.PutRecord(d.Keys.Defined("a"), `{"job":"b","created":"x"}`)
		_, err := d.op.Define(t.Context(), note("a"))
		assert.ErrorContains(t, err, "read test/groups/default/defined/")
		d.PutRecord(d.Keys.Meta(), `{"format":99}`)
		_, err = d.op.Define(t.Context(), note("b"))
		assert.ErrorIs(t, err, operator.ErrNewerFormat)
	})
}

func TestDefine_NextFire(t *testing.T) {
	at := func(min int) time.Time { return time.Date(2000, 1, 1, 0, min, 0, 0, time.UTC) }
	for _, test := range []struct {
		name     string
		schedule schedule.Schedule
		next     time.Time
	}{
		{"the call, of a schedule that has that instant", schedule.Every(5 * time.Minute), at(5)},
		{"the first one after it", schedule.Cron("*/7 * * * *"), at(7)},
		{"its only instant", schedule.At(at(9)), at(9)},
		{"none on trigger", schedule.OnTrigger(), time.Time{}},
		{"the call, if it counts from the ends of runs", schedule.FixedDelay(time.Hour), at(5)},
		{"the call, of daemons", schedule.Always(), at(5)},
		{"the call, if it follows other jobs", schedule.AfterJob("b"), at(5)},
		{"within its bounds", schedule.Every(time.Minute).From(at(30)), at(30)},
	} {
		runDefs(t, "is "+test.name, func(t *testing.T, d defs) {
			time.Sleep(5 * time.Minute)
			def := operator.Definition{Name: "a", Kind: "note", Schedule: test.schedule}
			assert.Equal(t, test.next, d.define(def).NextFire)
			assert.Equal(t, instant(test.next), d.read("a").Next)
		})
	}
	runDefs(t, "must exist, unless it is permitted that it does not", func(t *testing.T, d defs) {
		time.Sleep(5 * time.Minute)
		for _, s := range []schedule.Schedule{schedule.At(at(4)), schedule.Every(time.Minute).Until(at(5)), schedule.Always().Until(at(5)), schedule.Cron("0 0 30 2 *").From(at(1))} {
			_, err := d.op.Define(t.Context(), operator.Definition{Name: "a", Kind: "note", Schedule: s})
			assert.ErrorIs(t, err, operator.ErrInvalidArgument, s)
			if !strings.HasPrefix(s.String(), "cron") {
				assert.ErrorIs(t, err, operator.ErrNoFires, s)
			}
		}
		d.define(operator.Definition{Name: "a", Kind: "note", Schedule: schedule.At(at(4))}, operator.AllowNoFires())
		assert.Zero(t, d.read("a").Next)
	})
	runDefs(t, "counts from the change of a job that rests, whose rest stays", func(t *testing.T, d defs) {
		d.define(note("a"))
		d.rest("a", func(r *record.Rest) { r.Finished = 1 })
		time.Sleep(time.Minute)
		def := note("a")
		def.Schedule = schedule.Every(4 * time.Minute)
		assert.Equal(t, at(4), d.define(def).NextFire)
		rec := d.read("a")
		assert.Equal(t, &record.Rest{Number: 1, Epoch: 3, From: instant(at(0))}, rec.Rest, "it is not finished any more")
		assert.Equal(t, instant(at(1)), rec.Changed)
		d.edit("a", func(rec *record.Defined) { rec.Rest.From = instant(at(6)) })
		def.Schedule = schedule.Every(time.Minute)
		assert.Equal(t, at(6), d.define(def).NextFire, "not before the rest")
	})
	runDefs(t, "stays that of an earlier definition while that fire is owed", func(t *testing.T, d defs) {
		d.define(note("a"))
		first := d.read("a")
		time.Sleep(13 * time.Minute)
		def := note("a")
		for i := range record.MaxEarlier {
			def.Shards = i + 2
			assert.Equal(t, at(0), d.define(def).NextFire)
			time.Sleep(time.Second)
		}
		rec := d.read("a")
		require.Len(t, rec.Earlier, record.MaxEarlier)
		assert.Equal(t, record.EarlierDefinition{Until: instant(at(13)), Definition: first.Definition}, rec.Earlier[0])
		def.Shards = 100
		_, err := d.op.Define(t.Context(), def)
		assert.ErrorIs(t, err, operator.ErrTooManyChanges)
		d.PutRecord(d.Keys.Plan("a"), `{"job":"a","life":"`+rec.Life()+`"}`)
		d.define(def)
		assert.Equal(t, rec.Earlier, d.read("a").Earlier, "a plan goes on by itself")
	})
	runDefs(t, "is that of the change while an earlier creation has a plan", func(t *testing.T, d defs) {
		d.define(note("a"))
		d.PutRecord(d.Keys.Plan("a"), `{"job":"a","life":"other.0"}`)
		time.Sleep(13 * time.Minute)
		first, def := d.read("a"), note("a")
		def.Schedule = schedule.At(at(14))
		assert.Equal(t, at(0), d.define(def).NextFire, "which is owed")
		rec := d.read("a")
		assert.Equal(t, []record.EarlierDefinition{{Until: instant(at(13)), Definition: first.Definition}}, rec.Earlier)
		assert.Equal(t, instant(at(13)), rec.Changed)

		o, reg := d.NewOperator()
		reg.BeforeTxn(membertest.OnFirstWrite(membertest.IsKey(d.Keys.Defined("a")), func() { d.PutRecord(d.Keys.Plan("a"), `{"job":"a","life":"`+rec.Life()+`"}`) }))
		def.Shards = 2
		_, err := o.WithCompiler(executor.Compile).Define(t.Context(), def)
		require.NoError(t, err)
		assert.Equal(t, rec.Earlier, d.read("a").Earlier, "it is decided again if it has one of its own meanwhile")
	})
	runDefs(t, "stays that of an earlier definition if another author's clock was ahead of this one", func(t *testing.T, d defs) {
		d.define(note("a"))
		ahead := at(0).Add(time.Millisecond)
		d.edit("a", func(rec *record.Defined) {
			rec.Changed, rec.Earlier = instant(ahead), []record.EarlierDefinition{{Until: instant(ahead), Definition: rec.Definition}}
		})
		def := note("a")
		def.Shards = 2
		assert.Equal(t, at(0), d.define(def).NextFire)
		rec := d.read("a")
		assert.Equal(t, []record.Instant{instant(ahead), instant(ahead)}, []record.Instant{rec.Earlier[0].Until, rec.Earlier[1].Until})
		assert.Equal(t, instant(ahead), rec.Changed)
	})
	runDefs(t, "counts from the call, however long the store takes", func(t *testing.T, d defs) {
		d.Server.Delay("console", 20*time.Millisecond, 20*time.Millisecond)
		soon := time.Now().Add(10 * time.Millisecond)
		assert.Equal(t, soon.UTC(), d.define(operator.Definition{Name: "a", Kind: "note", Schedule: schedule.At(soon)}).NextFire)
		assert.Equal(t, instant(soon), d.read("a").Next)
	})
	runDefs(t, "is decided again if a leader has made a plan meanwhile", func(t *testing.T, d defs) {
		d.define(note("a"))
		time.Sleep(13 * time.Minute)
		o, reg := d.NewOperator()
		reg.BeforeTxn(membertest.OnFirstWrite(membertest.IsKey(d.Keys.Defined("a")), func() { d.PutRecord(d.Keys.Plan("a"), `{"job":"a","life":"`+d.read("a").Life()+`"}`) }))
		def := note("a")
		def.Shards = 2
		_, err := o.WithCompiler(executor.Compile).Define(t.Context(), def)
		require.NoError(t, err)
		assert.Empty(t, d.read("a").Earlier)
	})
}

func TestDefine_AfterDelete(t *testing.T) {
	tombstone := func(d defs, job string) {
		require.NoError(d.t, d.op.Delete(d.t.Context(), job, operator.WithoutWait()))
		require.True(d.t, d.read(job).IsDeleted())
	}
	runDefs(t, "makes a new creation, with another token and a higher revision", func(t *testing.T, d defs) {
		d.define(note("a"))
		d.rest("a", nil)
		first := d.read("a")
		tombstone(d, "a")
		time.Sleep(time.Minute)
		_, err := d.op.Define(t.Context(), note("a"), operator.IfRevision(1))
		require.ErrorIs(t, err, operator.ErrOtherRevision)
		assert.Equal(t, operator.DefineCreated, d.define(note("a"), operator.IfAbsent()).Outcome)
		rec := d.read("a")
		assert.NotEqual(t, first.Created, rec.Created)
		assert.Equal(t, 2, rec.Revision)
		assert.Equal(t, instant(time.Now()), rec.At)
		assert.Nil(t, rec.Rest)
	})
	runDefs(t, "leaves nothing of a job that rested: neither its intent nor its states", func(t *testing.T, d defs) {
		d.define(note("a"))
		d.rest("a", nil)
		_, err := d.op.Trigger(t.Context(), "a", "", nil)
		require.NoError(t, err)
		d.PutRecord(d.Keys.Data("a", 0), "state")
		tombstone(d, "a")
		d.define(note("a"), operator.DryRun())
		assert.Equal(t, "state", d.GetText(d.Keys.Data("a", 0)))
		d.define(note("a"))
		_, found := d.GetRecord(d.Keys.Data("a", 0))
		assert.False(t, found)
		_, found = d.GetRecord(d.Keys.Control("a"))
		assert.False(t, found)
	})
	runDefs(t, "leaves the records of a job that is awake to the leader, and begins with an intent of its own", func(t *testing.T, d defs) {
		d.define(note("a"))
		d.PutRecord(d.Keys.Job("a"), string(d.read("a").Definition))
		require.NoError(t, d.op.Pause(t.Context(), "a"))
		d.PutRecord(d.Keys.Data("a", 0), "state")
		tombstone(d, "a")
		time.Sleep(time.Second)
		d.define(note("a"))
		assert.Equal(t, "state", d.GetText(d.Keys.Data("a", 0)))
		in, err := d.op.Intent(t.Context(), "a")
		require.NoError(t, err)
		assert.False(t, in.Paused)
		n, err := d.op.Trigger(t.Context(), "a", "", nil)
		require.NoError(t, err)
		assert.EqualValues(t, 1, n)
		in, err = d.op.Intent(t.Context(), "a")
		require.NoError(t, err)
		assert.False(t, in.Paused)
	})
}

func TestDefine_AtOnce(t *testing.T) {
	runDefs(t, "from many goroutines, revisions rise by one", func(t *testing.T, d defs) {
		const writers = 20
		var mu sync.Mutex
		var revisions []int
		var all sync.WaitGroup
		for i := range writers {
			o, err := operator.New(d.Server.Client(fmt.Sprint("writer", i)), "test", "")
			require.NoError(t, err)
			all.Go(func() {
				def := note("a")
				def.Shards = i + 1
				r, err := o.WithCompiler(executor.Compile).Define(t.Context(), def)
				mu.Lock()
				defer mu.Unlock()
				assert.NoError(t, err)
				revisions = append(revisions, r.Revision)
			})
		}
		all.Wait()
		slices.Sort(revisions)
		want := make([]int, writers)
		for i := range want {
			want[i] = i + 1
		}
		assert.Equal(t, want, revisions)
		assert.Equal(t, writers, d.read("a").Revision)
	})
	runDefs(t, "of changes of one revision exactly one succeeds", func(t *testing.T, d defs) {
		def := note("a")
		def.Shards = 1
		d.define(def)
		var all sync.WaitGroup
		for i := range 8 {
			o, err := operator.New(d.Server.Client(fmt.Sprint("writer", i)), "test", "")
			require.NoError(t, err)
			o = o.WithCompiler(executor.Compile)
			all.Go(func() {
				for added := 0; added < 5; { // each adds five to the number of shards
					job, err := o.Definition(t.Context(), "a")
					if !assert.NoError(t, err) {
						return
					}
					def := job.Definition
					def.Shards++
					switch _, err := o.Define(t.Context(), def, operator.IfRevision(job.Revision)); {
					case err == nil:
						added++
					case !assert.ErrorIs(t, err, operator.ErrOtherRevision):
						return
					}
				}
			})
		}
		all.Wait()
		assert.Equal(t, 41, d.read("a").Parsed().Shards)
		assert.Equal(t, 41, d.read("a").Revision)
	})
}

func TestDefineAll(t *testing.T) {
	many := func(n int) (all []operator.Definition) {
		for i := range n {
			def := note(fmt.Sprintf("tenant-%d/report", i))
			def.Param = strings.Repeat("p", 100)
			all = append(all, def)
		}
		return all
	}
	runDefs(t, "stores thousands in few commits, and nothing the second time", func(t *testing.T, d defs) {
		const n = 3000
		results, err := d.op.DefineAll(t.Context(), many(n))
		require.NoError(t, err)
		require.Len(t, results, n)
		assert.Equal(t, operator.DefineResult{Name: "tenant-7/report", Outcome: operator.DefineCreated, Revision: 1, NextFire: time.Now().UTC()}, results[7])
		txns := d.Server.Counts("console").Commits
		assert.LessOrEqual(t, txns, n*2/registry.PortableLimits.TxnItems*12/10+2)
		count := 0
		for j, err := range d.op.Definitions(t.Context()) {
			require.NoError(t, err)
			assert.Equal(t, operator.DefinedResting, j.State)
			count++
		}
		assert.Equal(t, n, count)
		results, err = d.op.DefineAll(t.Context(), many(n))
		require.NoError(t, err)
		assert.Equal(t, operator.DefineUnchanged, results[n-1].Outcome)
		assert.Equal(t, txns, d.Server.Counts("console").Commits)
	})
	runDefs(t, "names each definition that fails, and stores the others", func(t *testing.T, d defs) {
		d.PutRecord(d.Keys.Job("c"), coordtest.Def("c", 0, 1, ""))
		bad := note("b")
		bad.Shards, bad.Kind = -1, "?/"
		results, err := d.op.DefineAll(t.Context(), []operator.Definition{note("a"), bad, note("c"), note("a"), note("d")})
		require.Error(t, err)
		assert.Equal(t, []string{
			`define "b": kind: invalid key: name "?/" has a slash`,
			`define "b": shards: -1 is not from 1 to 10000`,
			`define "c": name: the job is registered in code`,
			`define "a": name: it is that of an earlier definition of the call`,
		}, strings.Split(err.Error(), "\n"))
		assert.Equal(t, operator.DefineResult{Name: "b"}, results[1])
		assert.NotNil(t, d.read("a"))
		assert.NotNil(t, d.read("d"))
	})
	runDefs(t, "stores the rest when it is repeated after the store has failed", func(t *testing.T, d defs) {
		o, reg := d.NewOperator()
		writes := 0
		reg.ReplaceTxn(func(registry.Txn) error {
			if writes++; writes > 3 {
				return fmt.Errorf("%w: of the test", registry.ErrPermission)
			}
			return nil
		})
		defs := many(500)
		results, err := o.WithCompiler(executor.Compile).DefineAll(t.Context(), defs)
		assert.ErrorIs(t, err, registry.ErrPermission)
		stored := slices.IndexFunc(results, func(r operator.DefineResult) bool { return r.Outcome == "" })
		require.Positive(t, stored)
		assert.Len(t, strings.Split(err.Error(), "\n"), len(defs)-stored)
		results, err = d.op.DefineAll(t.Context(), defs)
		require.NoError(t, err)
		assert.Equal(t, operator.DefineUnchanged, results[stored-1].Outcome)
		assert.Equal(t, operator.DefineCreated, results[stored].Outcome)
	})
	runDefs(t, "stores all although another writer changes some", func(t *testing.T, d defs) {
		o, reg := d.NewOperator()
		reg.BeforeTxn(membertest.OnFirstWrite(membertest.IsKey(d.Keys.Defined(record.Segment("tenant-70/report"))), func() {
			def := note("tenant-70/report")
			def.Shards = 9
			d.define(def)
		}))
		results, err := o.WithCompiler(executor.Compile).DefineAll(t.Context(), many(100))
		require.NoError(t, err)
		assert.Equal(t, operator.DefineChanged, results[70].Outcome)
		for i, r := range results {
			assert.Equal(t, i == 70, r.Outcome != operator.DefineCreated)
		}
		assert.Equal(t, 1, d.read("tenant-70/report").Parsed().Shards)
	})
	runDefs(t, "reports the end of its context for each that is not stored", func(t *testing.T, d defs) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := d.op.DefineAll(ctx, many(2))
		assert.ErrorIs(t, err, context.Canceled)
		assert.Len(t, strings.Split(err.Error(), "\n"), 2)
		results, err := d.op.DefineAll(t.Context(), nil)
		assert.NoError(t, err)
		assert.Empty(t, results)
	})
}

// Each bad definition is refused with its name, the field, and the rule.
func TestDefine_Refuses(t *testing.T) {
	with := func(change func(*operator.Definition)) operator.Definition {
		def := note("a")
		change(&def)
		return def
	}
	policy := func(name string, value any) operator.Definition {
		return with(func(d *operator.Definition) { d.Policies = map[string]any{name: value} })
	}
	every := func(s schedule.Schedule) operator.Definition {
		return with(func(d *operator.Definition) { d.Schedule = s })
	}
	type bad struct {
		def  operator.Definition
		want string
	}
	all := []bad{
		{with(func(d *operator.Definition) { d.Name = "" }), `define "": name: is empty`},
		{with(func(d *operator.Definition) { d.Name = strings.Repeat("n", 101) }), `name: has 101 bytes, at most 100`},
		{with(func(d *operator.Definition) { d.Name = "a\n" }), `name: has a control character`},
		{with(func(d *operator.Definition) { d.Name = " a" }), `name: " a" begins or ends with a space`},
		{with(func(d *operator.Definition) { d.Name = "a\xff" }), `name: is not UTF-8`},
		{with(func(d *operator.Definition) { d.Name = "a\u200b" }), `name: "a\u200b" has a control or format character`},
		{with(func(d *operator.Definition) { d.Kind = "" }), `define "a": kind: invalid key: empty name`},
		{with(func(d *operator.Definition) { d.Kind = "a/b" }), `kind: invalid key: name "a/b" has a slash`},
		{with(func(d *operator.Definition) { d.Kind = "~a" }), `kind: invalid key: name "~a" begins with a tilde`},
		{with(func(d *operator.Definition) { d.Kind = "-counts" }), `kind: "-counts" begins with a dash`},
		{with(func(d *operator.Definition) { d.Kind = strings.Repeat("k", 65) }), `is longer than 64 bytes`},
		{with(func(d *operator.Definition) { d.KindRevision = -1 }), `kind_revision: -1 is not from 0 to`},
		{every(schedule.Every(0)), `schedule: schedule "every 0s": the interval is below 1ms`},
		{every(schedule.Cron("61 * * * *")), `schedule: schedule "cron 61 * * * *"`},
		{every(schedule.Cron("0 3 * * *").In("Mars/Base")), `schedule: schedule "cron 0 3 * * * in Mars/Base"`},
		{every(schedule.At()), `schedule: schedule "at": it has no instants`},
		{every(schedule.OnTrigger().In("UTC")), `schedule: schedule "on trigger in UTC"`},
		{every(schedule.AfterJob("a")), `schedule: `},
		{every(schedule.Every(time.Minute).Spread(time.Hour)), `schedule: schedule "every 1m spread 1h"`},
		{every(schedule.At(time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC))), `schedule: its first fire 2300-01-01T00:00:00Z is after 2261`},
		{every(schedule.At(time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC))), `schedule: the schedule has no fire from now on: "at 1999-01-01T00:00:00Z"`},
		{with(func(d *operator.Definition) { d.Shards = -1 }), `define "a": shards: -1 is not from 1 to 10000`},
		{with(func(d *operator.Definition) { d.Shards = 10_001 }), `shards: 10001 is not from 1 to 10000`},
		{with(func(d *operator.Definition) { d.Param = strings.Repeat("p", 8193) }), `param: has 8193 bytes, at most 8192`},
		{with(func(d *operator.Definition) { d.Param = "\xff" }), `param: is not UTF-8`},
		{with(func(d *operator.Definition) { d.ShardParams = map[int]string{1: "x"} }), `shard_params: 1 are of shards that do not exist`},
		{with(func(d *operator.Definition) { d.ShardParams = map[int]string{-1: "x"} }), `shard_params: 1 are of shards that do not exist`},
		{with(func(d *operator.Definition) { d.ShardParams = map[int]string{0: strings.Repeat("x", 1001)} }), `shard_params: that of shard 0 has 1001 bytes, at most 1000`},
		{with(func(d *operator.Definition) { d.ShardParams = map[int]string{0: "\xff"} }), `shard_params: that of shard 0 is not UTF-8`},
		{with(func(d *operator.Definition) { d.Description = strings.Repeat("d", 1001) }), `description: has 1001 bytes, at most 1000`},
		{with(func(d *operator.Definition) { d.Description = "\xff" }), `description: is not UTF-8`},
		{with(func(d *operator.Definition) {
			d.Shards, d.ShardParams = 20, map[int]string{}
			for i := range 20 {
				d.ShardParams[i] = strings.Repeat("x", 900)
			}
		}), `bytes of JSON, at most 16384`},
		{policy("colour", "red"), `policies: there is no policy "colour"; there are catchup_window,`},
		{policy("revision", 7), `policies: there is no policy "revision"`},
		{policy("timeout", func() {}), `policies: timeout: json: unsupported type: func()`},
		{policy("timeout", -time.Second), `timeout: -1s is negative`},
		{policy("timeout", "soon"), `timeout: time: invalid duration`},
		{policy("timeout", 7), `timeout: json: cannot unmarshal number`},
		{policy("on_crash", "never"), `on_crash: crash policy "never"`},
		{policy("on_misfire", "run all 0"), `on_misfire: misfire policy "run all 0"`},
		{policy("on_overlap", "kill"), `on_overlap: overlap policy "kill"`},
		{policy("tracking", "all"), `tracking: tracking "all"`},
		{policy("max_attempts", -1), `max_attempts: -1 is negative`},
		{policy("catchup_window", "-1m"), `catchup_window: -1m0s is negative`},
		{policy("strategy", "a\x00b"), `strategy: has a control character`},
		{policy("run_on", map[string]string{"": "x"}), `run_on: `},
		{policy("retry", map[string]any{"max": 1, "factor": 0.5}), `retry: has a Factor of 0.5, not at least 1`},
		{policy("retry", map[string]any{"initial": "1s"}), `retry: has Max 0, so its other fields have no effect`},
		{policy("retry", []int{1}), `retry: json: cannot unmarshal array`},
	}
	runDefs(t, "a definition that breaks a rule", func(t *testing.T, d defs) {
		require.GreaterOrEqual(t, len(all), 40)
		for _, bad := range all {
			_, err := d.op.Define(t.Context(), bad.def)
			assert.ErrorIs(t, err, operator.ErrInvalidArgument, bad.want)
			assert.ErrorContains(t, err, bad.want)
			assert.Equal(t, 1, len(strings.Split(err.Error(), "\n")), err)
			assert.True(t, strings.HasPrefix(err.Error(), fmt.Sprintf("define %q: ", bad.def.Name)), err)
			assert.Nil(t, d.read("a"))
		}
	})
	runDefs(t, "all problems of a definition together", func(t *testing.T, d defs) {
		def := note("a")
		def.Shards, def.Param, def.Policies = -1, "\xff", map[string]any{"timeout": "-1s", "max_attempts": -1}
		_, err := d.op.Define(t.Context(), def)
		require.Error(t, err)
		assert.Len(t, strings.Split(err.Error(), "\n"), 4, err)
	})
}

func TestDelete(t *testing.T) {
	run := func(name string, f func(t *testing.T, d defs)) { t.Helper(); runDefs(t, name, f) }
	planOf := func(d defs, job string, paused bool) {
		rec := d.read(job)
		e, err := record.NewEpoch(1, 1, rec.Definition)
		require.NoError(t, err)
		if paused {
			e.Until = 2
		}
		value, err := record.Encode(&record.Plan{Format: 1, Job: job, Epochs: []record.Epoch{e}, Paused: paused})
		require.NoError(t, err)
		d.PutRecord(d.Keys.Plan(record.Segment(job)), string(value))
	}
	awake := func(d defs, job string, paused bool) {
		d.define(note(job))
		d.PutRecord(d.Keys.Job(record.Segment(job)), string(d.read(job).Definition))
		planOf(d, job, paused)
	}
	run("leaves a tombstone of a job that was never awake, in one commit, so that a late write does not define it again", func(t *testing.T, d defs) {
		d.define(note("a"))
		before := d.Server.Counts("console").Commits
		require.NoError(t, d.op.Delete(t.Context(), "a"))
		assert.True(t, d.read("a").IsGone())
		assert.Equal(t, before+1, d.Server.Counts("console").Commits)
		assert.ErrorIs(t, d.op.Delete(t.Context(), "a"), operator.ErrUnknownJob)
	})
	run("leaves a record of the act where the leader has to delete others, and returns at once if the job rests", func(t *testing.T, d defs) {
		d.define(note("a"))
		d.rest("a", nil)
		at := d.read("a").At
		time.Sleep(time.Minute)
		require.NoError(t, d.op.As("kim", "paid").Delete(t.Context(), "a"))
		rec := d.read("a")
		assert.True(t, rec.IsDeleted())
		assert.Equal(t, 1, rec.Revision)
		assert.Equal(t, at, rec.At)
		assert.Equal(t, record.Act{At: instant(time.Now()), By: "kim", Reason: "paid", What: "delete"}, rec.By)
		assert.Nil(t, rec.Rest)
		require.NoError(t, d.op.Delete(t.Context(), "a"), "again")
		for name, call := range map[string]func() error{
			"Pause":   func() error { return d.op.Pause(t.Context(), "a") },
			"Trigger": func() error { _, err := d.op.Trigger(t.Context(), "a", "", nil); return err },
			"Intent":  func() error { _, err := d.op.Intent(t.Context(), "a"); return err },
			"Status":  func() error { _, err := d.op.Status(t.Context(), "a"); return err },
		} {
			assert.ErrorIs(t, call(), operator.ErrDeleting, name)
		}
	})
	run("notices what becomes of the job meanwhile", func(t *testing.T, d defs) {
		d.define(note("a"))
		o, reg := d.NewOperator()
		reg.BeforeTxn(membertest.OnFirstWrite(membertest.IsKey(d.Keys.Defined("a")), func() { d.PutRecord(d.Keys.Job("a"), string(d.read("a").Definition)) }))
		require.NoError(t, o.Delete(t.Context(), "a"))
		assert.True(t, d.read("a").IsDeleted(), "it has just been woken")
	})
	run("waits until the leader has paused the job", func(t *testing.T, d defs) {
		awake(d, "a", false)
		done := make(chan error, 1)
		go func() { done <- d.op.Delete(t.Context(), "a") }()
		time.Sleep(10 * time.Second)
		assert.Empty(t, done)
		rec := d.read("a")
		require.True(t, rec.IsDeleted())
		def := d.GetText(d.Keys.Job("a"))
		e, err := record.NewEpoch(1, 1, []byte(def))
		require.NoError(t, err)
		value, err := record.Encode(&record.Plan{Format: 1, Job: "a", Epochs: []record.Epoch{e}, Paused: true})
		require.NoError(t, err)
		d.PutRecord(d.Keys.Plan("a"), string(value))
		time.Sleep(time.Second)
		require.Len(t, done, 1)
		assert.NoError(t, <-done)
	})
	run("relies on a pause, even one that operators have ended", func(t *testing.T, d defs) {
		awake(d, "a", true)
		require.NoError(t, d.op.Pause(t.Context(), "a"))
		require.NoError(t, d.op.Resume(t.Context(), "a"))
		require.NoError(t, d.op.Delete(t.Context(), "a"))
	})
	run("waits for the plan of an earlier creation that is not paused yet", func(t *testing.T, d defs) {
		awake(d, "a", false)
		require.NoError(t, d.op.Delete(t.Context(), "a", operator.WithoutWait()))
		d.define(note("a"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		assert.ErrorIs(t, d.op.Delete(ctx, "a"), operator.ErrDeleting)
	})
	run("does not wait for the plan of a job that was defined after it", func(t *testing.T, d defs) {
		awake(d, "a", false)
		require.NoError(t, d.op.Delete(t.Context(), "a", operator.WithoutWait()))
		done := make(chan error, 1)
		go func() { done <- d.op.Delete(t.Context(), "a") }()
		synctest.Wait()
		d.RemoveRecords(d.Keys.Plan("a"), d.Keys.Job("a"))
		d.define(note("a"))
		planOf(d, "a", false)
		time.Sleep(time.Second)
		require.Len(t, done, 1)
		assert.NoError(t, <-done)
	})
	run("fails for jobs that are not defined, and leaves these as they are", func(t *testing.T, d defs) {
		d.PutRecord(d.Keys.Job("a"), coordtest.Def("a", 0, 1, ""))
		assert.ErrorIs(t, d.op.Delete(t.Context(), "a", operator.CancelRuns()), operator.ErrRegistered)
		assert.EqualError(t, d.op.Delete(t.Context(), "b"), `delete "b": unknown job`)
		d.define(note("c"))
		d.define(note("d"))
		err := d.op.DeleteAll(t.Context(), []string{"d", "a", "c", "b", "d"})
		assert.EqualError(t, err, `delete "a": the job is registered in code`, "one that is not there counts as deleted")
		assert.True(t, d.read("c").IsGone())
		assert.True(t, d.read("d").IsGone())
		assert.NotEmpty(t, d.GetText(d.Keys.Job("a")))
	})
	run("deletes many in few commits", func(t *testing.T, d defs) {
		var names []string
		var all []operator.Definition
		for i := range 300 {
			names = append(names, fmt.Sprint("job", i))
			all = append(all, note(names[i]))
		}
		_, err := d.op.DefineAll(t.Context(), all)
		require.NoError(t, err)
		before := d.Server.Counts("console").Commits
		require.NoError(t, d.op.DeleteAll(t.Context(), names))
		assert.LessOrEqual(t, d.Server.Counts("console").Commits, before+300*4/registry.PortableLimits.TxnItems*12/10+2)
		for _, err := range d.op.Definitions(t.Context()) {
			require.NoError(t, err)
			t.Error("a job is left")
		}
	})
	run("is the way to remove a defined job, not Retire or Forget", func(t *testing.T, d defs) {
		d.define(note("a"))
		assert.ErrorIs(t, d.op.Retire(t.Context(), "a"), operator.ErrDefined)
		assert.ErrorIs(t, d.op.Forget(t.Context(), "a"), operator.ErrDefined)
		assert.ErrorContains(t, d.op.Forget(t.Context(), "a"), "Operator.Delete")
		assert.NotNil(t, d.read("a"))
		require.NoError(t, d.op.Unretire(t.Context(), "a"))
	})
}
