package planning

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// newChain returns a settled world in which a and b own shards 0 and 1 of job "parent", which fires each minute, and
// "child" follows it.
func newChain(t *testing.T, jobs ...string) (w *world, a, b string) {
	t.Helper()
	w = NewWorld(t)
	w.View.Ends = map[string]EndsOfJob{}
	w.View.Compile = func(def json.RawMessage) (due.Program, error) {
		if job, err := record.ParseJob(def); err == nil && job.After != nil {
			return coordtest.Following{}, nil
		}
		return coordtest.Minutely{}, nil
	}
	jobs = append(jobs, "child", "parent")
	slices.Sort(jobs)
	a, b = w.Join("a", jobs...), w.Join("b", jobs...)
	w.Define("parent", 2, 1, "")
	w.Define("child", 1, 1, `,"schedule":"after parent"`)
	w.Settle()
	return w, a, b
}

// begin has an owner claim a run.
func (w *world) begin(inc, job string, shards shardset.Set, r record.Ref) {
	w.startRuns(inc, job, shards, r)
	w.claim(inc, job, func(c *record.Claims) { c.Fires = c.Fires.With(record.FireRunOf(r, shards, shardset.Set{})) })
}

// end has an owner record that its runs of shards have ended, with the copy for leaders.
func (w *world) end(inc, job string, shards shardset.Set) {
	w.claim(inc, job, func(c *record.Claims) { c.Running = c.Running.Without(shards) })
	w.copyClaims(inc, job)
}

func (w *world) copyClaims(inc, job string) {
	if w.View.Ends[job] == nil {
		w.View.Ends[job] = EndsOfJob{}
	}
	w.View.Ends[job][inc] = w.claims[inc][job].Claims
}

// run has an owner claim a run and end it.
func (w *world) run(inc, job string, shards shardset.Set, r record.Ref) {
	w.begin(inc, job, shards, r)
	w.end(inc, job, shards)
}

// runFire has a and b run a fire of the parent at the n-th minute.
func (w *world) runFire(n int) {
	w.run("a.a", "parent", w.Plan("parent").Owners["a.a"], coordtest.Fire(n, 1))
	w.run("b.b", "parent", w.Plan("parent").Owners["b.b"], coordtest.Fire(n, 1))
}

// ended returns the fires of a job that are on record as ended, without the numbers and times of the record.
func (w *world) ended(job string) []record.EndedFire {
	w.t.Helper()
	require.NotNil(w.t, w.Plan(job).Fires)
	var out []record.EndedFire
	for _, e := range w.Plan(job).Fires.Ended {
		e.Number, e.Ended = 0, 0
		out = append(out, e)
	}
	return out
}

// released returns the instants of the released fires of a job.
func (w *world) released(job string) (out []record.Instant) {
	for _, e := range w.Plan(job).Epochs {
		for _, r := range e.Released {
			out = append(out, r.At)
		}
	}
	return out
}

func (w *world) trigger(job string, number uint64, at record.Instant) {
	w.editControl(job, func(c *record.Control) {
		c.LastTrigger, c.Triggers = number, append(c.Triggers, record.Trigger{Number: number, At: at})
	})
}

