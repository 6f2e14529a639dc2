package planning

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/event"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

func TestPlan_FailoverOfRuns(t *testing.T) {
	fire := coordtest.Fire(1, 1)
	// setUp returns a world in which a owned both shards of a job and ran shard 1 until its session expired.
	setUp := func(t *testing.T, more string) (w *world, a string) {
		w = NewWorld(t)
		a = w.Join("a", "job")
		w.Define("job", 2, 1, more)
		w.Settle()
		w.startRuns(a, "job", shardset.Of(1), fire)
		w.expire(a)
		w.Join("b", "job")
		return w, a
	}
	for _, c := range []struct {
		name, more string
		edit       func(p *record.Plan)
		lost       []bool // with a re-run
		why        string
	}{
		{"that runs again is reported", "", nil, []bool{true}, "fail over 0-1 of a"},
		{"that does not run again is reported and counted as lost", `,"on_crash":"count as failed"`, nil, []bool{false}, "count 1 as lost"},
		{"of a daemon runs again whatever its attempts are", `,"schedule":"always","max_attempts":1`, nil, []bool{true}, "fail over 0-1 of a"},
		{"of a daemon is counted as lost if its definition wants that", `,"schedule":"always","on_crash":"count as failed"`, nil, []bool{false}, "count 1 as lost"},
		{"of another job without attempts left is reported and counted as lost", `,"max_attempts":1`, nil, []bool{false}, "count 1 as lost"},
		{"of an epoch that the plan does not have is reported and counted as lost", "", func(p *record.Plan) { p.Epochs[0].Number = 7 }, []bool{false}, "count 1 as lost"},
		{"that an operator cancelled is reported as ended for good", "", func(p *record.Plan) { p.Cancels = coordtest.Runs(shardset.Of(1), fire) }, []bool{false}, "count 1 as lost"},
		{"of a job that tracks claims is counted as unknown", coordtest.ClaimsOnly, nil, nil, "count 1 as unknown"},
	} {
		t.Run("a run "+c.name, func(t *testing.T) {
			w, _ := setUp(t, c.more)
			if c.edit != nil {
				w.editPlan("job", func(p *record.Plan) { c.edit(p) })
			}
			d := w.decide()
			require.Len(t, d.Changes, 1)
			var want []event.Crashed
			for _, rerun := range c.lost {
				want = append(want, event.Crashed{Job: "job", Instance: "a", Runs: record.RunGroup{Shards: shardset.Of(1), Ref: fire}, Rerun: rerun})
			}
			assert.Equal(t, want, d.Changes[0].Crashed)
			assert.Contains(t, d.Changes[0].Why, c.why)
		})
	}
	t.Run("of shards that the plan gives to others are not counted", func(t *testing.T) {
		w, _ := setUp(t, `,"on_crash":"count as failed"`)
		w.editPlan("job", func(p *record.Plan) { p.Owners = map[string]shardset.Set{"a.a": shardset.Of(0)} })
		d := w.decide()
		require.Len(t, d.Changes, 1)
		assert.Empty(t, d.Changes[0].Crashed)
		assert.Empty(t, d.Changes[0].Plan.Failures)
	})
	t.Run("waits until the claims of the expired owner are read", func(t *testing.T) {
		w, a := setUp(t, "")
		d := w.decideOnce()
		assert.Equal(t, []string{a}, d.Reads)
		assert.Empty(t, d.Changes)
		assert.Empty(t, d.Reapings)
	})
	t.Run("leaves the shards with an owner whose record cannot be read", func(t *testing.T) {
		w, a := setUp(t, "")
		w.readClaims(a)
		w.View.Reads[a].Unreadable["job"] = true
		d := w.decideOnce()
		require.Len(t, d.Changes, 1)
		assert.Equal(t, map[string]shardset.Set{a: shardset.Range(0, 2)}, d.Changes[0].Plan.Owners)
	})
	t.Run("of frozen shards leaves none frozen", func(t *testing.T) {
		w, _ := setUp(t, "")
		w.editPlan("job", func(p *record.Plan) { p.Frozen = shardset.Of(1) })
		w.Settle()
		assert.True(t, w.Plan("job").Frozen.IsZero())
	})
	t.Run("keeps the last end and the failures of runs", func(t *testing.T) {
		w, a := setUp(t, "")
		failure := record.Failure{RunGroup: record.RunGroup{Shards: shardset.Of(0), Ref: coordtest.Fire(0, 1)}, At: coordtest.At(0), Error: "no"}
		w.claim(a, "job", func(c *record.Claims) { c.Ended, c.Failures = coordtest.At(0), record.Failures{failure} })
		w.Settle()
		assert.Equal(t, coordtest.At(0), w.Plan("job").Ended)
		assert.Equal(t, record.Failures{failure}, w.Plan("job").Failures)
	})
	for _, c := range []struct {
		name string
		r    record.Ref
		want string
	}{
		{"handed back", fire.Return(), "re-run 0, handed back"},
		{"to be retried", fire.RetryAt(coordtest.At(2), time.Minute), "retry 0"},
	} {
		t.Run("names runs "+c.name, func(t *testing.T) {
			w, a := setUp(t, "")
			w.claim(a, "job", func(cl *record.Claims) { cl.Reruns = coordtest.Runs(shardset.Of(0), c.r) })
			d := w.decide()
			require.Len(t, d.Changes, 1)
			assert.Contains(t, d.Changes[0].Why, c.want)
		})
	}
}

