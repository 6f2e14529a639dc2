package operator_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/group/claimer"
	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/membertest"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/schedule"
)

// failure is a failed run of the fire at the beginning of the bubble, of shard 0.
func failure() record.Failure {
	at := record.InstantOf(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC))
	return record.Failure{
		RunGroup: record.RunGroup{Shards: shardset.Of(0), Ref: record.Ref{Epoch: 3, Fire: at, Attempt: 1}}, At: at.Add(time.Second), Error: "no route", Total: 1,
	}
}

// restFailed puts a job to rest whose run at the beginning of the bubble has failed.
func (d defs) restFailed(job string) {
	d.rest(job, func(r *record.Rest) {
		r.Counts, r.Ended, r.Failing = record.Counts{Claimed: 1, Failed: 1}, failure().At, true
		r.Failures = record.Failures{failure()}
	})
}

func TestDefinitions(t *testing.T) {
	list := func(d defs, filters ...operator.DefinitionFilter) (all []operator.DefinedJob) {
		for j, err := range d.op.Definitions(d.t.Context(), filters...) {
			require.NoError(d.t, err)
			all = append(all, j)
		}
		slices.SortFunc(all, func(a, b operator.DefinedJob) int { return cmp.Compare(a.Name, b.Name) })
		return all
	}
	runDefs(t, "tell what a job is and how it is", func(t *testing.T, d defs) {
		def := note("a")
		def.Param, def.Policies, def.DeleteAfter = "secret", map[string]any{"timeout": "1m"}, -1
		_, err := d.op.As("kim", "why").Define(t.Context(), def)
		require.NoError(t, err)
		began := time.Now()
		time.Sleep(time.Minute)
		d.restFailed("a")
		j, err := d.op.Definition(t.Context(), "a")
		require.NoError(t, err)
		assert.Equal(t, "1m", j.Definition.Policies["timeout"])
		assert.Equal(t, def.Schedule, j.Definition.Schedule)
		assert.Equal(t, 1, j.Definition.Shards)
		assert.EqualValues(t, -1, j.Definition.DeleteAfter)
		text, err := json.Marshal(j)
		require.NoError(t, err)
		assert.NotContains(t, string(text), "secret")
		f := operator.Failure{Runs: operator.Runs{Shards: []int{0}, Fire: began.UTC(), Attempt: 1}, At: began.Add(time.Second).UTC(), Error: "no route"}
		want := operator.DefinedJob{
			Name: "a", State: operator.DefinedResting, Kind: "note", Revision: 1, Creation: d.read("a").Created, Schedule: "every 10m", Definition: j.Definition,
			Defined: began.UTC(), By: operator.Act{At: began.UTC(), By: "kim", Reason: "why", What: "define"}, NextFire: began.Add(10 * time.Minute).UTC(),
			Counts: operator.Counts{Claimed: 1, Failed: 1}, Ended: f.At, Failures: []operator.Failure{f}, Failing: true,
		}
		assert.Equal(t, want, j)
		assert.Equal(t, []operator.DefinedJob{want}, list(d))
		acts, err := d.op.Acts(t.Context(), "a")
		require.NoError(t, err)
		assert.Equal(t, []operator.Act{want.By}, acts)
	})
	runDefs(t, "have a state", func(t *testing.T, d defs) {
		for _, name := range []string{"awake", "deleting", "finished", "registered", "resting"} {
			d.define(note(name))
		}
		d.PutRecord(d.Keys.Job("awake"), string(d.read("awake").Definition))
		d.rest("deleting", nil)
		require.NoError(t, d.op.Delete(t.Context(), "deleting"))
		d.rest("finished", func(r *record.Rest) { r.Finished, r.Ended = r.From, r.From })
		d.edit("finished", func(rec *record.Defined) { rec.Next = 0 })
		d.PutRecord(d.Keys.Job("registered"), coordtest.Def("registered", 0, 1, ""))
		d.PutRecord(d.Keys.Job("code"), coordtest.Def("code", 0, 1, ""))
		states := map[string]operator.DefinedState{}
		for _, j := range list(d) {
			states[j.Name] = j.State
			one, err := d.op.Definition(t.Context(), j.Name)
			require.NoError(t, err)
			assert.Equal(t, j, one)
			assert.Equal(t, j.Name == "registered", j.Problem != "", j.Name)
		}
		assert.Equal(t, map[string]operator.DefinedState{
			"awake": operator.DefinedAwake, "deleting": operator.DefinedDeleting, "finished": operator.DefinedFinished, "registered": operator.DefinedResting, "resting": operator.DefinedResting,
		}, states)
		j, err := d.op.Definition(t.Context(), "finished")
		require.NoError(t, err)
		assert.Equal(t, time.Now().Add(time.Hour).UTC(), j.DeleteAt)
		_, err = d.op.Definition(t.Context(), "none")
		assert.ErrorIs(t, err, operator.ErrUnknownJob)
		_, err = d.op.Definition(t.Context(), "code")
		assert.ErrorIs(t, err, operator.ErrRegistered)
	})
	runDefs(t, "are found by kind and prefix", func(t *testing.T, d defs) {
		d.PutRecord(d.Keys.Kind("mail"), `{"name":"mail"}`)
		for _, name := range []string{"acme/1", "acme/2", "zeta/1"} {
			d.define(note(name))
		}
		mail := note("acme/mail")
		mail.Kind = "mail"
		d.define(mail)
		names := func(filters ...operator.DefinitionFilter) (names []string) {
			for _, j := range list(d, filters...) {
				names = append(names, j.Name)
			}
			return names
		}
		assert.Equal(t, []string{"acme/1", "acme/2", "acme/mail", "zeta/1"}, names())
		assert.Equal(t, []string{"acme/mail"}, names(operator.OfKind("mail")))
		assert.Equal(t, []string{"acme/1", "acme/2"}, names(operator.OfKind("note"), operator.WithPrefix("acme/")))
		for range d.op.Definitions(t.Context()) {
			break // a reader may stop
		}
	})
	runDefs(t, "are read although records among them are damaged or hostile", func(t *testing.T, d defs) {
		d.define(note("good"))
		dir := d.Keys.Defined("good").Dir()
		hostile := map[string]string{
			"text": "?", "null": "null", "list": "[]", "other": d.GetText(d.Keys.Defined("good")),
			"schedule": `{"job":"schedule","created":"t","revision":1,"definition":{"name":"schedule","kind":"note","created":"t","revision":1,"shards":1,"schedule":"at noon"}}`,
			"shards":   `{"job":"shards","created":"t","revision":1,"definition":{"name":"shards","kind":"note","created":"t","revision":1,"shards":100000}}`,
		}
		for name, text := range hostile {
			d.PutRecord(dir.Join(name), text)
		}
		all := list(d)
		require.Len(t, all, 1+len(hostile))
		for _, j := range all {
			assert.Equal(t, j.Name != "good", j.Problem != "", j)
		}
		o, err := d.op.Definition(t.Context(), "good")
		require.NoError(t, err)
		assert.Empty(t, o.Problem)
	})
	runDefs(t, "end with an error of the store", func(t *testing.T, d defs) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for _, err := range d.op.Definitions(ctx) {
			assert.ErrorIs(t, err, context.Canceled)
		}
	})
}