func TestPlan_EndedFires(t *testing.T) {
	first := func(n int) record.EndedFire { return record.EndedFire{At: coordtest.At(n), Shards: 2} }
	for name, leave := range map[string]func(w *world){
		"a shard has not claimed it": func(w *world) { delete(w.View.Ends["parent"], "b.b") },
		"an owner has a run of it in progress": func(w *world) {
			w.begin("b.b", "parent", shardset.Of(1), coordtest.Fire(1, 2))
			w.copyClaims("b.b", "parent")
		},
		"a re-run is pending": func(w *world) {
			p := w.Plan("parent").Clone()
			p.Reruns = coordtest.Runs(shardset.Of(1), coordtest.Fire(1, 2))
			w.View.Plans["parent"] = PlanRecord{Rev: w.nextRev(), Plan: p}
		},
		"a retry is pending, or a run that was handed back": func(w *world) {
			w.claim("b.b", "parent", func(c *record.Claims) { c.Reruns = coordtest.Runs(shardset.Of(1), coordtest.Fire(1, 1).Return()) })
			w.copyClaims("b.b", "parent")
		},
		"an earlier trigger is not claimed": func(w *world) {
			p := w.Plan("parent").Clone()
			p.Triggers = []record.Trigger{{Number: 1, At: coordtest.At(1) - 1, Epoch: 1}}
			w.View.Plans["parent"] = PlanRecord{Rev: w.nextRev(), Plan: p}
		},
		"the leader does not support the definition": func(w *world) {
			w.View.Compile = func(json.RawMessage) (due.Program, error) { return nil, assert.AnError }
		},
	} {
		t.Run("a fire has not ended while "+name, func(t *testing.T) {
			w, _, _ := newChain(t)
			w.View.Now = coordtest.At(1)
			w.runFire(1)
			leave(w)
			w.Settle()
			assert.Empty(t, w.ended("parent"))
		})
	}
	t.Run("a fire has ended when no shard has it due, and no run of it is in progress or pending", func(t *testing.T) {
		w, _, _ := newChain(t)
		w.View.Now = coordtest.At(1)
		w.runFire(1)
		w.Settle()
		assert.Equal(t, []record.EndedFire{first(1)}, w.ended("parent"))
		assert.Equal(t, coordtest.At(1), w.Plan("parent").Fires.Through)
		assert.Empty(t, w.decide().Changes, "the leader is idle")
	})
	t.Run("a shard that is disabled has skipped the fire", func(t *testing.T) {
		w, a, b := newChain(t)
		w.editControl("parent", func(c *record.Control) { c.Disabled = shardset.Of(1) })
		w.Settle()
		w.View.Now = coordtest.At(1)
		w.run(a, "parent", shardset.Of(0), coordtest.Fire(1, 1))
		w.claim(b, "parent", func(c *record.Claims) {
			c.Watermarks = c.Watermarks.Raise(shardset.Of(1), record.Watermark{Epoch: 1, Fire: coordtest.At(1)})
		})
		w.copyClaims(b, "parent")
		w.Settle()
		assert.Equal(t, []record.EndedFire{{At: coordtest.At(1), Shards: 2, Skipped: 1}}, w.ended("parent"))
	})
	t.Run("fires end in the order of their instants", func(t *testing.T) {
		w, a, b := newChain(t)
		w.View.Now = coordtest.At(2)
		w.begin(b, "parent", shardset.Of(1), coordtest.Fire(1, 1))
		w.run(a, "parent", shardset.Of(0), coordtest.Fire(1, 1))
		w.run(a, "parent", shardset.Of(0), coordtest.Fire(2, 1))
		w.Settle()
		require.Empty(t, w.ended("parent"))
		w.end(b, "parent", shardset.Of(1))
		w.Settle()
		require.Equal(t, []record.EndedFire{first(1)}, w.ended("parent"))
		w.run(b, "parent", shardset.Of(1), coordtest.Fire(2, 1))
		w.Settle()
		assert.Equal(t, []record.EndedFire{first(1), first(2)}, w.ended("parent"))
	})
	t.Run("outcomes of shards that have changed their owner count", func(t *testing.T) {
		w, a, b := newChain(t)
		w.View.Now = coordtest.At(1)
		w.begin(b, "parent", shardset.Of(1), coordtest.Fire(1, 1))
		w.claim(b, "parent", func(c *record.Claims) {
			c.Fires = c.Fires.With(record.FireRunOf(coordtest.Fire(1, 1), shardset.Of(1), shardset.Of(1)))
		})
		w.end(b, "parent", shardset.Of(1))
		w.expire(b)
		delete(w.View.Ends["parent"], b)
		w.Settle()
		require.Empty(t, w.ended("parent"))
		w.run(a, "parent", shardset.Of(0), coordtest.Fire(1, 1))
		w.Settle()
		assert.Equal(t, []record.EndedFire{{At: coordtest.At(1), Shards: 2, Failed: 1}}, w.ended("parent"))
		assert.Empty(t, w.Plan("parent").Fires.Open)
	})
	for name, more := range map[string]string{
		"lost":               `,"on_crash":"count as failed"`,
		"of an unknown end":  coordtest.ClaimsOnly,
		"lost, after re-run": `,"max_attempts":1`,
	} {
		t.Run("a run that is "+name+" counts as failed", func(t *testing.T) {
			w, a, b := newChain(t)
			w.Define("parent", 2, 2, more)
			w.View.Now = coordtest.At(1)
			w.runFire(1)
			w.Settle()
			from := w.Plan("parent").Last().From
			w.View.Now = from.Add(2 * time.Minute)
			at := record.InstantOf(w.View.Now.Time().Truncate(time.Minute))
			r := record.Ref{Epoch: 2, Fire: at, Attempt: 1}
			w.run(a, "parent", shardset.Of(0), r)
			w.begin(b, "parent", shardset.Of(1), r)
			w.expire(b)
			delete(w.View.Ends["parent"], b)
			w.Settle()
			all := w.ended("parent")
			assert.Equal(t, record.EndedFire{At: at, Shards: 2, Failed: 1}, all[len(all)-1])
		})
	}
	t.Run("an owner that has ended no run since its fires are tracked delays no trigger", func(t *testing.T) {
		w, a, _ := newChain(t)
		delete(w.View.Jobs, "child")
		delete(w.View.Plans, "child")
		w.Settle()
		require.Nil(t, w.Plan("parent").Fires)
		w.View.Now = coordtest.At(1)
		w.runFire(1)
		clear(w.View.Ends)
		w.Define("child", 1, 1, `,"schedule":"after parent"`)
		w.Settle()
		w.View.Now = coordtest.At(1).Add(30 * time.Second)
		only := shardset.Of(0)
		w.editControl("parent", func(c *record.Control) {
			c.LastTrigger, c.Triggers = 1, []record.Trigger{{Number: 1, At: w.View.Now, Shards: &only}}
		})
		w.Settle()
		w.run(a, "parent", only, record.Ref{Epoch: 1, Fire: w.View.Now, Trigger: 1, Attempt: 1})
		w.Settle()
		assert.Equal(t, []record.EndedFire{{At: w.View.Now, Trigger: 1, Shards: 1}}, w.ended("parent"))
	})
	t.Run("fires are tracked while a definition in force follows, although the stored one cannot be read", func(t *testing.T) {
		w, _, _ := newChain(t)
		w.View.Now = coordtest.At(1)
		w.runFire(1)
		w.Settle()
		delete(w.View.Jobs, "child")
		w.Settle()
		assert.Equal(t, []record.EndedFire{first(1)}, w.ended("parent"))
	})
	t.Run("fires are no longer tracked when no job follows", func(t *testing.T) {
		w, _, _ := newChain(t)
		w.Define("child", 1, 2, "")
		w.Settle()
		w.View.Now = w.Plan("child").Last().Until
		w.Settle()
		assert.Nil(t, w.Plan("child").Followed)
		assert.Nil(t, w.Plan("parent").Fires)
		assert.Empty(t, w.decide().Changes)
	})
}

