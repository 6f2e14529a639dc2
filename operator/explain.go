package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rota-dev/rota/internal/group/explain"
	"github.com/rota-dev/rota/internal/group/snapshot"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

// Explanation answers why a fire of a job has run or has not, by the records of the job.
type Explanation struct {
	Job string    `json:"job"`
	At  time.Time `json:"at"` // when the records were read, by the local clock
	// Known reports whether the job has a definition or a plan, or a damaged one.
	Known bool `json:"known"`
	// Answers has one element for the shards with the same answer, sorted by their first shard.
	Answers []Answer `json:"answers"`
}

// Answer explains one fire or triggered run of some shards. Its texts are for people and not stable across versions.
type Answer struct {
	Shards []int     `json:"shards"`        // in ascending order
	Fire   time.Time `json:"fire,omitzero"` // zero if the shards have no fire; that of a triggered run is Run.FireTime
	// Gates are the conditions of a run in the order in which they were checked, up to the first one
	// that stops the fire. Once the fire is claimed or skipped, those that matter only before are left
	// out. docs/operating.md lists all gates.
	Gates   []Gate `json:"gates"`
	Summary string `json:"summary"`      // one or two sentences
	Do      string `json:"do,omitempty"` // the remedy; empty if none is needed or possible
	// Verb is the method of Operator that a part of Do is about, for the Shards and the Fire of the answer:
	// "Cancel", "Disable", "Enable", "Reset", "Resume", "ResumeGroup", "Retry" or "Trigger".
	// It is empty if no method helps. "Disable" is for Instance, whose shards are to move. "History" is no method: the
	// run history, see package history, has the outcome of the fire.
	Verb     string `json:"verb,omitempty"`
	Instance string `json:"instance,omitempty"`
	// Stops reports whether the fire has not run, or has not succeeded: the verdict of the last gate is
	// VerdictStop.
	Stops bool `json:"stops"`
	// Quotes are the errors of runs that Summary, Do and the details of Gates quote, the longest first. They may be secret.
	Quotes []string `json:"-"`
}

// Gate is a condition of a run, as checked for one fire.
type Gate struct {
	Name    string  `json:"name"`
	Verdict Verdict `json:"verdict"`
	Detail  string  `json:"detail"`
}

// Verdict is the result of a Gate.
type Verdict string

// The verdicts.
const (
	VerdictOK      Verdict = "ok"      // the fire has passed the gate
	VerdictStop    Verdict = "stop"    // the gate stops the fire
	VerdictUnknown Verdict = "unknown" // the records do not show whether it does
)

// AllShards is the shard by which Explain explains all shards of a job.
const AllShards = -1

// Explain explains why the fire of a shard at an instant has run or has not. A zero instant means the
// newest fire that has come due. AllShards explains each shard of the job, and groups equal answers.
//
// The newest triggered run takes the place of the newest fire if the shard has had no fire, or if the run failed after the
// fire had ended. An instant that the schedule does not have may be the FireTime of a triggered run. The records name
// triggered runs until they have ended, and the latest failures of them.
//
// Explain uses records only. These show due, claimed, running and pending fires, the last claim of each
// shard and the latest failures. The outcome of older fires is in the run history and the logs, and
// their answers contain a gate with VerdictUnknown. An Operator without a compiler (WithCompiler) does
// not know the instants of schedules; the gates that need them are unknown then.
//
// A missing or damaged record is part of the answer and no error; so is an unknown job. The cost is
// that of Status, and one read for each job that the job follows.
func (o *Operator) Explain(ctx context.Context, job string, shard int, fire time.Time) (Explanation, error) {
	s, followed, err := o.readFollower(ctx, record.Segment(job))
	if err == nil {
		err = o.listPools(ctx, s)
	}
	var r explain.Records
	if err == nil {
		r, err = o.explainRecords(ctx, s, job, followed)
	}
	if err != nil {
		return Explanation{}, fmt.Errorf("explain %q: %w", job, err)
	}
	return o.explain(r, shard, fire)
}

