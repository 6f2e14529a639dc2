package operator

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/group/snapshot"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// GroupStatus is the recorded state of a group.
type GroupStatus struct {
	At        time.Time        `json:"at"` // when it was computed, by the local clock
	Namespace string           `json:"namespace"`
	Group     string           `json:"group"`
	Leader    LeaderStatus     `json:"leader,omitzero"`
	Jobs      []JobSummary     `json:"jobs"`      // sorted by name
	Instances []InstanceStatus `json:"instances"` // sorted by name; several incarnations of one name by session
	// Disabled are the instances and hosts that are disabled for all jobs.
	Disabled Scope `json:"disabled"`
	// Paused reports whether operators have paused all jobs of the group. Until is when the pause ends by
	// itself, zero if it does not; HeldBy is the act that paused the group.
	Paused bool      `json:"paused"`
	Until  time.Time `json:"paused_until,omitzero"`
	HeldBy Act       `json:"paused_by,omitzero"`
	// Unreadable lists the keys of records that could not be decoded. Other fields do not include
	// these records. A job whose plan is among them is listed with a Problem.
	Unreadable []registry.Key `json:"unreadable"`
}

// JobSummary is the state of a job in a list of jobs. Status has the details.
type JobSummary struct {
	Job      string `json:"name"`
	Revision int    `json:"revision"` // of the stored definition
	Schedule string `json:"schedule"` // as in Status
	// NextFire and Overdue are as in Status, and zero if the Operator has no compiler.
	NextFire time.Time `json:"next,omitzero"`
	Overdue  time.Time `json:"overdue,omitzero"`
	// AwaitedPool is as in Status.
	AwaitedPool string `json:"awaited_pool,omitempty"`
	// LastFire is the latest scheduled fire that was claimed or skipped for any shard. ClaimedTo is
	// the latest one up to which that holds for every shard. Zero means that there is none.
	LastFire  time.Time `json:"last_fire,omitzero"`
	ClaimedTo time.Time `json:"claimed_to,omitzero"`

	Shards   int `json:"shards"`   // in the plan; zero if there is no plan yet
	Running  int `json:"running"`  // shards with a claimed run that is not recorded as ended
	Unowned  int `json:"unowned"`  // shards without an owner
	Frozen   int `json:"frozen"`   // shards that are about to move
	Disabled int `json:"disabled"` // shards that operators have disabled
	// Expired counts shards whose owner's session has expired. They wait for the failover or, if the
	// owner has a RestartGrace, for its return. ExpiredOwners are these owners, sorted.
	Expired       int      `json:"expired"`
	ExpiredOwners []string `json:"expired_owners"`
	Reruns        int      `json:"reruns"`   // shards with a pending re-run
	Triggers      int      `json:"triggers"` // pending and running triggers

	// Failing are the shards whose last ended run failed, as in Status.
	Failing []int `json:"failing"`
	// LocalDiffers names the live instances whose part of the job that is not stored (executor.Job.Local)
	// is not that of most instances, or all that have one if no one is the most frequent.
	LocalDiffers []string `json:"local_differs"`
	// Differs names the live instances whose own definition has another revision or content than the stored one,
	// sorted. In a rolling deployment, these are the ones that are not replaced yet.
	Differs []string `json:"differs"`
	// LastFailure is the latest failure on record; its At is zero if there is none.
	LastFailure Failure `json:"last_failure,omitzero"`

	Paused          bool      `json:"paused,omitempty"`
	ScheduleStopped bool      `json:"schedule_stopped,omitempty"`
	GroupPaused     bool      `json:"group_paused,omitempty"` // as in Status
	Until           time.Time `json:"paused_until,omitzero"`  // as in Intent, like HeldBy
	HeldBy          Act       `json:"paused_by,omitzero"`
	RetiredBy       Act       `json:"retired_by,omitzero"`      // as in Intent
	UnofferedSince  time.Time `json:"unoffered_since,omitzero"` // as in Status
	Problem         string    `json:"problem,omitempty"`        // as in Status
	Counts          Counts    `json:"counts"`
	Ended           time.Time `json:"last_end,omitzero"` // when a run last ended
}

