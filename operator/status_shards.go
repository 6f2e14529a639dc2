package operator

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/group/planning"
	"github.com/rota-dev/rota/internal/group/snapshot"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// ShardStatus is the recorded state of one shard.
type ShardStatus struct {
	Shard int    `json:"shard"`
	Owner string `json:"owner,omitempty"` // the instance that owns the shard; empty if none does
	// LastFire is the latest scheduled fire that was claimed or skipped. Attempt is the number
	// of the claimed attempt, zero if the fire was skipped.
	LastFire time.Time `json:"claimed_to,omitzero"`
	Attempt  int       `json:"attempt"`
	// LastTrigger is the number of the latest trigger that was claimed.
	LastTrigger uint64 `json:"last_trigger,omitempty"`
	// Running reports whether a run of the shard is claimed and not recorded as ended. A job
	// with TrackClaims records ends late.
	Running bool `json:"running"`
}

// LeaderStatus is the leader of a group. It is zero if there is none.
type LeaderStatus struct {
	Instance string `json:"instance"`
	Term     uint64 `json:"term"` // the leader's term, as in Decision
}

// WithCompiler returns a copy of o that uses c to compute Status.NextFire and Status.Overdue. For jobs of package
// executor, c is executor.Compile. The Operator of an executor has it already.
func (o *Operator) WithCompiler(c due.Compiler) *Operator {
	with := *o
	with.compile = c
	return &with
}

// addProgress adds the pending runs and the state of each shard, by a plan and the progress of
// its owners. It omits re-runs and triggers that were served since the plan was written.
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
	skipped := due.SkippedForAll(p).Time()
	for i := range st.PerShard[:min(st.Shards, len(st.PerShard))] {
		if s := &st.PerShard[i]; skipped.After(s.LastFire) {
			s.LastFire, s.Attempt = skipped, 0
		}
	}
}

// shardStatuses returns the state of each shard. There may be 10,000, so it visits the sets of
// shards that share a value rather than looking up each shard.
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

// leaderOf returns the leader, zero if there is none.
func leaderOf(s *snapshot.Snapshot) LeaderStatus {
	incarnation, term := s.ReadLeader()
	return LeaderStatus{record.InstanceOf(incarnation), term}
}