func TestPlan_EndedFires_AfterTheEndOfAnEpoch(t *testing.T) {
	// paused returns a world in which a pause was decided before the fire at minute 1, which a and b claimed before it
	// was committed. The run of a goes on, and no copy shows it.
	paused := func(t *testing.T) (w *world, a, b string) {
		w, a, b = newChain(t)
		w.View.Now = coordtest.At(1) - 1
		w.editControl("parent", func(c *record.Control) { c.Paused = true })
		w.copyClaims(a, "parent")
		w.begin(a, "parent", shardset.Of(0), coordtest.Fire(1, 1))
		w.run(b, "parent", shardset.Of(1), coordtest.Fire(1, 1))
		w.Settle()
		require.True(t, w.Plan("parent").Paused)
		require.Empty(t, w.ended("parent"), "a fresh read shows the run of a")
		return w, a, b
	}
	t.Run("in a pause a fire ends after fresh reads", func(t *testing.T) {
		w, a, _ := paused(t)
		w.end(a, "parent", shardset.Of(0))
		w.Settle()
		assert.Equal(t, []record.EndedFire{{At: coordtest.At(1), Shards: 2}}, w.ended("parent"))
	})
	t.Run("nor does the resume end it", func(t *testing.T) {
		w, a, _ := paused(t)
		w.editControl("parent", func(c *record.Control) { c.Paused = false })
		w.Settle()
		require.Len(t, w.Plan("parent").Epochs, 2)
		require.Empty(t, w.ended("parent"))
		w.end(a, "parent", shardset.Of(0))
		w.Settle()
		assert.Equal(t, []record.EndedFire{{At: coordtest.At(1), Shards: 2}}, w.ended("parent"))
	})
	t.Run("nor does a later trigger end before it", func(t *testing.T) {
		w, a, b := newChain(t)
		w.View.Now = coordtest.At(1) - 1
		w.editControl("parent", func(c *record.Control) { c.Paused = true })
		w.copyClaims(a, "parent")
		w.copyClaims(b, "parent")
		w.begin(a, "parent", shardset.Of(0), coordtest.Fire(1, 1)) // and b has claimed nothing
		w.Settle()
		w.editControl("parent", func(c *record.Control) { c.Paused = false })
		w.Settle()
		w.View.Now = w.Plan("parent").Last().From + 1
		only := shardset.Of(1)
		w.editControl("parent", func(c *record.Control) {
			c.LastTrigger, c.Triggers = 1, []record.Trigger{{Number: 1, At: w.View.Now, Shards: &only}}
		})
		w.Settle()
		w.run(b, "parent", only, record.Ref{Epoch: 2, Fire: w.View.Now, Trigger: 1, Attempt: 1})
		w.Settle()
		require.Empty(t, w.ended("parent"))
		w.end(a, "parent", shardset.Of(0))
		w.Settle()
		assert.Equal(t, []record.EndedFire{{At: coordtest.At(1), Shards: 2, Skipped: 1}, {At: w.View.Now, Trigger: 1, Shards: 1}}, w.ended("parent"))
	})
	t.Run("before a new definition the decision waits until the new epoch begins", func(t *testing.T) {
		w, _, _ := newChain(t)
		p := w.Plan("parent").Clone()
		p.Last().Until = coordtest.At(1)
		w.View.Plans["parent"] = PlanRecord{Rev: w.nextRev(), Plan: p}
		w.View.Now = coordtest.At(1)
		w.run("a.a", "parent", shardset.Of(0), coordtest.Fire(1, 1))
		w.Settle()
		require.Len(t, w.Plan("parent").Epochs, 2)
		require.Less(t, coordtest.At(1), w.Plan("parent").Epochs[0].Until, "so the fire is due for b")
		require.Empty(t, w.ended("parent"))
		w.run("b.b", "parent", shardset.Of(1), coordtest.Fire(1, 1))
		w.Settle()
		assert.Equal(t, []record.EndedFire{{At: coordtest.At(1), Shards: 2}}, w.ended("parent"))
	})
}

