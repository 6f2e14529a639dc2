package diagnosis

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/record"
)

func TestDiagnose_OfARetiringJob(t *testing.T) {
	for name, c := range map[string]struct {
		change   func(*world)
		what, do string
	}{
		"that an instance offers": {func(*world) {}, "the job is retiring, by kim: registered by a", "deploy without the job; to keep it: rota unretire job"},
		"that an instance would offer": {func(w *world) {
			w.member.Jobs, w.member.Unsupported, w.plan.Owners, w.plan.Problem = nil, []string{"job"}, nil, "finish the upgrade"
		}, "the job is retiring, by kim: registered by a", ""},
		"with a run in progress": {func(w *world) { w.member.Jobs = nil }, "the job is retiring, by kim: shards are owned by a until their runs have ended, or a restart grace", "the leader deletes the job then; to end the runs: rota cancel job"},
		"without an owner": {func(w *world) {
			w.member.Jobs, w.plan.Owners, w.plan.Problem = nil, nil, "no live instance offers the job"
		}, "the job is retiring, by kim: it is to be deleted", "the leader deletes it; if it stays so, look at its log"},
		"without records": {func(w *world) { w.member.Jobs, w.plan, w.job = nil, nil, "" }, "the job is retiring, by kim: it is to be deleted", "the leader deletes it; if it stays so, look at its log"},
	} {
		t.Run(name+" is information only", func(t *testing.T) {
			w := newWorld(t)
			w.control = &record.Control{Job: "job", Retiring: &record.Act{By: "kim", What: "retire"}}
			c.change(w)
			r := w.records()
			r.Compile = func(json.RawMessage) (due.Program, error) { return coordtest.Minutely{}, nil }
			r.Now = coordtest.At(200)
			var findings []Finding
			for _, f := range Diagnose(r) {
				if f.Severity == Error || f.Kind == Retiring {
					findings = append(findings, f)
				}
			}
			require.Len(t, findings, 1)
			assert.Equal(t, Finding{Info, Retiring, "job", w.keys.Control("job"), c.what, findings[0].Do}, findings[0])
			assert.Contains(t, findings[0].Do, c.do)
		})
	}
	t.Run("without a leader names that", func(t *testing.T) {
		w := newWorld(t)
		w.control = &record.Control{Job: "job", Retiring: &record.Act{What: "retire"}}
		w.seat, w.member.Jobs, w.plan.Owners = nil, nil, nil
		f := Diagnose(w.records())
		require.NotEmpty(t, f)
		assert.Equal(t, "the job is retiring: it is to be deleted", f[len(f)-1].What)
		assert.Equal(t, "start an instance: the leader that is elected deletes it; if it stays so, look at its log", f[len(f)-1].Do)
	})
}

func TestDiagnose_OfAnUnofferedJobNamesItsRemoval(t *testing.T) {
	remedy := "start a process that registers the job; if it was removed or renamed on purpose: rota retire job"
	for name, change := range map[string]func(*world){
		"with shards":          func(w *world) { w.plan.Owners, w.member.Jobs = nil, nil },
		"without a plan":       func(w *world) { w.plan, w.member.Jobs = nil, nil },
		"with its intent only": func(w *world) { w.plan, w.job, w.member.Jobs = nil, "", nil },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.control = &record.Control{Job: "job", Paused: true}
			change(w)
			f := Diagnose(w.records())
			require.NotEmpty(t, f)
			assert.Equal(t, "job", f[0].Job)
			assert.Equal(t, remedy, f[0].Do)
		})
	}
}
