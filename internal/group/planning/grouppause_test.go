package planning

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/record"
)

func TestPlan_GroupPause(t *testing.T) {
	setUp := func(t *testing.T) *world {
		w := NewWorld(t)
		w.Join("a", "job", "paused", "started paused", "stopped")
		w.View.Group.GroupControl = &record.GroupControl{}
		w.Define("job", 4, 1, "")
		w.Define("paused", 4, 1, "")
		w.Define("stopped", 4, 1, "")
		w.Define("started paused", 4, 1, `,"start_paused":true`)
		w.editControl("paused", func(c *record.Control) { c.Paused = true })
		w.editControl("stopped", func(c *record.Control) { c.Stopped = true })
		w.Settle()
		return w
	}
	pause := func(w *world, paused bool) {
		w.View.Group = GroupRecord{Rev: w.nextRev(), GroupControl: &record.GroupControl{Paused: paused}}
		w.Settle()
	}
	// holds returns which jobs are paused, and which are stopped.
	holds := func(w *world) (paused, stopped []string) {
		for _, job := range []string{"job", "paused", "started paused", "stopped"} {
			if w.Plan(job).Paused {
				paused = append(paused, job)
			}
			if w.Plan(job).Stopped {
				stopped = append(stopped, job)
			}
		}
		return paused, stopped
	}
	requireOwn := func(t *testing.T, w *world) {
		t.Helper()
		paused, stopped := holds(w)
		require.Equal(t, []string{"paused", "started paused"}, paused)
		require.Equal(t, []string{"stopped"}, stopped)
	}
	requireAllPaused := func(t *testing.T, w *world) {
		t.Helper()
		paused, stopped := holds(w)
		require.Equal(t, []string{"job", "paused", "started paused", "stopped"}, paused)
		require.Empty(t, stopped)
	}
	t.Run("pauses all jobs, and leaves each job's own intent in force when it ends", func(t *testing.T) {
		w := setUp(t)
		requireOwn(t, w)
		pause(w, true)
		requireAllPaused(t, w)
		require.Empty(t, w.decide().Changes, "all plans are settled")
		pause(w, false)
		requireOwn(t, w)
		for _, job := range []string{"job", "paused", "started paused", "stopped"} {
			assert.Nil(t, w.Plan(job).GroupPause, job)
		}
		assert.Zero(t, w.Plan("job").Last().Until, "its fires count again")
	})
	t.Run("applies to a new job from its first plan on", func(t *testing.T) {
		w := setUp(t)
		pause(w, true)
		w.Join("b", "new")
		w.Define("new", 2, 1, "")
		w.Settle()
		p := w.Plan("new")
		assert.True(t, p.Paused)
		assert.Equal(t, &record.OwnHold{}, p.GroupPause)
		assert.Equal(t, w.View.Now, p.Last().Until, "no fire is due")
		pause(w, false)
		assert.False(t, w.Plan("new").Paused)
	})
	t.Run("takes up what becomes of a job's own intent meanwhile", func(t *testing.T) {
		w := setUp(t)
		pause(w, true)
		w.editControl("job", func(c *record.Control) { c.Paused = true })
		w.editControl("paused", func(c *record.Control) { c.Paused = false })
		w.Settle()
		requireAllPaused(t, w)
		delete(w.View.Control, "job") // the plan keeps the intent
		pause(w, false)
		assert.True(t, w.Plan("job").Paused)
		assert.False(t, w.Plan("paused").Paused)
	})
	t.Run("stays as it is while the record cannot be read, and ends when it is deleted", func(t *testing.T) {
		w := setUp(t)
		w.View.Group.GroupControl = nil
		w.Settle()
		requireOwn(t, w)
		pause(w, true)
		w.View.Group.GroupControl = nil
		w.Settle()
		requireAllPaused(t, w)
		w.View.Group.GroupControl = &record.GroupControl{}
		w.Settle()
		requireOwn(t, w)
	})
}