func TestKinds(t *testing.T) {
	runDefs(t, "tell revisions, defaults, counts, and who offers them", func(t *testing.T, d defs) {
		d.PutRecord(d.Keys.Kind("note"), `{"name":"note","revision":2,"description":"reminds","defaults":{"param":"secret"},"max_jobs":7}`)
		d.PutRecord(d.Keys.Kind("bad"), `{"name":"?/"}`)
		d.PutRecord(d.Keys.KindCounts(), `{"at":"2000-01-01T00:00:00Z","by_kind":{"note":3,"gone":1}}`)
		w := d.NewWorker("b", nil)
		w.OfferKinds(record.Kind{Name: "note", Revision: 1})
		d.JoinWorker(w)
		kinds, err := d.op.Kinds(t.Context())
		require.NoError(t, err)
		at := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
		require.Len(t, kinds, 3)
		assert.Contains(t, kinds[0].Problem, "kinds/bad cannot be read")
		assert.Equal(t, operator.KindStatus{Name: "gone", Jobs: 1, MaxJobs: record.DefaultMaxJobs, Counted: at, Problem: "no process has stored it"}, kinds[1])
		assert.Equal(t, operator.KindStatus{
			Name: "note", Description: "reminds", Revision: 2, Defaults: json.RawMessage(`{"param":"secret"}`), Jobs: 3, MaxJobs: 7, Counted: at,
			Instances: []operator.KindInstance{{Instance: "b", Revision: 1}},
		}, kinds[2])
		text, err := json.Marshal(kinds)
		require.NoError(t, err)
		assert.NotContains(t, string(text), "secret")
	})
}