func TestPlan_TriggersOfFollowedJobs(t *testing.T) {
	t.Run("that arrive with the end of a later fire get a later instant", func(t *testing.T) {
		w, _, _ := newChain(t)
		w.View.Now = coordtest.At(1).Add(time.Second)
		w.runFire(1)
		w.trigger("parent", 1, coordtest.At(1)-1)
		w.round()
		require.Equal(t, coordtest.At(1), w.Plan("parent").Fires.Through)
		require.Len(t, w.Plan("parent").Triggers, 1)
		assert.Greater(t, w.Plan("parent").Triggers[0].At, coordtest.At(1))
	})
	t.Run("get a later instant than the fires of jobs that follow, and that end by the same decision", func(t *testing.T) {
		w, a, _ := newChain(t, "grandchild")
		w.Define("grandchild", 1, 1, `,"schedule":"after child"`)
		w.Settle()
		w.View.Now = coordtest.At(0).Add(50 * time.Second)
		w.trigger("child", 1, w.View.Now)
		w.Settle()
		w.run(a, "child", shardset.Of(0), record.Ref{Epoch: 1, Fire: w.View.Now, Trigger: 1, Attempt: 1})
		w.trigger("parent", 1, w.View.Now-5)
		w.round()
		require.Equal(t, w.View.Now, w.Plan("child").Fires.Through)
		assert.Greater(t, w.Plan("parent").Triggers[0].At, w.View.Now)
	})
	t.Run("have instants of their own, although the operator's clock is behind", func(t *testing.T) {
		w, _, _ := newChain(t)
		w.View.Now = coordtest.At(1).Add(time.Second)
		w.runFire(1)
		w.Settle()
		w.trigger("parent", 1, coordtest.At(0))
		w.trigger("parent", 2, coordtest.At(0))
		w.Settle()
		w.trigger("parent", 3, coordtest.At(0))
		w.Settle()
		all := w.Plan("parent").Triggers
		require.Len(t, all, 3)
		assert.Less(t, coordtest.At(1), all[0].At)
		assert.Less(t, all[0].At, all[1].At)
		assert.Less(t, all[1].At, all[2].At)
	})
	t.Run("are not ahead of the leader's clock, whatever the operator's clock shows", func(t *testing.T) {
		w, _, _ := newChain(t)
		w.trigger("parent", 1, w.View.Now.Add(time.Hour))
		w.trigger("alone", 1, w.View.Now.Add(time.Hour))
		w.Settle()
		assert.Equal(t, w.View.Now, w.Plan("parent").Triggers[0].At)
	})
}

