package planning

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

func TestView_Members(t *testing.T) {
	w := NewWorld(t)
	live, expired, recordless := w.Join("a", "job"), w.Join("b", "other"), w.Join("c", "third")
	w.expire(expired)
	delete(w.View.Members, recordless)
	t.Run("a job is offered by live members only", func(t *testing.T) {
		assert.True(t, w.View.IsOffered(record.Job{Name: "job"}))
		assert.False(t, w.View.IsOffered(record.Job{Name: "other"}))
		assert.False(t, w.View.IsOffered(record.Job{Name: "third"}))
	})
	t.Run("a member has both records if it is live and its member record is known", func(t *testing.T) {
		assert.True(t, w.View.HasBothRecords(live))
		assert.False(t, w.View.HasBothRecords(expired))
		assert.False(t, w.View.HasBothRecords(recordless))
	})
	t.Run("expired members are sorted, and those that have just joined are not among them", func(t *testing.T) {
		w := NewWorld(t)
		var want []string
		for i := range 30 { // a small map is often in order
			want = append(want, w.Join(fmt.Sprintf("i%02d", i)))
			w.expire(want[len(want)-1])
		}
		joined := w.Join("j")
		w.expire(joined)
		w.View.JustJoined = map[string]bool{joined: true}
		assert.Equal(t, want, w.View.ExpiredMembers())
	})
}

func TestView_NeedsClearing(t *testing.T) {
	fire := coordtest.Runs(shardset.Of(0), coordtest.Fire(1, 1))
	for name, c := range map[string]struct {
		edit func(*record.Plan)
		want bool
	}{
		"nothing to clear":     {func(*record.Plan) {}, false},
		"pending re-runs":      {func(p *record.Plan) { p.Reruns = fire }, true},
		"triggers":             {func(p *record.Plan) { p.Triggers = []record.Trigger{{Number: 1}} }, true},
		"cancelled runs":       {func(p *record.Plan) { p.Cancels = fire }, true},
		"several epochs":       {func(p *record.Plan) { p.Epochs = append(p.Epochs, p.Epochs[0]) }, true},
		"releases":             {func(p *record.Plan) { p.Last().Released = []record.Release{{At: 1}} }, true},
		"an end of its epochs": {func(p *record.Plan) { p.Last().Until = 1 }, false},
	} {
		t.Run("of a plan with "+name, func(t *testing.T) {
			w := NewWorld(t)
			w.Join("a", "job")
			w.Define("job", 1, 1, "")
			w.Settle()
			w.editPlan("job", c.edit)
			assert.False(t, w.View.NeedsClearing(), "between slow ticks")
			w.View.SlowTick = true
			assert.Equal(t, c.want, w.View.NeedsClearing())
		})
	}
}

func TestView_InForce(t *testing.T) {
	w := NewWorld(t)
	a := w.Join("a", "job")
	w.Define("job", 1, 1, `,"strategy":"average","run_on":{"zone":"east"}`)
	t.Run("is the stored definition before there is a plan", func(t *testing.T) {
		job := w.View.InForce("job")
		assert.Equal(t, []string{"job", "average"}, []string{job.Name, job.Strategy})
	})
	w.editMember(a, func(m *record.Member) { m.Labels = map[string]string{"zone": "east"} })
	w.Settle()
	t.Run("is that of the newest epoch, until another begins", func(t *testing.T) {
		w.Define("job", 1, 2, "")
		assert.Equal(t, "average", w.View.InForce("job").Strategy)
	})
	t.Run("has the labels of the stored definition, also at the same revision", func(t *testing.T) {
		for _, revision := range []int{1, 2} {
			w.Define("job", 1, revision, `,"run_on":{"zone":"west"}`)
			assert.Equal(t, map[string]string{"zone": "west"}, w.View.InForce("job").RunOn)
		}
		w.Define("job", 1, 0, `,"run_on":{"zone":"west"}`)
		assert.Equal(t, map[string]string{"zone": "east"}, w.View.InForce("job").RunOn, "not of a lower one")
		delete(w.View.Jobs, "job")
		assert.Equal(t, map[string]string{"zone": "east"}, w.View.InForce("job").RunOn, "nor without one")
	})
	t.Run("has the labels of the plan if a definition of revision 0 is deleted", func(t *testing.T) {
		w.Define("new", 1, 0, `,"run_on":{"zone":"east"}`)
		w.editMember(a, func(m *record.Member) { m.Jobs = []string{"new"} })
		w.Settle()
		delete(w.View.Jobs, "new")
		assert.Equal(t, map[string]string{"zone": "east"}, w.View.InForce("new").RunOn)
	})
}

func TestDecide_OrdersItsChanges(t *testing.T) {
	w := NewWorld(t)
	jobs := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	w.Join("a", jobs...)
	for _, job := range jobs {
		w.Define(job, 1, 0, "")
	}
	var got []string
	for _, c := range w.decide().Changes {
		got = append(got, c.Segment)
	}
	assert.Equal(t, jobs, got)
}

func TestDecide_CompilesADefinitionOnce(t *testing.T) {
	w, _, _ := newChain(t)
	w.View.Now = coordtest.At(3)
	w.runFire(1)
	w.Settle()
	w.runFire(2)
	w.runFire(3)
	compile, calls := w.View.Compile, map[string]int{}
	w.View.Compile = func(def json.RawMessage) (due.Program, error) {
		calls[string(def)]++
		return compile(def)
	}
	w.decideOnce()
	for def, n := range calls {
		assert.Equal(t, 1, n, def)
	}
	assert.NotEmpty(t, calls)
}