func TestJSON_OfDefinedJobs(t *testing.T) {
	at := time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)
	counts := `{"claimed":0,"succeeded":0,"failed":0,"skipped":0,"lost":0,"unknown":0,"retried":0}`
	isJSON(t, operator.DefineResult{Name: "a", Outcome: operator.DefineChanged, Revision: 2, NextFire: at, Changed: []string{"param"}},
		`{"name":"a","outcome":"changed","revision":2,"next":"2026-03-01T08:00:00Z","changed":["param"]}`)
	isJSON(t, operator.DefinedJob{Name: "a", State: operator.DefinedResting, Kind: "note", Revision: 2, Creation: "t", Schedule: "every 1m", Defined: at, By: operator.Act{At: at, What: "define"}, NextFire: at, DeleteAt: at},
		`{"name":"a","state":"resting","kind":"note","revision":2,"creation":"t","schedule":"every 1m","defined":"2026-03-01T08:00:00Z","by":{"at":"2026-03-01T08:00:00Z","what":"define"},
			"next":"2026-03-01T08:00:00Z","counts":`+counts+`,"failures":null,"delete_at":"2026-03-01T08:00:00Z"}`)
	isJSON(t, operator.DefinedJob{Name: "a", State: operator.DefinedUnreadable, Problem: "p"}, `{"name":"a","state":"unreadable","counts":`+counts+`,"failures":null,"problem":"p"}`)
	isJSON(t, operator.KindStatus{Name: "note", MaxJobs: 7, Instances: []operator.KindInstance{{Instance: "b", Revision: 1}}},
		`{"name":"note","revision":0,"jobs":0,"max_jobs":7,"instances":[{"instance":"b","revision":1}]}`)
}

