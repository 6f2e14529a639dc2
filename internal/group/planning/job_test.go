package planning

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// isSettled reports whether a leader finds without a copy of a job's plan that the plan needs no change.
func (w *world) isSettled(job string) bool {
	w.t.Helper()
	v, _ := w.View.withOverrides()
	r := newRound(v)
	segments := v.segments()
	target := newAssigner(r).assignJobs(segments)[slices.Index(segments, job)]
	p := jobPlanner{round: r, segment: job, target: r.explainTarget(job, target), prev: r.Plans[job]}
	return p.isSettled()
}

func TestPlan_IsNotCopiedWhileItNeedsNoChange(t *testing.T) {
	control := func(f func(*record.Control)) func(*world, string) {
		return func(w *world, _ string) { w.editControl("job", f) }
	}
	for name, prepare := range map[string]func(w *world, a string){
		"in force":                           func(*world, string) {},
		"of a paused job":                    control(func(c *record.Control) { c.Paused = true }),
		"of a job whose schedule is stopped": control(func(c *record.Control) { c.Stopped = true }),
		"with disabled shards":               control(func(c *record.Control) { c.Disabled = shardset.Of(1) }),
		"with a control record":              control(func(*record.Control) {}),
		"of a paused group": func(w *world, _ string) {
			w.View.Group = GroupRecord{Rev: w.nextRev(), GroupControl: &record.GroupControl{Paused: true}}
		},
		"whose definition was deleted":               func(w *world, _ string) { delete(w.View.Jobs, "job") },
		"whose stored definition is of an older one": func(w *world, _ string) { w.Define("job", 3, 0, "") },
		"on a slow tick, with nothing to clear":      func(w *world, _ string) { w.View.SlowTick = true },
		"with pending re-runs between slow ticks": func(w *world, _ string) {
			w.editPlan("job", func(p *record.Plan) { p.Reruns = coordtest.Runs(shardset.Of(0), coordtest.Fire(1, 2)) })
		},
		"of a job that is not offered": func(w *world, a string) { w.editMember(a, func(m *record.Member) { m.Jobs = nil }) },
		"with an awaited owner": func(w *world, a string) {
			w.expire(a)
			w.setAbsent(a, time.Second)
			w.Settle()
			w.readClaims(a)
		},
		"beside an expired member that has no claims of the job": func(w *world, _ string) {
			b := w.Join("b", "other")
			w.expire(b)
			w.readClaims(b)
		},
		"beside an awaited member that owns nothing of the job": func(w *world, _ string) {
			b := w.Join("b", "other")
			w.Settle()
			w.expire(b)
			w.editMember(b, func(m *record.Member) { m.Jobs = []string{"job", "other"} })
			w.setAbsent(b, time.Second)
			w.readClaims(b)
		},
	} {
		t.Run("a plan "+name, func(t *testing.T) {
			w := NewWorld(t)
			a := w.Join("a", "job")
			w.Define("job", 2, 1, "")
			w.Define("other", 1, 1, "")
			w.Settle()
			prepare(w, a)
			if len(w.View.Reads) == 0 {
				w.Settle()
			}
			require.Empty(t, w.decideOnce().Changes)
			assert.True(t, w.isSettled("job"))
		})
	}
	for _, job := range []string{"parent", "child"} {
		t.Run("a plan in a chain of jobs, of the "+job, func(t *testing.T) {
			w, _, _ := newChain(t)
			w.View.Now = coordtest.At(1)
			w.runFire(1)
			w.Settle()
			require.Len(t, w.ended("parent"), 1)
			assert.True(t, w.isSettled(job))
		})
	}
}

func TestPlan_ChangesOnlyWhatIsRequested(t *testing.T) {
	t.Run("a change for a control record without requests leaves the record alone", func(t *testing.T) {
		w := NewWorld(t)
		w.Join("a", "job")
		w.Define("job", 2, 1, "")
		w.Settle()
		w.editControl("job", func(c *record.Control) { c.Disabled = shardset.Of(1) })
		d := w.decide()
		require.Len(t, d.Changes, 1)
		assert.Empty(t, d.Changes[0].ops)
	})
	t.Run("a control record without requests asks for no reads", func(t *testing.T) {
		w := NewWorld(t)
		w.Join("a", "job")
		w.Define("job", 2, 1, "")
		w.Settle()
		w.editPlan("job", func(p *record.Plan) { p.Reruns = coordtest.Runs(shardset.Of(0), coordtest.Fire(1, 2)) })
		w.editControl("job", func(c *record.Control) { c.Disabled = shardset.Of(1) })
		d := w.decideOnce()
		require.Len(t, d.Changes, 1)
		assert.Empty(t, d.Reads)
	})
	t.Run("a slow tick asks for no reads of a job with nothing to clear", func(t *testing.T) {
		w := NewWorld(t)
		w.Join("a", "job")
		w.Define("job", 2, 1, "")
		w.Settle()
		w.View.SlowTick = true
		w.editControl("job", func(c *record.Control) { c.Disabled = shardset.Of(1) })
		d := w.decideOnce()
		require.Len(t, d.Changes, 1)
		assert.Empty(t, d.Reads)
	})
}