func TestPlan_EndedFires_OnRecord(t *testing.T) {
	t.Run("have numbers and the time of the decision, and the plan lists the latest", func(t *testing.T) {
		w, _, _ := newChain(t)
		for n := 1; n <= record.MaxEndedFires+3; n++ {
			w.View.Now = coordtest.At(n).Add(time.Second)
			w.runFire(n)
			w.Settle()
		}
		all := w.Plan("parent").Fires.Ended
		require.Len(t, all, record.MaxEndedFires)
		for i, e := range all {
			n := i + 4
			assert.Equal(t, record.EndedFire{Number: uint64(n), At: coordtest.At(n), Shards: 2, Ended: coordtest.At(n).Add(time.Second)}, e)
		}
	})
	t.Run("also include a trigger that the first plan of the job accepts", func(t *testing.T) {
		w, a, b := newChain(t)
		delete(w.View.Plans, "parent")
		w.trigger("parent", 1, w.View.Now)
		w.round()
		require.Len(t, w.Plan("parent").Triggers, 1)
		w.Settle()
		require.Equal(t, w.View.Now, w.Plan("parent").Fires.From)
		r := record.Ref{Epoch: 1, Fire: w.View.Now, Trigger: 1, Attempt: 1}
		for _, inc := range []string{a, b} {
			w.begin(inc, "parent", w.Plan("parent").Owners[inc], r)
			w.claim(inc, "parent", func(c *record.Claims) { c.Running = nil })
		}
		w.View.SlowTick = true
		w.Settle()
		require.Len(t, w.Plan("parent").Triggers, 1, "no copy of claims shows its end")
		w.copyClaims(a, "parent")
		w.copyClaims(b, "parent")
		w.Settle()
		assert.Equal(t, []record.EndedFire{{At: w.View.Now, Trigger: 1, Shards: 2}}, w.ended("parent"))
		assert.Empty(t, w.Plan("parent").Triggers)
	})
	t.Run("count the shards that ran them if their epoch or trigger is cleared", func(t *testing.T) {
		w, a, b := newChain(t)
		w.View.Now = coordtest.At(1) - 1
		w.run(a, "parent", shardset.Of(0), record.Ref{Epoch: 1, Fire: w.View.Now - 1, Trigger: 3, Attempt: 1})
		w.run(b, "parent", shardset.Of(1), record.Ref{Epoch: 7, Fire: w.View.Now, Attempt: 1})
		w.Settle()
		assert.Equal(t, []record.EndedFire{{At: w.View.Now - 1, Trigger: 3, Shards: 1}, {At: w.View.Now, Shards: 1}}, w.ended("parent"))
	})
	t.Run("count the shards of their own trigger", func(t *testing.T) {
		w, a, _ := newChain(t)
		w.View.Now = coordtest.At(1) - 1
		both, one := shardset.Range(0, 2), shardset.Of(0)
		w.editPlan("parent", func(p *record.Plan) {
			p.Triggers = []record.Trigger{
				{Number: 1, At: coordtest.At(1), Epoch: 1, Shards: &both}, {Number: 2, At: w.View.Now, Epoch: 1, Shards: &one},
			}
		})
		w.run(a, "parent", one, record.Ref{Epoch: 1, Fire: w.View.Now, Trigger: 2, Attempt: 1})
		w.Settle()
		assert.Equal(t, []record.EndedFire{{At: w.View.Now, Trigger: 2, Shards: 1}}, w.ended("parent"))
	})
}