// InstanceStatus is the recorded state of an instance that has joined a group.
type InstanceStatus struct {
	Instance    string             `json:"name"`
	Incarnation string             `json:"incarnation"`
	Host        string             `json:"host"`
	PID         int                `json:"pid,omitempty"`    // zero if the session has expired
	Started     time.Time          `json:"started,omitzero"` // when it joined; zero if the session has expired
	Session     registry.SessionID `json:"session,omitempty"`
	// Alive reports whether the session existed. Shards of an expired instance are reassigned.
	Alive    bool `json:"alive"`
	Leader   bool `json:"leader"`
	Draining bool `json:"draining"` // the instance is shutting down
	// Skew is how far its clock is ahead of the fleet's median. Zero means that it is within
	// MaxClockSkew. An instance whose clock is skewed owns no shards.
	Skew time.Duration `json:"clock_skew_ns"`
	// ClockDiffers is by how much its clock differs in a fleet of one or two instances, where none can be proven wrong: how
	// far that of the leader was ahead of the store's, and that of the other instance ahead of the leader's, when the
	// leader last compared them, which it does at least every 6 h. Zero means that they were within MaxClockSkew, or that
	// the store has no clock. Such an instance goes on.
	ClockDiffers time.Duration `json:"clock_differs_ns,omitempty"`
	// Disabled reports whether the instance or its host is disabled for all jobs.
	Disabled bool `json:"disabled"`
	// Labels are shared and must not be changed.
	Labels map[string]string `json:"labels"`
	Weight int               `json:"weight"` // at least 1
	// RestartGrace is how long its shards wait for its return.
	RestartGrace time.Duration `json:"restart_grace_ns"`

	Jobs        int      `json:"jobs"`        // the number of jobs that it offers
	Unsupported []string `json:"unsupported"` // jobs that it has registered and cannot compile
	Differs     []string `json:"differs"`     // jobs whose stored definition differs from its own, as far as it lists them
	Shards      int      `json:"shards"`      // shards that it owns
	Running     int      `json:"running"`     // claimed runs that are not recorded as ended
	Waiting     int      `json:"waiting"`     // those of Running that have waited for a worker for longer than 10 s
	Blocked     int      `json:"blocked"`     // shards that it may not own until a function of its earlier session returns
}

// Group returns the recorded state of all jobs and instances of the group. It is meant for people
// and dashboards; the state may have changed by the time Group returns, and each directory is
// read at an instant of its own, as in Status.
//
// The cost is a listing of six directories, of two more once a job has a pool, and of one for each incarnation that has a member record
// or owns shards. The number of jobs determines the size of the listings, not their number.
func (o *Operator) Group(ctx context.Context) (GroupStatus, error) {
	s, err := o.listGroup(ctx)
	if err == nil {
		err = s.Check(o.keys.Meta())
	}
	if err == nil {
		err = o.listClaims(ctx, s, s.Incarnations())
	}
	if err != nil {
		return GroupStatus{}, fmt.Errorf("status of group: %w", err)
	}
	return o.newSummaries(s).status(time.Now()), nil
}

// Jobs returns the Jobs of Group, at the same cost.
func (o *Operator) Jobs(ctx context.Context) ([]JobSummary, error) {
	st, err := o.Group(ctx)
	return st.Jobs, err
}

// Instances returns the Instances of Group, at the same cost.
func (o *Operator) Instances(ctx context.Context) ([]InstanceStatus, error) {
	st, err := o.Group(ctx)
	return st.Instances, err
}

// JobNames returns the names of the jobs whose definitions are stored and can be read, sorted, by one
// listing. Unlike Jobs, it decodes only definitions.
func (o *Operator) JobNames(ctx context.Context) ([]string, error) {
	s := snapshot.New(o.keys)
	if err := o.list(ctx, s, registry.ReadOptions{}, o.keys.Jobs()); err != nil {
		return nil, fmt.Errorf("names of jobs: %w", err)
	}
	var names []string
	for _, def := range s.Jobs {
		names = append(names, def.Name)
	}
	slices.Sort(names)
	return names, nil
}