// What operators do for any job they do for one that rests, without its leader.
func TestResting(t *testing.T) {
	runDefs(t, "has a status", func(t *testing.T, d defs) {
		d.define(note("a"))
		d.restFailed("a")
		st, err := d.op.Status(t.Context(), "a")
		require.NoError(t, err)
		next := time.Now().Add(10 * time.Minute).UTC()
		assert.True(t, st.Rests)
		assert.Equal(t, next, st.NextFire)
		assert.Equal(t, next.Add(-30*time.Second), st.Wakes)
		assert.Equal(t, "note", st.Kind)
		assert.Equal(t, 1, st.Revision)
		assert.Equal(t, "every 10m", st.Schedule)
		assert.EqualValues(t, 1, st.Counts.Failed)
		assert.Len(t, st.Failures, 1)
		assert.Zero(t, st.Shards)
	})
	runDefs(t, "keeps what operators want of it", func(t *testing.T, d defs) {
		def := note("a")
		def.StartPaused = true
		d.define(def)
		in, err := d.op.Intent(t.Context(), "a")
		require.NoError(t, err)
		assert.True(t, in.Paused)
		d.rest("a", func(r *record.Rest) { r.Trigger = 7 })
		st, err := d.op.Status(t.Context(), "a")
		require.NoError(t, err)
		assert.False(t, st.Intent.Paused, "it was resumed before it rested")
		n, err := d.op.Trigger(t.Context(), "a", "p", []int{0})
		require.NoError(t, err)
		assert.EqualValues(t, 8, n)
		require.NoError(t, d.op.Pause(t.Context(), "a"))
		require.NoError(t, d.op.Override(t.Context(), "a", operator.Override{Shards: 3}))
		assert.ErrorIs(t, d.op.Override(t.Context(), "a", operator.Override{Shards: -3}), operator.ErrInvalidArgument)
		require.NoError(t, d.op.Disable(t.Context(), operator.Scope{Job: "a", Shards: []int{0}}))
		_, err = d.op.Backfill(t.Context(), "a", time.Now().Add(-time.Hour), time.Now(), 1)
		require.NoError(t, err)
		_, err = d.op.Cancel(t.Context(), "a")
		assert.ErrorIs(t, err, operator.ErrNotRunning)
		in, err = d.op.Intent(t.Context(), "a")
		require.NoError(t, err)
		assert.True(t, in.Paused)
		assert.Equal(t, 3, in.Override.Shards)
		acts, err := d.op.Acts(t.Context(), "a")
		require.NoError(t, err)
		require.Len(t, acts, 6)
		assert.Equal(t, "define", acts[0].What)
	})
	runDefs(t, "is retried as one that is awake", func(t *testing.T, d defs) {
		d.define(note("a"))
		d.restFailed("a")
		fire := failure().Fire.Time()
		r, err := d.op.Retry(t.Context(), "a", fire, operator.RetryOptions{})
		require.NoError(t, err)
		assert.Equal(t, []int{0}, r.Shards)
		_, err = d.op.Retry(t.Context(), "a", fire, operator.RetryOptions{})
		assert.ErrorIs(t, err, operator.ErrRetryRefused)
	})
	runDefs(t, "takes no intent after its deletion", func(t *testing.T, d defs) {
		d.define(note("a"))
		o, reg := d.NewOperator()
		reg.BeforeTxn(membertest.OnFirstWrite(membertest.IsKey(d.Keys.Control("a")), func() { require.NoError(t, d.op.Delete(t.Context(), "a")) }))
		_, err := o.Trigger(t.Context(), "a", "", nil)
		assert.ErrorIs(t, err, operator.ErrUnknownJob)
		_, found := d.GetRecord(d.Keys.Control("a"))
		assert.False(t, found)
	})
	explain := func(d defs, fire time.Time) operator.Answer {
		d.t.Helper()
		e, err := d.op.Explain(d.t.Context(), "a", 0, fire)
		require.NoError(d.t, err)
		require.True(d.t, e.Known)
		require.Len(d.t, e.Answers, 1)
		return e.Answers[0]
	}
	runDefs(t, "names a kind that no instance offers", func(t *testing.T, d defs) {
		d.define(note("a"))
		a := explain(d, time.Time{})
		assert.Contains(t, a.Summary, "no live instance offers the job")
		assert.Equal(t, `start a process that registers the kind "note"; if it was removed on purpose, delete the job`, a.Do)
	})
	runDefs(t, "explains when it wakes, and what became of earlier fires", func(t *testing.T, d defs) {
		d.offer("x")
		time.Sleep(time.Minute)
		d.define(note("a"))
		d.restFailed("a")
		a := explain(d, time.Time{})
		assert.Equal(t, "The job rests, and wakes at 2000-01-01T00:09:30Z, in 8m30s, for the fire of 2000-01-01T00:10:00Z.", a.Summary)
		assert.True(t, a.Stops)
		assert.Contains(t, explain(d, time.Now().Add(19*time.Minute)).Summary, "for its next fire, that of 2000-01-01T00:10:00Z")
		a = explain(d, failure().Fire.Time())
		assert.Contains(t, a.Summary, "no route")
		assert.Equal(t, "Retry", a.Verb)
		d.edit("a", func(rec *record.Defined) { rec.Rest.Failures = nil })
		assert.Contains(t, explain(d, failure().Fire.Time()).Summary, "have been claimed or skipped")
		time.Sleep(8*time.Minute + 40*time.Second)
		assert.Contains(t, explain(d, time.Time{}).Summary, "no leader has woken it yet for the fire of 2000-01-01T00:10:00Z")
		_, err := d.op.Trigger(t.Context(), "a", "", nil)
		require.NoError(t, err)
		assert.Contains(t, explain(d, time.Time{}).Summary, "no leader has woken it yet for what operators want of it")
		require.NoError(t, d.op.Delete(t.Context(), "a"))
		assert.Contains(t, explain(d, time.Time{}).Summary, "the job was deleted since 2000-01-01T00:09:40Z")
		d.PutRecord(d.Keys.Defined("a"), "?")
		assert.Contains(t, explain(d, time.Time{}).Summary, "cannot be read")
	})
}

// offer adds an instance that offers the kind "note", and leads nobody.
func (d defs) offer(name string) {
	d.t.Helper()
	reg := d.Server.Client(name)
	session, err := reg.OpenSession(d.t.Context(), registry.SessionOptions{TTL: time.Hour})
	require.NoError(d.t, err)
	id := session.ID()
	_, err = registry.Apply(d.t.Context(), reg, registry.Txn{Then: []registry.Op{
		registry.CreateOwned(d.Keys.Instance(name), fmt.Appendf(nil, `{"session":%q,"group":"default"}`, id), id),
		registry.Create(d.Keys.Member(record.Incarnation(name, id)), fmt.Appendf(nil, `{"name":%q,"session":%q,"jobs":[],"kinds":{"note":2}}`, name, id)),
	}})
	require.NoError(d.t, err)
	d.t.Cleanup(func() { _ = reg.Close(context.Background()) })
}