func TestPlan_EndedFires_AreHeldUpByTheirOwnRunsOnly(t *testing.T) {
	for _, c := range []struct {
		name  string
		leave func(w *world, a string)
		ended bool
	}{
		{"the run of a later fire does not hold up an earlier one", func(w *world, a string) {
			w.begin(a, "parent", shardset.Of(0), coordtest.Fire(2, 1))
			w.copyClaims(a, "parent")
		}, true},
		{"a trigger at the instant of a fire holds it up", func(w *world, _ string) {
			w.editPlan("parent", func(p *record.Plan) { p.Triggers = []record.Trigger{{Number: 1, At: coordtest.At(1), Epoch: 1}} })
		}, false},
		{"a trigger after a fire does not hold it up", func(w *world, _ string) {
			w.editPlan("parent", func(p *record.Plan) { p.Triggers = []record.Trigger{{Number: 1, At: coordtest.At(1) + 1, Epoch: 1}} })
		}, true},
		{"a trigger for a past fire does not hold it up", func(w *world, _ string) {
			w.editPlan("parent", func(p *record.Plan) {
				p.Triggers = []record.Trigger{{Number: 1, At: coordtest.At(1) - 1, Epoch: 1, Fire: coordtest.At(-5)}}
			})
		}, true},
		{"the run of a past fire does not hold it up", func(w *world, a string) {
			w.editPlan("parent", func(p *record.Plan) {
				p.Triggers = []record.Trigger{{Number: 1, At: coordtest.At(1) - 1, Epoch: 1, Fire: coordtest.At(-5)}}
			})
			w.startRuns(a, "parent", shardset.Of(0), record.Ref{Epoch: 1, Fire: coordtest.At(-5), Trigger: 1, Attempt: 1})
			w.copyClaims(a, "parent")
		}, true},
		{"the end of its epoch is not awaited before it, while a new definition is to begin later", func(w *world, _ string) {
			w.editPlan("parent", func(p *record.Plan) { p.Last().Until = coordtest.At(1) + 1 })
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, a, _ := newChain(t)
			w.View.Now = coordtest.At(1)
			w.runFire(1)
			c.leave(w, a)
			d := w.decideOnce()
			if change := d.changeOf("parent"); c.ended {
				require.NotNil(t, change)
				assert.Equal(t, coordtest.At(1), change.Plan.Fires.Through)
			} else {
				assert.Nil(t, change)
			}
		})
	}
	t.Run("a fire at the instant from which fires are tracked is held up by a shard that has not claimed it", func(t *testing.T) {
		w, a, _ := newChain(t)
		w.editPlan("parent", func(p *record.Plan) { p.Fires = &record.Fires{From: coordtest.At(1)} })
		w.View.Now = coordtest.At(1)
		w.run(a, "parent", shardset.Of(0), coordtest.Fire(1, 1))
		w.Settle()
		assert.Empty(t, w.ended("parent"))
	})
}

// The fire of minute 3 has ended by the copies of claims.
func TestPlan_EndedFires_NeedFreshReadsAfterTheEndOfAnEpoch(t *testing.T) {
	type span struct{ from, until record.Instant }
	at := coordtest.At
	for _, c := range []struct {
		name    string
		held    bool
		epochs  []span
		epoch   int // of the fire
		through record.Instant
		reads   bool
	}{
		{"none in an epoch in force", false, []span{{at(0), 0}}, 1, 0, false},
		{"none before the end of the last epoch", true, []span{{at(0), at(3) + 1}}, 1, 0, false},
		{"from the end of the last epoch on", true, []span{{at(0), at(3)}}, 1, 0, true},
		{"after a gap between epochs", false, []span{{at(0), at(1)}, {at(2), 0}}, 2, 0, true},
		{"none before a gap between epochs", false, []span{{at(0), at(5)}, {at(7), 0}}, 1, 0, false},
		{"none after epochs without a gap", false, []span{{at(0), at(1)}, {at(1), 0}}, 2, 0, false},
		{"none after a gap whose instants have all ended", false, []span{{at(0), at(1)}, {at(2), 0}}, 2, at(2) - 1, false},
		{"after a gap whose last instant has not ended", false, []span{{at(0), at(1)}, {at(2), 0}}, 2, at(2) - 2, true},
	} {
		for _, stopped := range []bool{false, true} {
			if stopped && !c.held {
				continue
			}
			t.Run(fmt.Sprintf("%s, stopped %v", c.name, stopped), func(t *testing.T) {
				w, a, b := newChain(t)
				w.View.Now = at(3)
				w.editPlan("parent", func(p *record.Plan) {
					p.Paused, p.Stopped = c.held && !stopped, c.held && stopped
					p.Fires = &record.Fires{From: at(3), Through: c.through}
					first := p.Epochs[0]
					p.Epochs = nil
					for i, s := range c.epochs {
						first.Number, first.From, first.Until = i+1, s.from, s.until
						p.Epochs = append(p.Epochs, first)
					}
				})
				r := record.Ref{Epoch: c.epoch, Fire: at(3), Attempt: 1}
				w.run(a, "parent", shardset.Of(0), r)
				w.run(b, "parent", shardset.Of(1), r)
				d := w.decideOnce()
				if !c.reads {
					require.Empty(t, d.Reads)
					require.NotNil(t, d.changeOf("parent"))
					assert.Equal(t, at(3), d.changeOf("parent").Plan.Fires.Through)
					return
				}
				require.Equal(t, []string{a, b}, d.Reads)
				require.Nil(t, d.changeOf("parent"))
				for _, inc := range []string{a, b} {
					clear(w.View.Reads)
					w.readClaims(inc)
					require.Nil(t, w.decideOnce().changeOf("parent"), "the claims of the other owner are not read yet")
				}
				w.readClaims(a)
				w.readClaims(b)
				w.View.Reads[a].Unreadable["parent"] = true
				require.Nil(t, w.decideOnce().changeOf("parent"), "a record cannot be read")
				delete(w.View.Reads[a].Unreadable, "parent")
				require.NotNil(t, w.decideOnce().changeOf("parent"))
			})
		}
	}
}