// InstanceNames returns the names of the instances of the group, sorted, by one listing.
func (o *Operator) InstanceNames(ctx context.Context) ([]string, error) {
	listing, err := o.reg.List(ctx, o.keys.Members(), registry.ReadOptions{})
	if err != nil {
		return nil, fmt.Errorf("names of instances: %w", err)
	}
	var names []string
	for _, e := range listing.Entries {
		names = append(names, record.InstanceOf(e.Key.Name()))
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// HasLiveInstance reports whether an instance of the group may be alive, by one listing. It is true for an instance that is about
// to join, and for one of a version that does not record its group.
func (o *Operator) HasLiveInstance(ctx context.Context) (bool, error) {
	listing, err := o.reg.List(ctx, o.keys.Instances(), registry.ReadOptions{Fresh: true})
	if err != nil {
		return false, fmt.Errorf("live instances: %w", err)
	}
	return slices.ContainsFunc(listing.Entries, func(e registry.Entry) bool {
		i, err := record.Decode[record.Instance](e.Value)
		return err != nil || i.MayBeIn(o.group)
	}), nil
}

// Groups returns the names of the groups of a namespace that have a live instance, sorted. The
// store records neither groups without instances nor the names of namespaces. Instances of versions
// before this function existed are not seen.
func Groups(ctx context.Context, reg registry.Registry, namespace string) ([]string, error) {
	o, err := New(reg, namespace, "")
	if err != nil {
		return nil, err
	}
	live, err := reg.List(ctx, o.keys.Instances(), registry.ReadOptions{Fresh: true})
	if err != nil {
		return nil, fmt.Errorf("groups of %q: %w", namespace, err)
	}
	var groups []string
	for _, e := range live.Entries {
		if i, err := record.Decode[record.Instance](e.Value); err == nil && i.Group != "" {
			groups = append(groups, i.Group)
		}
	}
	slices.Sort(groups)
	return slices.Compact(groups), nil
}

// Summary returns the part of st that lists of jobs show.
func (st *Status) Summary() JobSummary {
	s := JobSummary{
		Job: st.Job, Revision: st.Revision, Schedule: st.Schedule, NextFire: st.NextFire, Overdue: st.Overdue, AwaitedPool: st.AwaitedPool,
		Shards: st.Shards, Unowned: len(st.Unowned), Frozen: len(st.Frozen), Disabled: len(st.Disabled), Triggers: len(st.Triggers),
		Paused: st.Paused, ScheduleStopped: st.ScheduleStopped, GroupPaused: st.GroupPaused, Failing: st.Failing, Until: st.Intent.Until, HeldBy: st.Intent.HeldBy,
		RetiredBy: st.Intent.RetiredBy, UnofferedSince: st.UnofferedSince, Problem: st.Problem, Counts: st.Counts, Ended: st.Ended,
	}
	if st.Shards == 0 { // without a plan, the intent is all that there is
		s.Paused, s.ScheduleStopped = st.Intent.Paused, st.Intent.ScheduleStopped
	}
	for _, m := range st.Members {
		if !m.Alive {
			s.addExpired(m.Instance, len(m.Shards))
		}
		if m.Differs && m.Alive && !m.Draining {
			s.Differs = append(s.Differs, m.Instance)
		}
		if m.LocalDiffers {
			s.LocalDiffers = append(s.LocalDiffers, m.Instance)
		}
	}
	for _, r := range st.Reruns {
		s.Reruns += len(r.Shards)
	}
	if n := len(st.Failures); n > 0 {
		s.LastFailure = st.Failures[n-1]
	}
	for i := range st.PerShard {
		shard := &st.PerShard[i]
		if shard.Running {
			s.Running++
		}
		if shard.LastFire.After(s.LastFire) {
			s.LastFire = shard.LastFire
		}
		if i == 0 || i < st.Shards && shard.LastFire.Before(s.ClaimedTo) {
			s.ClaimedTo = shard.LastFire
		}
	}
	return s
}

// addExpired adds the shards that an instance owns, whose session has expired.
func (s *JobSummary) addExpired(instance string, shards int) {
	if shards == 0 {
		return
	}
	s.Expired += shards
	if !slices.Contains(s.ExpiredOwners, instance) {
		s.ExpiredOwners = append(slices.Clip(s.ExpiredOwners), instance)
		slices.Sort(s.ExpiredOwners)
	}
}