func TestPlan_CountsOfExpiredMembers(t *testing.T) {
	// setUp returns a world in which a owned shards of "other" and has claims of "job", of which it owns nothing.
	setUp := func(t *testing.T) (w *world, a string) {
		w = NewWorld(t)
		a = w.Join("a", "other")
		w.Join("b", "job")
		w.Define("job", 1, 0, "")
		w.Define("other", 1, 0, "")
		w.Settle()
		w.claim(a, "job", func(c *record.Claims) { c.Counts.Claimed = 7 })
		w.expire(a)
		return w, a
	}
	t.Run("are read and added while the shards of other jobs wait for its return", func(t *testing.T) {
		w, a := setUp(t)
		w.setAbsent(a, time.Second)
		require.Equal(t, []string{a}, w.decideOnce().Reads)
		w.Settle()
		assert.EqualValues(t, 7, w.Plan("job").Counts.Claimed)
		assert.Equal(t, map[string]string{a: "0"}, w.owners("other"))
	})
	t.Run("are added by a change that names the instance", func(t *testing.T) {
		w, _ := setUp(t)
		change := w.decide().changeOf("job")
		require.NotNil(t, change)
		assert.Equal(t, []string{"add the counts of a"}, change.Upkeep)
	})
}

func TestDecide_ReapsExpiredMembers(t *testing.T) {
	setUp := func(t *testing.T) (w *world, a string) {
		w = NewWorld(t)
		a = w.Join("a", "job")
		w.claim(a, "gone", func(*record.Claims) {})
		w.expire(a)
		return w, a
	}
	t.Run("after their claims were read, also in a group without jobs", func(t *testing.T) {
		w, a := setUp(t)
		d := w.decideOnce()
		require.Equal(t, []string{a}, d.Reads)
		require.Empty(t, d.Reapings)
		d = w.decide()
		require.Len(t, d.Reapings, 1)
		assert.Equal(t, a, d.Reapings[0].Incarnation)
		assert.Len(t, d.Reapings[0].Parts, 2)
	})
	t.Run("not while a record of theirs cannot be read", func(t *testing.T) {
		w, a := setUp(t)
		w.readClaims(a)
		w.View.Reads[a].Unreadable["gone"] = true
		assert.Empty(t, w.decideOnce().Reapings)
	})
}

func TestPlan_FailoversNoteWhenTheirShardsAreDue(t *testing.T) {
	w := NewWorld(t)
	jobs := []string{"behind", "crashed", "ontime", "paused"}
	a := w.Join("a", jobs...)
	for _, job := range jobs {
		w.Define(job, 1, 1, "")
	}
	w.Settle()
	claimed := map[string]int{"behind": 2, "crashed": 3, "ontime": 5, "paused": 1}
	for job, minute := range claimed {
		w.startRuns(a, job, shardset.Of(0), coordtest.Fire(minute, 1))
		if job != "crashed" {
			w.claim(a, job, func(c *record.Claims) { c.Running = nil })
		}
	}
	w.editPlan("paused", func(p *record.Plan) { p.Paused = true })
	w.editControl("paused", func(c *record.Control) { c.Paused = true })
	w.View.Now = coordtest.At(5) + 1
	w.expire(a)
	w.Join("b", jobs...)
	got := map[string]record.Instant{}
	for _, c := range w.decide().Changes {
		got[c.Segment] = c.Due
	}
	assert.Equal(t, coordtest.At(3), got["behind"], "the fire after the claimed one")
	assert.Equal(t, coordtest.At(3), got["crashed"], "the run that is made again")
	assert.Equal(t, coordtest.At(6), got["ontime"], "the next one")
	assert.Zero(t, got["paused"])
}
