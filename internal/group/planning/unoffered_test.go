package planning

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/claiming"
	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/group/event"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

func TestPlan_Unoffered(t *testing.T) {
	// setUp returns a world in which a owned a job's two shards, and no longer offers it: shard 0 has
	// claimed minute 1, and shard 1 nothing.
	setUp := func(t *testing.T, more string) (w *world, a string) {
		w = NewWorld(t)
		a = w.Join("a", "job", "other")
		w.Define("job", 2, 0, more)
		w.Settle()
		w.claim(a, "job", func(c *record.Claims) {
			c.Watermarks = c.Watermarks.Raise(shardset.Of(0), coordtest.Fire(1, 1).Watermark())
		})
		w.View.Now = coordtest.At(2)
		w.editMember(a, func(m *record.Member) { m.Jobs = []string{"other"} })
		w.Settle()
		return w, a
	}
	offer := func(w *world, inc string) {
		w.editMember(inc, func(m *record.Member) { m.Jobs = []string{"job", "other"} })
		w.Settle()
	}
	t.Run("the plan names the problem and the instant, and is written once", func(t *testing.T) {
		w, _ := setUp(t, "")
		p := w.Plan("job")
		assert.Equal(t, UnofferedProblem, p.Problem)
		assert.Equal(t, coordtest.At(2), p.Unoffered)
		assert.Empty(t, p.Owners)
		w.View.Now = coordtest.At(100)
		assert.Empty(t, w.round().Changes)
	})
	t.Run("within the hour nothing is skipped", func(t *testing.T) {
		w, a := setUp(t, "")
		w.View.Now = coordtest.At(62) - 1
		offer(w, a)
		p := w.Plan("job")
		assert.Empty(t, p.Problem)
		assert.Zero(t, p.Unoffered)
		assert.Len(t, p.Epochs, 1)
		assert.Zero(t, p.Last().Until)
		assert.Equal(t, map[string]string{a: "0-1"}, w.owners("job"))
	})
	t.Run("after it no fire is due, and the fires since count as skipped", func(t *testing.T) {
		w, a := setUp(t, "")
		w.View.Now = coordtest.At(62)
		offer(w, a)
		p := w.Plan("job")
		assert.Empty(t, p.Problem)
		assert.Zero(t, p.Unoffered)
		require.Equal(t, 2, p.Last().Number)
		assert.Equal(t, coordtest.At(62).Add(w.View.Skew), p.Last().From)
		assert.EqualValues(t, 60+61, p.Counts.Skipped)
		assert.Equal(t, map[string]string{a: "0-1"}, w.owners("job"))
		in := claiming.Input{Me: a, Plan: p, Programs: map[int]due.Program{1: coordtest.Minutely{}, 2: coordtest.Minutely{}}, Now: coordtest.At(62).Add(10 * time.Second), MayClaim: true}
		out := in.Decide()
		assert.Empty(t, out.Starts)
		assert.Zero(t, out.Claims.Counts.Skipped)
		assert.Equal(t, coordtest.At(63), out.Wake)
	})
	t.Run("earlier epochs are cleared", func(t *testing.T) {
		w, a := setUp(t, "")
		w.View.Now = coordtest.At(62)
		offer(w, a)
		w.View.SlowTick = true
		w.Settle()
		assert.Len(t, w.Plan("job").Epochs, 1)
	})
	t.Run("pending re-runs count as lost, and triggers stay", func(t *testing.T) {
		w := NewWorld(t)
		a := w.Join("a", "job")
		w.Define("job", 2, 0, "")
		w.Settle()
		w.startRuns(a, "job", shardset.Of(0), coordtest.Fire(0, 1))
		w.startRuns(a, "job", shardset.Of(1), record.Ref{Epoch: 1, Fire: coordtest.At(0), Trigger: 1, Attempt: 1})
		w.View.Plans["job"].Triggers = []record.Trigger{{Number: 1, Epoch: 1, At: coordtest.At(0)}, {Number: 2, Epoch: 1, At: coordtest.At(0)}}
		b := w.Join("b", "other")
		w.expire(a)
		w.Settle()
		require.Equal(t, "0-1", w.Plan("job").Reruns.Shards().String())
		require.NotZero(t, w.Plan("job").Unoffered)
		w.View.Now = w.Plan("job").Unoffered.Add(time.Hour)
		offer(w, b)
		p := w.Plan("job")
		assert.Empty(t, p.Reruns)
		assert.EqualValues(t, 2, p.Counts.Lost)
		assert.Len(t, p.Failures, 2)
		require.Len(t, p.Triggers, 2)
		in := claiming.Input{Me: b, Plan: p, Programs: map[int]due.Program{1: coordtest.Minutely{}, 2: coordtest.Minutely{}}, Now: w.View.Now, MayClaim: true}
		starts := in.Decide().Starts
		for shard, number := range []uint64{1, 2} {
			r, _ := starts.Of(shard)
			assert.Equal(t, record.Ref{Epoch: 1, Fire: coordtest.At(0), Trigger: number, Attempt: 1}, r)
		}
	})
	t.Run("skipped fires are not counted if the leader does not support the definition", func(t *testing.T) {
		w, a := setUp(t, "")
		w.View.Now = coordtest.At(62)
		w.View.Compile = func(json.RawMessage) (due.Program, error) { return nil, errors.New("not supported") }
		w.editMember(a, func(m *record.Member) { m.Jobs = []string{"job", "other"} })
		d := w.round()
		require.Len(t, d.Changes, 1)
		assert.Contains(t, d.Changes[0].Why, "drop what may be due in epoch 1: the leader does not support its definition")
		assert.Zero(t, w.Plan("job").Counts.Skipped)
	})
	t.Run("a paused job stays paused, and has no fire due when it resumes", func(t *testing.T) {
		w, a := setUp(t, "")
		w.editControl("job", func(c *record.Control) { c.Paused = true })
		w.Settle()
		w.View.Now = coordtest.At(62)
		offer(w, a)
		p := w.Plan("job")
		require.True(t, p.Paused)
		require.Len(t, p.Epochs, 1)
		assert.EqualValues(t, 0+1, p.Counts.Skipped, "minute 1 of shard 1; the pause began at minute 2")
		w.editControl("job", func(c *record.Control) { c.Paused = false })
		w.Settle()
		assert.Equal(t, coordtest.At(62).Add(w.View.Skew), w.Plan("job").Last().From)
	})
	t.Run("a stopped schedule stays stopped", func(t *testing.T) {
		w, a := setUp(t, "")
		w.editControl("job", func(c *record.Control) { c.Stopped = true })
		w.Settle()
		w.View.Now = coordtest.At(62)
		offer(w, a)
		p := w.Plan("job")
		require.True(t, p.Stopped)
		require.Len(t, p.Epochs, 1)
		assert.NotZero(t, p.Last().Until, "no fire is due before the resume")
		w.editControl("job", func(c *record.Control) { c.Stopped = false })
		w.Settle()
		assert.Equal(t, coordtest.At(62).Add(w.View.Skew), w.Plan("job").Last().From)
	})
	t.Run("the newest definition begins", func(t *testing.T) {
		w, a := setUp(t, "")
		w.View.Now = coordtest.At(62)
		w.Define("job", 3, 1, "")
		offer(w, a)
		assert.Equal(t, 3, w.Plan("job").Last().Job().Shards)
		assert.Equal(t, 2, w.Plan("job").Last().Number)
	})
	t.Run("the hour begins when the last shard has lost its owner", func(t *testing.T) {
		w := NewWorld(t)
		a := w.Join("a", "job")
		w.Define("job", 2, 0, "")
		w.Settle()
		w.startRuns(a, "job", shardset.Of(0), coordtest.Fire(0, 1))
		w.editMember(a, func(m *record.Member) { m.Jobs = nil })
		w.Settle()
		assert.Equal(t, UnofferedProblem, w.Plan("job").Problem)
		assert.Zero(t, w.Plan("job").Unoffered)
		w.View.Now = coordtest.At(90)
		w.claim(a, "job", func(c *record.Claims) { c.Running = nil })
		w.Settle()
		assert.Equal(t, coordtest.At(90), w.Plan("job").Unoffered)
	})
	for name, change := range map[string]func(w *world){
		"is disabled": func(w *world) {
			w.editControl("job", func(c *record.Control) { c.Instances = []string{"a"} })
		},
		"does not support it": func(w *world) {
			w.editMember("a.a", func(m *record.Member) { m.Jobs, m.Unsupported = nil, []string{"job"} })
		},
		"drains": func(w *world) { w.editMember("a.a", func(m *record.Member) { m.Draining = true }) },
		"is skewed": func(w *world) {
			w.View.Skewed = map[string]record.Duration{"a.a": record.Duration(time.Hour)}
		},
		"has expired, and is awaited": func(w *world) {
			w.editMember("a.a", func(m *record.Member) { m.RestartGrace = record.Duration(time.Hour) })
			w.expire("a.a")
			w.View.Absences = map[string]time.Duration{"a.a": time.Second}
		},
	} {
		t.Run("a job counts as offered if its instance "+name, func(t *testing.T) {
			w := NewWorld(t)
			w.Join("a", "job")
			w.Define("job", 2, 0, "")
			w.Settle()
			change(w)
			w.Settle()
			assert.Zero(t, w.Plan("job").Unoffered)
			assert.NotEqual(t, UnofferedProblem, w.Plan("job").Problem)
		})
	}
}

