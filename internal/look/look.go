// Package look fills the views of the command and of the HTTP API, so that both give the same answers. It changes nothing; package
// acts does.
package look

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/schedule"
)

// ArgumentError is an argument that a job as it is stored does not have.
type ArgumentError struct{ error }

func (e ArgumentError) Unwrap() error { return e.error }

// Job returns one job with its next three fires.
func Job(ctx context.Context, op *operator.Operator, job string) (view.JobDetail, error) {
	st, err := op.Status(ctx, job)
	if err != nil {
		return view.JobDetail{}, err
	}
	return JobOf(ctx, op, &st, 3)
}

// JobOf returns the job that a status is of, with its next fires. It reads the intent for all jobs if the group is paused.
func JobOf(ctx context.Context, op *operator.Operator, st *operator.Status, fires int) (view.JobDetail, error) {
	var group operator.Intent
	if st.GroupPaused {
		var err error
		if group, err = op.Intent(ctx, ""); err != nil {
			return view.JobDetail{}, err
		}
	}
	return view.JobDetailOf(*st, group, nextFires(st, fires), time.Now()), nil
}

// nextFires returns the next fires of a job: none while it is paused or its schedule is stopped.
func nextFires(st *operator.Status, n int) []time.Time {
	if st.NextFire.IsZero() {
		return nil
	}
	s, err := schedule.Parse(st.Schedule)
	if err != nil {
		return nil
	}
	fires, err := s.Next(time.Now(), n)
	if err != nil {
		return nil
	}
	return fires
}

// Shards returns the shards of a job: those of an owner unless it is empty, and those of chosen unless it is nil. A chosen
// shard that the job does not have is an ArgumentError.
func Shards(ctx context.Context, op *operator.Operator, job, owner string, chosen []int) (view.Shards, error) {
	st, err := op.Status(ctx, job)
	if err != nil {
		return view.Shards{}, err
	}
	for _, s := range chosen {
		if s >= st.Shards {
			return view.Shards{}, ArgumentError{fmt.Errorf("there is no shard %d of %d", s, st.Shards)}
		}
	}
	v := view.ShardsOf(st, owner, time.Now())
	if chosen != nil {
		v.Shards = slices.DeleteFunc(v.Shards, func(s view.Shard) bool { return !slices.Contains(chosen, s.Shard) })
	}
	return v, nil
}

// NextOf returns the next n fires of a schedule. Job is the name of its job, if it has one.
func NextOf(s schedule.Schedule, job string, n int) (view.Next, error) {
	now := time.Now()
	fires, err := s.Next(now, n)
	if fires == nil {
		fires = []time.Time{}
	}
	return view.Next{Version: view.Version, At: now, Job: job, Schedule: s.String(), Fires: fires}, err
}

// Next returns the next n fires of a job, with a note if they do not all happen.
func Next(ctx context.Context, op *operator.Operator, job string, n int) (view.Next, error) {
	st, err := op.Status(ctx, job)
	if err != nil {
		return view.Next{}, err
	}
	s, err := schedule.Parse(st.Schedule)
	if err != nil {
		return view.Next{}, err
	}
	v, err := NextOf(s, st.Job, n)
	switch {
	case !st.Intent.RetiredBy.At.IsZero():
		v.Note = "The job is retiring: it has no more fires, unless rota unretire takes that back."
	case st.Paused || st.Intent.Paused:
		v.Note = "The job is paused. Fires that come due before rota resume never run and are not counted as skipped."
	case st.ScheduleStopped || st.Intent.ScheduleStopped:
		v.Note = "The schedule is stopped. Fires that come due before rota resume never run and are not counted as skipped."
	case st.Shards == 0:
		v.Note = "No leader has planned the job: it has no fires until an instance offers it."
	case len(s.After()) > 0:
		v.Note = "The job follows others: it fires when their fires have ended."
	case st.Revision != st.InForce:
		v.Note = fmt.Sprintf("Revision %d is stored and not in force yet: this is revision %d.", st.Revision, st.InForce)
	}
	return v, err
}

// TroubledJobs names the jobs that are late, without an owner or with a problem, each once.
func TroubledJobs(st operator.GroupStatus) (names []string) {
	seen := map[string]bool{}
	for _, state := range []string{view.Late, view.Unowned, view.Problem} {
		f := view.JobsFilter{State: state}
		for i := range st.Jobs {
			if j := &st.Jobs[i]; !seen[j.Job] && f.Selects(j, st.At) {
				names = append(names, j.Job)
				seen[j.Job] = true
			}
		}
	}
	return names
}

// Decisions returns the latest decisions about jobs.
func Decisions(ctx context.Context, op *operator.Operator, jobs []string) (view.Decisions, error) {
	var all []operator.Status
	for _, job := range jobs {
		st, err := op.Status(ctx, job)
		if err != nil {
			return view.Decisions{}, err
		}
		all = append(all, st)
	}
	return view.DecisionsOf(all, time.Now()), nil
}

// Acts returns the acts on a job, if one is named, and on all jobs of the group.
func Acts(ctx context.Context, op *operator.Operator, job string) (view.Acts, error) {
	ofGroup, err := op.Acts(ctx, "")
	if err != nil {
		return view.Acts{}, err
	}
	var ofJob []operator.Act
	if job != "" {
		if ofJob, err = op.Acts(ctx, job); err != nil {
			return view.Acts{}, err
		}
	}
	return view.ActsOf(job, ofJob, ofGroup, time.Now()), nil
}

// Check checks a group, also for a loss of records. A failure is a result.
func Check(ctx context.Context, op *operator.Operator, st operator.GroupStatus, l view.CheckLimits) view.Check {
	v := view.CheckOf(st, l)
	loss, err := op.StoreLoss(ctx)
	if err != nil && !errors.Is(err, registry.ErrForeign) {
		return view.CheckFailed(err, time.Now())
	}
	v.AddLoss(loss)
	return v
}