func TestPlan_TriggersOfFollowedJobs_Instants(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(w *world)
		at   time.Duration // of the operator, by the leader's clock
		want time.Duration
	}{
		{"is that of the operator", func(*world) {}, -time.Second, -time.Second},
		{"is not before fires are tracked", func(w *world) {
			w.editPlan("parent", func(p *record.Plan) { p.Fires = &record.Fires{From: w.View.Now} })
		}, -time.Second, 0},
		{"is that of the operator while fires are not tracked yet", func(w *world) {
			w.editPlan("parent", func(p *record.Plan) { p.Fires = &record.Fires{From: w.View.Now + 1} })
		}, -time.Second, -time.Second},
		{"is after the fires on record as ended", func(w *world) {
			w.editPlan("parent", func(p *record.Plan) { p.Fires = &record.Fires{Through: w.View.Now.Add(-time.Second)} })
		}, -time.Minute, -time.Second + 1},
		{"is after the fires that a follower has followed", func(w *world) {
			w.editPlan("child", func(p *record.Plan) { p.Followed = &record.Followed{Through: w.View.Now.Add(-time.Second)} })
		}, -time.Minute, -time.Second + 1},
		{"is after the fires that a follower's follower has followed", func(w *world) {
			w.editPlan("grandchild", func(p *record.Plan) { p.Followed = &record.Followed{Through: w.View.Now.Add(-time.Second)} })
		}, -time.Minute, -time.Second + 1},
		{"is not ahead of the leader's clock, although a follower begins to follow later", func(w *world) {
			w.editPlan("child", func(p *record.Plan) { p.Followed = &record.Followed{Through: w.View.Now} })
		}, time.Minute, 0},
		{"does not depend on a follower that has followed nothing yet", func(w *world) {
			w.editPlan("child", func(p *record.Plan) { p.Followed = nil })
		}, -time.Second, -time.Second},
		{"does not depend on a follower without a plan", func(w *world) { delete(w.View.Plans, "child") }, -time.Second, -time.Second},
		{"is found in a circle, too", func(w *world) { w.Define("parent", 2, 1, `,"schedule":"after child"`) }, -time.Second, -time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, _, _ := newChain(t, "grandchild")
			w.Define("grandchild", 1, 1, `,"schedule":"after child"`)
			w.Settle()
			w.View.Now = coordtest.At(1) - 1
			w.editPlan("child", func(p *record.Plan) { p.Fires = &record.Fires{} })
			c.edit(w)
			w.trigger("parent", 1, w.View.Now.Add(c.at))
			change := w.decideOnce().changeOf("parent")
			require.NotNil(t, change)
			assert.Equal(t, c.want, time.Duration(change.Plan.Triggers[0].At-w.View.Now))
		})
	}
	t.Run("is that of the operator if no job follows", func(t *testing.T) {
		w, _, _ := newChain(t)
		w.trigger("child", 1, w.View.Now.Add(time.Hour))
		w.Settle()
		assert.Equal(t, w.View.Now.Add(time.Hour), w.Plan("child").Triggers[0].At)
	})
}