func TestPlan_Problems(t *testing.T) {
	setUp := func(t *testing.T) (w *world, a string) {
		w = NewWorld(t)
		a = w.Join("a", "job", "other")
		w.Define("job", 2, 1, "")
		w.Settle()
		return w, a
	}
	problemOf := func(w *world) string { w.Settle(); return w.Plan("job").Problem }
	t.Run("a job is unsupported while live members offer it only under definitions that they support", func(t *testing.T) {
		w, a := setUp(t)
		w.editMember(a, func(m *record.Member) { m.Jobs, m.Unsupported = nil, []string{"job"} })
		require.Equal(t, UnsupportedProblem, problemOf(w))
		assert.Zero(t, w.Plan("job").Unoffered)
		w.Join("b", "other")
		w.expire(a)
		assert.Equal(t, UnofferedProblem, problemOf(w), "the member has expired")
	})
	t.Run("a job is not unoffered while a member that would offer it is awaited", func(t *testing.T) {
		w, a := setUp(t)
		w.Define("other", 1, 1, "")
		w.editMember(a, func(m *record.Member) { m.Jobs, m.Unsupported = []string{"other"}, []string{"job"} })
		w.Settle()
		w.expire(a)
		w.setAbsent(a, time.Second)
		assert.Empty(t, problemOf(w))
	})
	t.Run("a job without shards that are owned has one problem", func(t *testing.T) {
		w, a := setUp(t)
		w.editMember(a, func(m *record.Member) { m.Unsupported = []string{"job"} })
		assert.Empty(t, problemOf(w), "it has an owner")
		w.View.GroupExclusion = record.Exclusion{Instances: []string{"a"}}
		assert.Equal(t, allDisabled, problemOf(w))
	})
	t.Run("a record that cannot be read is named", func(t *testing.T) {
		w, _ := setUp(t)
		w.View.UnreadableInputs = map[string]registry.Key{"job": w.View.Keys.Control("job")}
		assert.Equal(t, string(w.View.Keys.Control("job"))+" cannot be read", problemOf(w))
	})
	t.Run("several problems are joined, each once", func(t *testing.T) {
		w, _ := setUp(t)
		w.View.UnreadableInputs = map[string]registry.Key{"job": w.View.Keys.Control("job")}
		w.View.GroupExclusion = record.Exclusion{Instances: []string{"a"}}
		assert.Equal(t, allDisabled+"; "+string(w.View.Keys.Control("job"))+" cannot be read", problemOf(w))

		w, a := setUp(t)
		w.View.Now = coordtest.At(1)
		w.Define("job", 2, 2, "")
		w.round()
		w.expire(a)
		w.readClaims(a)
		w.View.Reads[a].Unreadable["job"] = true
		d := w.decideOnce()
		require.Len(t, d.Changes, 1)
		assert.Equal(t, UnofferedProblem+"; "+string(w.View.Keys.Claims(a, "job"))+" cannot be read", d.Changes[0].Plan.Problem)
	})
	t.Run("a job without a plan has no problem of skewed clocks", func(t *testing.T) {
		w, a := setUp(t)
		w.editMember(a, func(m *record.Member) { m.Ahead = map[string]record.Ahead{"other": {Epoch: 1, At: coordtest.At(9)}} })
		w.Define("other", 1, 1, "")
		w.Settle()
		w.editMember(a, func(m *record.Member) { m.Ahead = nil })
		assert.Empty(t, problemOf(w))
	})
	t.Run("of equal reports of skewed clocks the first instance is named", func(t *testing.T) {
		w, a := setUp(t)
		incarnations := []string{a}
		for _, name := range []string{"b", "c", "d", "e", "f", "g"} {
			incarnations = append(incarnations, w.Join(name, "job"))
		}
		for _, inc := range incarnations {
			w.editMember(inc, func(m *record.Member) { m.Ahead = map[string]record.Ahead{"job": {Epoch: 1, At: coordtest.At(9)}} })
		}
		assert.Contains(t, problemOf(w), `shards of instance "a" wait`)
		for range 5 {
			assert.Empty(t, w.decide().Changes)
		}
	})
}

func TestFindTargets(t *testing.T) {
	w := NewWorld(t)
	a := w.Join("a", "job")
	w.Define("job", 2, 0, `,"strategy":"unknown"`)
	w.Define("other", 2, 0, "")
	t.Run("returns the target of each job with its problem", func(t *testing.T) {
		targets := FindTargets(w.View)
		require.Len(t, targets, 2)
		assert.Equal(t, "job", targets[0].Segment)
		assert.Equal(t, "0-1", targets[0].Owners[a].String())
		assert.Contains(t, targets[0].Problem, `strategy "unknown" fails`)
		assert.Equal(t, Target{Segment: "other", Owners: targets[1].Owners, Problem: UnofferedProblem}, targets[1])
		assert.Empty(t, targets[1].Owners)
	})
}

func TestJobProgress_AddClaims(t *testing.T) {
	owned, one := shardset.Range(0, 2), coordtest.Fire(1, 1)
	var g JobProgress
	claims := record.Claims{
		Watermarks: record.Watermarks{}.Raise(shardset.Range(0, 3), one.Watermark()),
		Running:    coordtest.Runs(shardset.Of(0), one),
		Reruns:     coordtest.Runs(shardset.Range(1, 3), one.Return()),
	}
	g.AddClaims(owned, claims)
	t.Run("adds what the owner has claimed of its shards", func(t *testing.T) {
		assert.Equal(t, one.Watermark(), g.Watermarks.Of(1))
		assert.Zero(t, g.Watermarks.Of(2))
		assert.Equal(t, coordtest.Runs(shardset.Of(0), one), g.Running)
		assert.Equal(t, coordtest.Runs(shardset.Of(1), one.Return()), g.HandedBack)
	})
}