func TestDiagnose_DefinedJobs(t *testing.T) {
	findings := func(d defs) map[operator.FindingKind][]operator.Finding {
		d.t.Helper()
		all, err := d.op.Diagnose(d.t.Context())
		require.NoError(d.t, err)
		of := map[operator.FindingKind][]operator.Finding{}
		for _, f := range all.Findings {
			of[f.Kind] = append(of[f.Kind], f)
		}
		return of
	}
	runDefs(t, "names a kind without an instance, a damaged record, a collision, and a limit", func(t *testing.T, d defs) {
		d.Start("a", coordtest.Def("code", 0, 1, ""))
		d.PutRecord(d.Keys.Kind("few"), `{"name":"few","max_jobs":10}`)
		for i := range 10 {
			def := note(fmt.Sprint("few", i))
			def.Kind = "few"
			d.define(def)
		}
		newer := note("newer")
		newer.KindRevision = 2
		d.define(newer)
		d.define(note("older"))
		w := d.NewWorker("b", nil)
		w.OfferKinds(record.Kind{Name: "note", Revision: 1}, record.Kind{Name: "few"})
		w.Compiler = executor.Compile
		d.JoinWorker(w)
		value, err := record.Encode(&record.Defined{
			Job: "code", Created: "t", Revision: 1, Definition: json.RawMessage(`{"name":"code","kind":"few","created":"t","revision":1,"shards":1}`),
		})
		require.NoError(t, err)
		d.PutRecord(d.Keys.Defined("code"), string(value))
		damaged := d.Keys.DefinedIn(7).Join("x")
		d.PutRecord(damaged, "?")
		of := findings(d)
		require.Len(t, of[operator.FindingUnoffered], 1, of)
		assert.Equal(t, `no live instance offers the kind "note" in revision 2, of which 2 jobs are defined, such as newer`, of[operator.FindingUnoffered][0].What)
		require.Len(t, of[operator.FindingUnreadable], 1)
		assert.Equal(t, damaged, of[operator.FindingUnreadable][0].Key)
		require.Len(t, of[operator.FindingCollision], 1)
		assert.Equal(t, "code", of[operator.FindingCollision][0].Job)
		require.Len(t, of[operator.FindingLimit], 1)
		assert.Equal(t, `11 jobs are defined of kind "few", of at most 10`, of[operator.FindingLimit][0].What)
	})
	runDefs(t, "finds nothing wrong with a resting job that operators want something of", func(t *testing.T, d defs) {
		d.define(note("a"))
		require.NoError(t, d.op.Pause(t.Context(), "a"))
		of := findings(d)
		assert.Empty(t, of[operator.FindingOrphaned])
		d.rest("a", nil)
		require.NoError(t, d.op.Delete(t.Context(), "a"))
		assert.Empty(t, findings(d)[operator.FindingRetiring])
		time.Sleep(2 * time.Minute)
		require.Len(t, findings(d)[operator.FindingRetiring], 1)
	})
	runDefs(t, "lists no definitions where none was ever stored", func(t *testing.T, d defs) {
		before := d.Server.Counts("console").Reads
		findings(d)
		assert.Less(t, d.Server.Counts("console").Reads, before+20)
	})
}