// Explain explains a fire as Operator.Explain does, by the records that the view has: it reads nothing from the store, so it knows
// nothing of a job that rests.
func (v *GroupView) Explain(job string, shard int, fire time.Time) (Explanation, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.answers.records
	var followed []string
	if p := s.Plans[record.Segment(job)].Plan; p != nil && p.Last().Job().After != nil {
		followed = p.Last().Job().After.Jobs
	}
	return v.op.explain(explain.NewRecords(s, job, followed), shard, fire)
}

// explain explains a fire of a job by its records.
func (o *Operator) explain(r explain.Records, shard int, fire time.Time) (Explanation, error) {
	job := r.Job
	r.Compile, r.Now = o.compile, record.InstantOf(time.Now())
	shards := shardset.Range(0, r.Total())
	if shard != AllShards {
		if shard < 0 || shard >= r.Total() {
			return Explanation{}, fmt.Errorf("explain %q: %w", job, invalidArgument(fmt.Errorf("there is no shard %d of %d", shard, r.Total())))
		}
		shards = shardset.Of(shard)
	}
	_, damagedDefinition := r.Unreadable[o.keys.Job(record.Segment(job))]
	_, damagedPlan := r.Unreadable[o.keys.Plan(record.Segment(job))]
	_, damagedDefined := r.Unreadable[o.keys.Defined(record.Segment(job))]
	known := r.Definition != nil || r.Plan != nil || r.Defined != nil || damagedDefinition || damagedPlan || damagedDefined
	out := Explanation{Job: job, At: r.Now.Time(), Known: known}
	for _, a := range explain.Explain(r, shards, record.InstantOf(fire)) {
		answer := Answer{Shards: shardList(a.Shards), Fire: a.Fire.Time(), Summary: a.Summary, Do: a.Do, Verb: string(a.Verb), Instance: a.Target, Stops: a.Stops, Quotes: a.Quotes}
		for _, g := range a.Gates {
			answer.Gates = append(answer.Gates, Gate{g.Name, Verdict(g.Verdict), g.Detail})
		}
		out.Answers = append(out.Answers, answer)
	}
	return out, nil
}

// explainRecords returns the records that explain a job, with that which defines it as data if it has no other definition, or
// a kind.
func (o *Operator) explainRecords(ctx context.Context, s *snapshot.Snapshot, job string, followed []string) (explain.Records, error) {
	segment := record.Segment(job)
	key, stored := o.keys.Defined(segment), s.Definition(segment)
	if stored.Name != "" && stored.Kind == "" || s.Has(o.keys.Job(segment)) && stored.Name == "" {
		return explain.NewRecords(s, job, followed), nil
	}
	d, err := o.putResting(ctx, s, segment)
	r := explain.NewRecords(s, job, followed)
	var damage *damagedError
	switch {
	case errors.As(err, &damage):
		r.Unreadable[key] = damage.rule.Error()
	case errors.Is(err, registry.ErrForeign):
		r.Unreadable[key] = "another program wrote it"
	case err != nil:
		return r, err
	}
	r.Defined = d.Defined
	r.Rests = d.Defined != nil && !d.IsDeleted() && stored.Name == ""
	return r, nil
}

// readFollower reads the records of a job and of its group, and the plans of the jobs that it follows, whose names it returns.
func (o *Operator) readFollower(ctx context.Context, segment string) (s *snapshot.Snapshot, followed []string, err error) {
	if err := o.checkFormat(ctx); err != nil {
		return nil, nil, err
	}
	s = snapshot.New(o.keys)
	if err := o.get(ctx, s, o.keys.Job(segment), o.keys.Control(segment), o.keys.GroupControl(), o.keys.Plan(segment)); err != nil {
		return nil, nil, err
	}
	if p := s.Plans[segment].Plan; p != nil && p.Last().Job().After != nil {
		followed = p.Last().Job().After.Jobs
	}
	for _, name := range followed {
		if err := o.get(ctx, s, o.keys.Plan(record.Segment(name))); err != nil {
			return nil, nil, err
		}
	}
	return s, followed, o.getFleet(ctx, s, segment)
}
