package coordinator

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/rota-dev/rota/coordinator/internal/due"
	"github.com/rota-dev/rota/coordinator/internal/planning"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// ShardStatus is what is on record of one shard.
type ShardStatus struct {
	Shard int
	Owner string // the instance that owns it; "" for none
	// LastFire is the latest scheduled fire that was claimed or skipped, and Attempt the number
	// of the claim, zero if the fire was skipped. A job that does not track its runs records
	// them late, or not at all.
	LastFire time.Time
	Attempt  int
	// LastTrigger is the number of the latest trigger that was claimed.
	LastTrigger uint64
	Running     bool // or claimed and about to begin
}

// LeaderStatus is who leads the group. It is zero if nobody does.
type LeaderStatus struct {
	Instance string
	Term     uint64 // the number of the commit by which it came to office, as in Decision
}

// WithCompiler returns an Operator that knows when jobs fire, for Status.NextFire. That of a
// Member knows it already.
func (o *Operator) WithCompiler(c due.Compiler) *Operator {
	with := *o
	with.compile = c
	return &with
}

// tellProgress adds to st what a plan and what its owners have claimed say of its shards, and
// leaves out what has been served since the leader wrote the plan.
func (st *Status) addProgress(p *record.Plan, g planning.JobProgress) {
	g.Reruns = slices.Concat(due.Unclaimed(p.Reruns, g.Watermarks), due.Unclaimed(g.HandedBack, g.Watermarks))
	st.Reruns = runsOf(g.Reruns)
	served := func(t record.Trigger) bool {
		e, ok := p.Epoch(t.Epoch)
		return ok && g.TriggerServed(t, due.TriggerTargets(t, e))
	}
	for _, t := range p.Triggers {
		if !served(t) {
			st.Triggers = append(st.Triggers, t.Number)
		}
	}
	slices.Sort(st.Triggers)
	st.PerShard = shardStatuses(p, g)
}

// perShard returns what is on record of each shard. There may be ten thousand, so it goes by
// the sets that share something.
func shardStatuses(p *record.Plan, g planning.JobProgress) []ShardStatus {
	out := make([]ShardStatus, p.Shards())
	each := func(shards shardset.Set, set func(*ShardStatus)) {
		for s := range shards.Intersect(shardset.Range(0, len(out))).All() {
			set(&out[s])
		}
	}
	for s := range out {
		out[s].Shard = s
	}
	for inc, shards := range p.Owners {
		name := record.InstanceOf(inc)
		each(shards, func(s *ShardStatus) { s.Owner = name })
	}
	for _, m := range g.Watermarks {
		each(m.Shards, func(s *ShardStatus) { s.LastFire, s.Attempt, s.LastTrigger = m.Fire.Time(), m.Attempt, m.Trigger })
	}
	each(g.Running.Shards(), func(s *ShardStatus) { s.Running = true })
	return out
}

// nextFire returns the first fire after now that any shard of a job is to run, zero for none.
func nextFire(p *record.Plan, compile due.Compiler, now time.Time) time.Time {
	if p.Paused || p.Stopped || compile == nil {
		return time.Time{}
	}
	var next time.Time
	for i := range p.Epochs {
		e := &p.Epochs[i]
		prog, err := compile(e.Def)
		if err != nil {
			continue
		}
		from := now
		if before := (e.From - 1).Time(); from.Before(before) {
			from = before
		}
		fire := prog.Due(from, e.Until.Time(), from).Wake
		if !fire.IsZero() && (next.IsZero() || fire.Before(next)) {
			next = fire
		}
	}
	return next.UTC()
}

// scheduleOf returns the text of a definition's schedule, "" if it has none.
func scheduleOf(def json.RawMessage) string {
	var d struct {
		Schedule string `json:"schedule"`
	}
	if json.Unmarshal(def, &d) != nil {
		return ""
	}
	return d.Schedule
}

// leader returns who is in office.
func (o *Operator) readLeader(ctx context.Context) (LeaderStatus, error) {
	if _, present, err := o.getRecord(ctx, o.keys.Seat()); err != nil || !present {
		return LeaderStatus{}, err
	}
	e, found, err := o.getRecord(ctx, o.keys.Leader())
	if err != nil || !found {
		return LeaderStatus{}, err
	}
	l, err := record.Decode[record.Leader](e.Value)
	if err != nil {
		return LeaderStatus{}, nil // members say so in their logs
	}
	return LeaderStatus{record.InstanceOf(l.Incarnation), e.Modified.Seq}, nil
}