func TestPlan_OpenFiresStayInThePlan(t *testing.T) {
	// claimed returns a world in which b has claimed and ended a pending re-run of a fire, and no copy shows it.
	claimed := func(t *testing.T, minute int, edit func(*record.Plan)) (w *world, b string) {
		w, a, b := newChain(t)
		w.View.Now = coordtest.At(5)
		w.copyClaims(a, "parent")
		w.copyClaims(b, "parent")
		r := coordtest.Fire(minute, 2)
		w.editPlan("parent", func(p *record.Plan) {
			p.Reruns = coordtest.Runs(shardset.Of(1), r)
			edit(p)
		})
		w.begin(b, "parent", shardset.Of(1), r)
		w.claim(b, "parent", func(c *record.Claims) { c.Running = nil })
		w.View.SlowTick = true
		return w, b
	}
	t.Run("a re-run of a fire that is open stays until its end is known", func(t *testing.T) {
		w, b := claimed(t, 5, func(*record.Plan) {})
		w.Settle()
		require.NotEmpty(t, w.Plan("parent").Reruns)
		w.copyClaims(b, "parent")
		w.run("a.a", "parent", shardset.Of(0), coordtest.Fire(5, 1))
		w.Settle()
		assert.Empty(t, w.Plan("parent").Reruns)
	})
	for name, edit := range map[string]func(*record.Plan){
		"that has ended":                    func(p *record.Plan) { p.Fires = &record.Fires{Through: coordtest.At(5)} },
		"from before fires were tracked":    func(p *record.Plan) { p.Fires = &record.Fires{From: coordtest.At(5) + 1} },
		"when the tracking of fires begins": func(p *record.Plan) { p.Fires = nil },
	} {
		t.Run("a re-run of a fire "+name+" goes once it is claimed", func(t *testing.T) {
			w, _ := claimed(t, 5, edit)
			w.Settle()
			assert.Empty(t, w.Plan("parent").Reruns)
		})
	}
	t.Run("a re-run of a fire ahead of the clock stays when the tracking of fires begins", func(t *testing.T) {
		w, b := claimed(t, 6, func(p *record.Plan) { p.Fires = nil })
		w.copyClaims(b, "parent")
		w.Settle()
		assert.NotEmpty(t, w.Plan("parent").Reruns)
	})
}

func TestPlan_OpenFiresOfExpiredOwners(t *testing.T) {
	past := record.Trigger{Number: 1, At: coordtest.At(1), Epoch: 1, Fire: coordtest.At(4)}
	for _, c := range []struct {
		name string
		r    record.Ref
		open bool
	}{
		{"a lost run of a fire on record as ended opens no fire", coordtest.Fire(3, 1), false},
		{"a lost run of a fire of the past opens no fire", record.Ref{Epoch: 1, Fire: coordtest.At(4), Trigger: 1, Attempt: 1}, false},
		{"a lost run of any other fire fails it", coordtest.Fire(4, 1), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, _, b := newChain(t)
			w.editPlan("parent", func(p *record.Plan) {
				e, err := record.NewEpoch(1, coordtest.At(0), json.RawMessage(`{"name":"parent","shards":2,"on_crash":"count as failed"}`))
				require.NoError(t, err)
				p.Epochs = []record.Epoch{e}
				p.Triggers = []record.Trigger{past}
				p.Fires = &record.Fires{From: coordtest.At(1), Through: coordtest.At(3), Ended: []record.EndedFire{{Number: 1, At: coordtest.At(3)}}}
			})
			w.View.Now = coordtest.At(4)
			w.startRuns(b, "parent", shardset.Of(1), c.r)
			w.expire(b)
			change := w.decide().changeOf("parent")
			require.NotNil(t, change)
			require.EqualValues(t, 1, change.Plan.Counts.Lost)
			want := record.Fires{From: coordtest.At(1), Through: coordtest.At(3), Ended: []record.EndedFire{{Number: 1, At: coordtest.At(3)}}}
			if c.open {
				want.Open = record.FireRuns{record.FireRunOf(c.r, shardset.Of(1), shardset.Of(1))}
			}
			assert.Equal(t, want, *change.Plan.Fires)
		})
	}
}