func TestDecide_EndsPauses(t *testing.T) {
	w := NewWorld(t)
	until := w.View.Now.Add(90 * time.Second)
	control := func(job string, h record.Hold, paused, stopped bool) {
		w.editControl(job, func(c *record.Control) { c.Paused, c.Stopped, c.Hold = paused, stopped, h })
	}
	control("a", record.Hold{Until: until}, true, false)
	control("b", record.Hold{}, true, false)
	control("c", record.Hold{Until: until}, false, true) // not written by an Operator: only a pause has an end
	w.View.Group.GroupControl = &record.GroupControl{Paused: true, Hold: record.Hold{Until: until.Add(time.Second)}}
	d := w.decide()
	assert.Empty(t, d.EndedPauses)
	assert.Equal(t, MaxPauseCheck, d.PauseEnds, "the clock may be set meanwhile")
	w.View.Now = until - 1
	assert.EqualValues(t, 1, w.decide().PauseEnds)
	w.View.Now = until
	d = w.decide()
	require.Len(t, d.EndedPauses, 1)
	assert.Equal(t, "a", d.EndedPauses[0].Control.Job)
	assert.False(t, d.EndedPauses[0].Control.Paused)
	assert.Equal(t, time.Second, d.PauseEnds)
	w.View.Now = until.Add(time.Second)
	d = w.decide()
	require.Len(t, d.EndedPauses, 2)
	assert.Equal(t, w.View.Keys.GroupControl(), d.EndedPauses[0].Key)
	assert.Equal(t, &record.GroupControl{Acts: record.Acts{{
		At: w.View.Now, By: record.ByLeader, What: "resume: the pause lasted until " + until.Add(time.Second).String(),
	}}}, d.EndedPauses[0].Record())
	assert.Zero(t, d.PauseEnds)
}

func TestPlan_GroupPause_InOneChange(t *testing.T) {
	hold := func(w *world, paused bool) {
		w.View.Group = GroupRecord{Rev: w.nextRev(), GroupControl: &record.GroupControl{Paused: paused}}
	}
	w := NewWorld(t)
	a := w.Join("a", "job")
	w.Define("job", 1, 1, "")
	w.Settle()
	t.Run("begins with its reason", func(t *testing.T) {
		hold(w, true)
		d := w.round()
		require.Len(t, d.Changes, 1)
		assert.Equal(t, []string{"pause", "the group is paused"}, d.Changes[0].Why)
		assert.Equal(t, &record.OwnHold{}, w.Plan("job").GroupPause)
	})
	t.Run("keeps the job's own intent up to date, as routine", func(t *testing.T) {
		w.editControl("job", func(c *record.Control) { c.Paused = true })
		d := w.round()
		require.Len(t, d.Changes, 1)
		assert.Empty(t, d.Changes[0].Why)
		assert.Equal(t, []string{"keep the job's own intent"}, d.Changes[0].Upkeep)
		w.editControl("job", func(c *record.Control) { c.Paused = false })
		w.round()
	})
	t.Run("ends after reads of the owners' claims, with its reason", func(t *testing.T) {
		hold(w, false)
		d := w.decideOnce()
		require.Equal(t, []string{a}, d.Reads)
		require.Empty(t, d.Changes)
		d = w.round()
		require.Len(t, d.Changes, 1)
		assert.Equal(t, []string{"resume", "the group is resumed"}, d.Changes[0].Why)
		assert.Nil(t, w.Plan("job").GroupPause)
		assert.False(t, w.Plan("job").Paused)
	})
}

func TestDecide_NextEndOfAPause(t *testing.T) {
	for _, c := range []struct {
		name       string
		job, group time.Duration
		want       time.Duration
	}{
		{"the earlier one, of the job", 5 * time.Second, 20 * time.Second, 5 * time.Second},
		{"the earlier one, of the group", 20 * time.Second, 5 * time.Second, 5 * time.Second},
		{"not one that ends now", 5 * time.Second, 0, 5 * time.Second},
		{"none", 0, 0, 0},
	} {
		t.Run("is "+c.name, func(t *testing.T) {
			w := NewWorld(t)
			w.editControl("job", func(r *record.Control) { r.Paused, r.Hold = true, record.Hold{Until: w.View.Now.Add(c.job)} })
			w.View.Group.GroupControl = &record.GroupControl{Paused: true, Hold: record.Hold{Until: w.View.Now.Add(c.group)}}
			assert.Equal(t, c.want, w.decide().PauseEnds)
		})
	}
}