func TestPlan_OfferedAgain(t *testing.T) {
	// setUp returns a world with a job that was offered until minute 2, and again after minutes; edit changes its plan before.
	setUp := func(t *testing.T, minutes int, edit func(*record.Plan)) (*world, *Change) {
		w := NewWorld(t)
		a := w.Join("a", "job", "other")
		w.Define("job", 2, 0, "")
		w.Settle()
		w.View.Now = coordtest.At(2)
		w.editMember(a, func(m *record.Member) { m.Jobs = []string{"other"} })
		d := w.round()
		require.Contains(t, d.Changes[len(d.Changes)-1].Why, "freeze 0-1")
		d = w.round()
		require.Contains(t, d.changeOf("job").Why, "offered by no live instance")
		w.Settle()
		w.editPlan("job", edit)
		w.View.Now = coordtest.At(2 + minutes)
		w.editMember(a, func(m *record.Member) { m.Jobs = []string{"job", "other"} })
		change := w.decide().changeOf("job")
		require.NotNil(t, change)
		return w, change
	}
	t.Run("the hour begins anew if another writer deleted its beginning from the plan", func(t *testing.T) {
		w := NewWorld(t)
		a := w.Join("a", "job")
		w.Define("job", 2, 0, "")
		w.Settle()
		w.editMember(a, func(m *record.Member) { m.Jobs = nil })
		w.Settle()
		w.editPlan("job", func(p *record.Plan) { p.Unoffered = 0 })
		w.View.Now = coordtest.At(10)
		w.Settle()
		assert.Equal(t, coordtest.At(10), w.Plan("job").Unoffered)
	})
	t.Run("within the hour is a reason of its own", func(t *testing.T) {
		_, change := setUp(t, 59, func(*record.Plan) {})
		assert.Contains(t, change.Why, "offered again")
		assert.Empty(t, change.Skipped)
	})
	t.Run("after the hour is a reason with the time, and skipped fires are reported", func(t *testing.T) {
		w, change := setUp(t, 60, func(p *record.Plan) {
			p.Watermarks = p.Watermarks.Raise(shardset.Of(0), coordtest.Fire(61, 1).Watermark())
		})
		assert.Contains(t, change.Why, "offered again after 1h0m0s: skip what was due")
		assert.Equal(t, []event.Skipped{
			{Job: "job", Reason: event.Unoffered, Shards: shardset.Of(1), Fires: 61, From: coordtest.At(1), Through: coordtest.At(61)},
		}, change.Skipped)
		assert.EqualValues(t, 61, change.Plan.Counts.Skipped)
		assert.Equal(t, coordtest.At(62).Add(w.View.Skew), change.Plan.Last().From)
	})
	t.Run("after the hour counts the skipped fires of each shard", func(t *testing.T) {
		_, change := setUp(t, 60, func(*record.Plan) {})
		assert.EqualValues(t, 2*61, change.Plan.Counts.Skipped)
	})
	t.Run("after the hour begins after a fire that a fast clock claimed", func(t *testing.T) {
		_, change := setUp(t, 60, func(p *record.Plan) {
			p.Watermarks = p.Watermarks.Raise(shardset.Of(0), coordtest.Fire(70, 1).Watermark())
		})
		assert.Equal(t, coordtest.At(70)+1, change.Plan.Last().From)
	})
	t.Run("counts retries as failed, and re-runs as lost with the attempt that crashed", func(t *testing.T) {
		retry, rerun := coordtest.Fire(1, 1).RetryAt(coordtest.At(2), time.Minute), coordtest.Fire(1, 3)
		_, change := setUp(t, 60, func(p *record.Plan) {
			p.Reruns = coordtest.Runs(shardset.Of(0), retry).With(shardset.Of(1), rerun)
		})
		p := change.Plan
		assert.EqualValues(t, 1, p.Counts.Failed)
		assert.EqualValues(t, 1, p.Counts.Lost)
		require.Len(t, p.Failures, 2)
		assert.Equal(t, record.RunGroup{Shards: shardset.Of(0), Ref: coordtest.Fire(1, 1)}, p.Failures[0].RunGroup)
		assert.Equal(t, due.UnofferedRetryError, p.Failures[0].Error)
		assert.Equal(t, record.RunGroup{Shards: shardset.Of(1), Ref: coordtest.Fire(1, 2)}, p.Failures[1].RunGroup)
		assert.Equal(t, due.CrashedRunError, p.Failures[1].Error)
		assert.Contains(t, change.Why, "count 0 as failed")
		assert.Contains(t, change.Why, "count 1 as lost")
		assert.Empty(t, p.Reruns)
	})
	t.Run("claims the re-run of a trigger that it counts as lost", func(t *testing.T) {
		_, change := setUp(t, 60, func(p *record.Plan) {
			p.Reruns = coordtest.Runs(shardset.Of(1), record.Ref{Epoch: 1, Fire: coordtest.At(1), Trigger: 3, Attempt: 2})
		})
		assert.EqualValues(t, 3, change.Plan.Watermarks.Of(1).Trigger)
		assert.Equal(t, 2, change.Plan.Watermarks.Of(1).TriggerAttempt)
	})
	t.Run("fails the fires of lost re-runs for jobs that follow", func(t *testing.T) {
		w, _, _ := newChain(t)
		w.View.Now = coordtest.At(1)
		w.editPlan("parent", func(p *record.Plan) {
			p.Owners, p.Unoffered = map[string]shardset.Set{}, coordtest.At(1)
			p.Reruns = coordtest.Runs(shardset.Of(1), coordtest.Fire(1, 2))
		})
		w.View.Now = coordtest.At(61)
		change := w.decide().changeOf("parent")
		require.NotNil(t, change)
		assert.Equal(t, record.FireRuns{record.FireRunOf(coordtest.Fire(1, 2), shardset.Of(1), shardset.Of(1))}, change.Plan.Fires.Open)
	})
	t.Run("completes a reset", func(t *testing.T) {
		w := NewWorld(t)
		a := w.Join("a", "job", "other")
		w.Define("job", 2, 0, "")
		w.Settle()
		w.editMember(a, func(m *record.Member) { m.Jobs = []string{"other"} })
		w.Settle()
		w.View.Now = coordtest.At(100)
		w.editMember(a, func(m *record.Member) { m.Jobs = []string{"job", "other"} })
		w.editControl("job", func(c *record.Control) { c.Resets = 1 })
		w.Settle()
		assert.EqualValues(t, 1, w.Plan("job").Resets)
		assert.Len(t, w.Plan("job").Epochs, 2, "by the epoch that begins anyway")
	})
	t.Run("raises watermarks to the end of the last epoch at most", func(t *testing.T) {
		_, change := setUp(t, 60, func(p *record.Plan) { p.Last().Until = coordtest.At(3) })
		assert.Equal(t, coordtest.At(3)-1, change.Plan.Watermarks.Of(0).Fire)
	})
}
