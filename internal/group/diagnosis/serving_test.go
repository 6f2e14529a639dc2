package diagnosis

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// findingsOf returns the findings of records in a few words each.
func findingsOf(r *Records) (all []string) {
	for _, f := range Diagnose(r) {
		all = append(all, fmt.Sprintf("%s %s: %s -> %s", f.Kind, f.Job, f.What, f.Do))
	}
	return all
}

func TestDiagnose_WithoutALiveInstance(t *testing.T) {
	const stopped = "leaderless : the group has 0 live instances, so no job runs and nobody leads -> " +
		"start an instance; if one should be running, the last lines of its log have the reason for its end"
	stop := func(change func(*world)) *Records {
		w := newWorld(t)
		w.session, w.seat, w.leader = "", nil, nil
		w.plan.Owners = nil
		change(w)
		r := w.records()
		r.Now = coordtest.At(100000) // fires are late by hours
		r.Compile = func(json.RawMessage) (due.Program, error) { return coordtest.Minutely{}, nil }
		return r
	}
	left := func(w *world) { w.member.Draining = true }
	t.Run("one finding instead of one for each job", func(t *testing.T) {
		assert.Equal(t, []string{stopped}, findingsOf(stop(left)))
		assert.Equal(t, []string{stopped}, findingsOf(stop(func(w *world) { left(w); w.plan.Problem = "no live instance offers the job" })))
		assert.Equal(t, []string{stopped}, findingsOf(stop(func(w *world) { left(w); w.plan = nil })))
	})
	t.Run("an instance of another group does not count", func(t *testing.T) {
		r := stop(left)
		other := record.Instance{Session: "9", Group: "other"}
		e := newWorld(t).entry(r.Keys.Instance("z"), other)
		e.Owner = other.Session
		r.Put(e)
		assert.Equal(t, []string{stopped}, findingsOf(r))
	})
	t.Run("another problem of a job stays", func(t *testing.T) {
		got := findingsOf(stop(func(w *world) { left(w); w.plan.Problem = "no live instance offers the job; /x cannot be read" }))
		require.Len(t, got, 2)
		assert.Contains(t, got[1], "/x cannot be read")
	})
	t.Run("an instance that crashed is named, since nobody can reap it", func(t *testing.T) {
		crashed := "expired : the session of a has expired, and its records are not reaped -> start an instance: the leader that is elected reaps them; if it stays so, look at its log"
		assert.Equal(t, []string{stopped, crashed}, findingsOf(stop(func(*world) {})))
		running := record.Claims{Job: "job", Running: record.Runs{{Shards: shardset.Of(1), Ref: record.Ref{Epoch: 1, Fire: coordtest.At(1), Attempt: 1}}}}
		assert.Equal(t, []string{stopped, crashed}, findingsOf(stop(func(w *world) { left(w); w.claims[inc] = running })), "before its run had ended")
	})
	t.Run("a leader reaps one that has left", func(t *testing.T) {
		got := findingsOf(stop(func(w *world) { left(w); w.seat = &record.Seat{} }))
		assert.Contains(t, got[len(got)-1], "the session of a has expired")
	})
}

func TestDiagnose_AllInstancesDisabled(t *testing.T) {
	const problem = "every live instance that offers the job is disabled"
	recordsOf := func(change func(*world, *Records)) *Records {
		w := newWorld(t)
		w.plan.Owners, w.plan.Problem, w.member.Host = nil, problem, "node-1"
		r := &Records{}
		change(w, nil)
		*r = *w.records()
		change(w, r)
		return r
	}
	disable := func(x record.Exclusion) func(*world, *Records) {
		return func(w *world, r *Records) {
			if r != nil {
				r.Put(w.entry(r.Keys.GroupControl(), record.GroupControl{Exclusion: x}))
			}
		}
	}
	t.Run("one finding names the command", func(t *testing.T) {
		const what = "unowned : no job runs: all live instances are disabled or drained for all jobs: 1 of 1 -> rota enable"
		assert.Equal(t, []string{what + " --instance a (or rota undrain); rota acts lists who disabled them, and why"},
			findingsOf(recordsOf(disable(record.Exclusion{Instances: []string{"a"}}))))
		assert.Equal(t, []string{what + " --host node-1; rota acts lists who disabled them, and why"},
			findingsOf(recordsOf(disable(record.Exclusion{Hosts: []string{"node-1"}}))))
	})
	t.Run("one for a job names the command of the job", func(t *testing.T) {
		assert.Equal(t, []string{
			"unowned job: 4 of 4 shards have no owner (0-3): " + problem + " -> rota enable job --instance a; rota explain job; docs/operating/messages.md lists the problems",
		}, findingsOf(recordsOf(func(w *world, _ *Records) {
			w.control = &record.Control{Job: "job", Exclusion: record.Exclusion{Instances: []string{"a"}}}
		})))
	})
}