// With a leader: definitions run, change, and go.
func TestDefined_InAFleet(t *testing.T) {
	start := func(d defs, work func(context.Context, claimer.Run) error) *membertest.Worker {
		w := d.NewWorker("a", work)
		w.Compiler = executor.Compile
		w.OfferKinds(record.Kind{Name: "note", Revision: 2})
		return d.JoinWorker(w)
	}
	sleep := func(t time.Duration) {
		time.Sleep(t)
		synctest.Wait()
	}
	runDefs(t, "a job that rests runs when it is triggered, at once", func(t *testing.T, d defs) {
		w := start(d, nil)
		d.define(operator.Definition{Name: "a", Kind: "note", Param: "p"})
		sleep(time.Second)
		assert.Equal(t, operator.DefinedResting, state(d, "a"))
		_, err := d.op.Trigger(t.Context(), "a", "", nil)
		require.NoError(t, err)
		sleep(time.Second)
		assert.Len(t, w.TakeRuns(), 1)
		j, err := d.op.Definition(t.Context(), "a")
		require.NoError(t, err)
		assert.Equal(t, operator.DefinedAwake, j.State)
		assert.EqualValues(t, 1, j.Counts.Succeeded)
		sleep(10 * time.Minute)
		assert.Equal(t, operator.DefinedResting, state(d, "a"))
		j, err = d.op.Definition(t.Context(), "a")
		require.NoError(t, err)
		assert.EqualValues(t, 1, j.Counts.Succeeded)
	})
	runDefs(t, "a one-off runs, finishes, and is deleted an hour later", func(t *testing.T, d defs) {
		w := start(d, nil)
		d.define(operator.Definition{Name: "a", Kind: "note", Schedule: schedule.At(time.Now().Add(5 * time.Minute))})
		sleep(6 * time.Minute)
		assert.Len(t, w.TakeRuns(), 1)
		sleep(10 * time.Minute)
		assert.Equal(t, operator.DefinedFinished, state(d, "a"))
		sleep(time.Hour)
		_, err := d.op.Definition(t.Context(), "a")
		assert.ErrorIs(t, err, operator.ErrUnknownJob)
	})
	runDefs(t, "a change applies to a job that is awake and to one that rests", func(t *testing.T, d defs) {
		w := start(d, nil)
		def := operator.Definition{Name: "a", Kind: "note", Schedule: schedule.Every(time.Minute)}
		d.define(def)
		sleep(90 * time.Second)
		assert.Equal(t, operator.DefinedAwake, state(d, "a"))
		def.Schedule = schedule.Every(20 * time.Minute)
		d.define(def)
		sleep(5 * time.Minute)
		w.TakeRuns()
		sleep(10 * time.Minute)
		assert.Empty(t, w.TakeRuns())
		require.Equal(t, operator.DefinedResting, state(d, "a"))
		def.Schedule = schedule.Every(2 * time.Minute)
		d.define(def)
		sleep(3 * time.Minute)
		assert.NotEmpty(t, w.TakeRuns())
	})
	runDefs(t, "Delete returns when no run can begin, and the job is deleted once its runs have ended", func(t *testing.T, d defs) {
		w := start(d, membertest.WorkFor(time.Hour))
		d.define(operator.Definition{Name: "a", Kind: "note", Schedule: schedule.Every(time.Minute), Policies: map[string]any{"on_misfire": "run all 100"}})
		sleep(61 * time.Second)
		require.NotEmpty(t, w.TakeRuns())
		require.NoError(t, d.op.Delete(t.Context(), "a"))
		sleep(10 * time.Minute)
		assert.Empty(t, w.TakeRuns())
		st, err := d.op.Status(t.Context(), "a")
		require.NoError(t, err)
		assert.Equal(t, "delete", st.DeletedBy.What)
		assert.Zero(t, st.NextFire)
		e, err := d.op.Explain(t.Context(), "a", 0, time.Time{})
		require.NoError(t, err)
		assert.NotEmpty(t, e.Answers)
		_, err = d.op.Cancel(t.Context(), "a")
		require.NoError(t, err)
		sleep(time.Minute)
		_, err = d.op.Definition(t.Context(), "a")
		assert.ErrorIs(t, err, operator.ErrUnknownJob)
	})
	runDefs(t, "Delete cancels the runs in progress, if that is asked for, and Define may follow at once", func(t *testing.T, d defs) {
		w := start(d, membertest.WorkFor(time.Hour))
		d.define(operator.Definition{Name: "a", Kind: "note", Schedule: schedule.Every(time.Minute)})
		sleep(61 * time.Second)
		require.NotEmpty(t, w.TakeRuns())
		require.NoError(t, d.op.Delete(t.Context(), "a", operator.CancelRuns()))
		d.define(operator.Definition{Name: "a", Kind: "note", Schedule: schedule.Every(2 * time.Minute), Param: "second"})
		sleep(3 * time.Minute)
		runs := w.TakeRuns()
		require.NotEmpty(t, runs)
		assert.Equal(t, operator.DefinedAwake, state(d, "a"))
		j, err := d.op.Definition(t.Context(), "a")
		require.NoError(t, err)
		assert.Equal(t, "second", j.Definition.Param)
		assert.EqualValues(t, len(runs), j.Counts.Claimed, "counts are those of the creation")
	})
}

// state returns the state of a defined job.
func state(d defs, job string) operator.DefinedState {
	d.t.Helper()
	j, err := d.op.Definition(d.t.Context(), job)
	require.NoError(d.t, err)
	return j.State
}
