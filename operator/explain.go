package operator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rota-dev/rota/internal/group/explain"
	"github.com/rota-dev/rota/internal/parallel"
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
	r, err := o.readForExplain(ctx, job)
	if err != nil {
		return Explanation{}, fmt.Errorf("explain %q: %w", job, err)
	}
	shards := shardset.Range(0, r.Total())
	if shard != AllShards {
		if shard < 0 || shard >= r.Total() {
			return Explanation{}, fmt.Errorf("explain %q: %w", job, invalidArgument(fmt.Errorf("there is no shard %d of %d", shard, r.Total())))
		}
		shards = shardset.Of(shard)
	}
	_, damagedDefinition := r.Unreadable[o.keys.Job(record.Segment(job))]
	_, damagedPlan := r.Unreadable[o.keys.Plan(record.Segment(job))]
	out := Explanation{Job: job, At: r.Now.Time(), Known: r.Definition != nil || r.Plan != nil || damagedDefinition || damagedPlan}
	for _, a := range explain.Explain(r, shards, record.InstantOf(fire)) {
		answer := Answer{Shards: shardList(a.Shards), Fire: a.Fire.Time(), Summary: a.Summary, Do: a.Do, Verb: string(a.Verb), Instance: a.Target, Stops: a.Stops}
		for _, g := range a.Gates {
			answer.Gates = append(answer.Gates, Gate{g.Name, Verdict(g.Verdict), g.Detail})
		}
		out.Answers = append(out.Answers, answer)
	}
	return out, nil
}

// parallelReads bounds the concurrent reads of Explain and Diagnose.
const parallelReads = 16

// readForExplain reads the records of a job and of its group. Damaged records are collected in
// Unreadable.
func (o *Operator) readForExplain(ctx context.Context, job string) (explain.Records, error) {
	segment := record.Segment(job)
	r := explain.Records{
		Keys: o.keys, Job: job, Compile: o.compile, Unreadable: map[registry.Key]string{},
		Members: map[string]record.Member{}, Live: map[registry.SessionID]bool{}, Claims: map[string]record.Claims{},
	}
	if err := o.checkFormat(ctx); err != nil {
		return r, err
	}
	// get reads a record and passes it to decode, whose error makes it unreadable.
	get := func(key registry.Key, decode func(registry.Entry) error) error {
		e, found, err := o.getRecord(ctx, key)
		switch {
		case errors.Is(err, registry.ErrForeign):
			r.Unreadable[key] = "another program wrote it"
		case err != nil:
			return err
		case found:
			if err := decode(e); err != nil {
				r.Unreadable[key] = err.Error()
			}
		}
		return nil
	}
	led := false
	for _, read := range []struct {
		key    registry.Key
		decode func(registry.Entry) error
	}{
		{o.keys.Job(segment), func(e registry.Entry) error {
			text, def, err := record.DecodeDefinition(e.Value)
			if err == nil {
				err = record.CheckJobOf(e.Key, def.Name)
			}
			if err == nil {
				r.Definition, r.Stored = text, def
			}
			return err
		}},
		{o.keys.Control(segment), func(e registry.Entry) error {
			c, err := record.DecodeControl(e.Value)
			if err == nil {
				err = record.CheckJobOf(e.Key, c.Job)
			}
			if err == nil {
				r.Control = c
			}
			return err
		}},
		{o.keys.GroupControl(), func(e registry.Entry) error {
			c, err := record.DecodeGroupControl(e.Value)
			if err == nil {
				r.Group = *c
			}
			return err
		}},
		{o.keys.Plan(segment), func(e registry.Entry) (err error) {
			p, err := record.DecodePlanEntry(e)
			if err == nil {
				r.Plan = p
			}
			return err
		}},
		{o.keys.Seat(), func(e registry.Entry) error {
			led = true
			seat, err := record.Decode[record.Seat](e.Value)
			r.Skewed = seat.Skewed
			return err
		}},
		{o.keys.Leader(), func(e registry.Entry) error {
			l, err := record.Decode[record.Leader](e.Value)
			if err == nil && led {
				r.Leader, r.Term = record.InstanceOf(l.Incarnation), e.Modified.Seq
			}
			return err
		}},
	} {
		if err := get(read.key, read.decode); err != nil {
			return r, err
		}
	}
	if r.Plan != nil {
		if err := o.readFollowed(get, &r); err != nil {
			return r, err
		}
	}
	live, err := o.reg.List(ctx, o.keys.Instances(), registry.ReadOptions{})
	if err != nil {
		return r, err
	}
	for _, e := range live.Entries {
		r.Live[e.Owner] = true
	}
	members, err := o.reg.List(ctx, o.keys.Members(), registry.ReadOptions{})
	if err != nil {
		return r, err
	}
	incarnations := map[string]bool{}
	for _, e := range members.Entries {
		m, err := record.DecodeMemberEntry(e)
		if err != nil {
			r.Unreadable[e.Key] = err.Error()
			continue
		}
		r.Members[e.Key.Name()] = m
		incarnations[e.Key.Name()] = true
	}
	if r.Plan != nil {
		for inc := range r.Plan.Owners {
			incarnations[inc] = true
		}
	}
	err = o.readClaimsOfEach(ctx, slices.Sorted(maps.Keys(incarnations)), segment, &r)
	r.Now = record.InstantOf(time.Now())
	return r, err
}

// readFollowed reads the plans of the jobs that the job follows.
func (o *Operator) readFollowed(get func(registry.Key, func(registry.Entry) error) error, r *explain.Records) error {
	after := r.Plan.Last().Job().After
	if after == nil {
		return nil
	}
	r.Followed = map[string]*record.Plan{}
	for _, name := range after.Jobs {
		err := get(o.keys.Plan(record.Segment(name)), func(e registry.Entry) error {
			p, err := record.DecodePlanEntry(e)
			if err == nil {
				r.Followed[name] = p
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// readClaimsOfEach reads the claims records of incarnations for one job. The plan was read fresh and the
// reads of a handle never go back in time, so these need not be fresh.
func (o *Operator) readClaimsOfEach(ctx context.Context, incarnations []string, segment string, r *explain.Records) error {
	var mu sync.Mutex
	return parallel.Each(ctx, parallelReads, incarnations, func(ctx context.Context, inc string) error {
		key := o.keys.Claims(inc, segment)
		e, err := o.reg.Get(ctx, key, registry.ReadOptions{})
		mu.Lock()
		defer mu.Unlock()
		switch {
		case errors.Is(err, registry.ErrNotFound):
			return nil
		case errors.Is(err, registry.ErrForeign):
			r.Unreadable[key] = "another program wrote it"
			return nil
		case err != nil:
			return err
		}
		c, err := record.DecodeClaims(e.Value)
		if err == nil {
			err = record.CheckJobOf(key, c.Job)
		}
		if err != nil {
			r.Unreadable[key] = err.Error()
			return nil
		}
		r.Claims[inc] = c
		return nil
	})
}
