package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

// Format is the newest format of records that this version reads and writes.
const Format = 1

// Meta is the record of a namespace.
type Meta struct {
	Format int `json:"format"`
	// FenceBase is added to commit numbers to make fences, so that they go on growing
	// when the store is restored or replaced.
	FenceBase uint64 `json:"fence_base"`
}

// Instance is the value of an instance's owned key.
type Instance struct {
	Session registry.SessionID `json:"session"`
	Host    string             `json:"host,omitempty"`
	PID     int                `json:"pid,omitempty"`
	Started Instant            `json:"started,omitzero"`
}

// Leader names who is in office. The commit that wrote it is the term.
type Leader struct {
	Incarnation string             `json:"incarnation"`
	Session     registry.SessionID `json:"session"`
}

// Present is the value of the key that vanishes with the leader's session.
type Present struct {
	// Successors act at once, in this order, when the office falls vacant.
	Successors []string `json:"successors,omitempty"` // incarnations
	// Clock is what the leader's clock said, for others to compare theirs; zero: it does not ask.
	Clock Instant `json:"clock,omitzero"`
	// Off names the incarnations whose clocks are too far from the fleet's, and how far ahead.
	Off map[string]Duration `json:"off,omitempty"`
	// Incomplete names incarnations whose sessions live and of which a record is missing or
	// cannot be read. They have to join again.
	Incomplete []string `json:"incomplete,omitempty"`
}

// Member is the record of an incarnation.
type Member struct {
	Name     string                  `json:"name"`
	Session  registry.SessionID      `json:"session"`
	Host     string                  `json:"host,omitempty"`
	Jobs     []string                `json:"jobs"` // offered, by name, sorted
	Labels   map[string]string       `json:"labels,omitempty"`
	Weight   int                     `json:"weight,omitempty"`   // 0 is 1
	Draining bool                    `json:"draining,omitempty"` // final for this incarnation
	Blocked  map[string]shardset.Set `json:"blocked,omitempty"`  // by job: an old function has not returned

	// NotUnderstood are jobs that it would offer, but for a definition in force that it
	// cannot compile. They are not among Jobs.
	NotUnderstood []string `json:"not_understood,omitempty"`

	// Revisions are those of its own definitions: of Jobs, then of NotUnderstood, in that order.
	// The last one is that of all jobs that follow; where there is none, it is zero. See
	// SetRevisions.
	Revisions []int `json:"revisions,omitempty"`
	// Differs are some of the jobs of which the stored definition has the revision of its own
	// one, and other content. It is as of when this record was written.
	Differs []string `json:"differs,omitempty"`

	// RestartGrace is for how long its shards wait for an instance of its name to come back.
	RestartGrace Duration `json:"restart_grace,omitzero"`

	// Clock is what its clock said when this was written; zero: it does not tell.
	Clock Instant `json:"clock,omitzero"`
	// Answers is the reading of a leader's clock that it had heard by then, and that its own
	// clock differs from; zero: none since it joined, or since its clock was set.
	Answers Instant `json:"answers,omitzero"`
	// Ahead is, by job, what its shards wait for that is further ahead of its clock than clocks
	// are apart.
	Ahead map[string]Ahead `json:"ahead,omitempty"`

	// Waiting is, by job, the runs that have waited long for a worker. They are among those
	// that Claims counts as running.
	Waiting map[string]Waiting `json:"waiting,omitempty"`
}

// Ahead is how far a generation has got, or is to begin, by a clock that was wrong.
type Ahead struct {
	Gen int     `json:"gen"`
	At  Instant `json:"at"`
}

// Offers reports whether the member offers a job.
func (m *Member) Offers(job string) bool {
	_, ok := slices.BinarySearch(m.Jobs, job)
	return ok
}

// SetRevisions sets Revisions from a map by job. It leaves out what follows from the one before.
func (m *Member) SetRevisions(of map[string]int) {
	var all []int
	for _, job := range slices.Concat(m.Jobs, m.NotUnderstood) {
		all = append(all, of[job])
	}
	for n := len(all); n > 0; n = len(all) {
		before := 0
		if n > 1 {
			before = all[n-2]
		}
		if all[n-1] != before {
			break
		}
		all = all[:n-1]
	}
	m.Revisions = all
}

// Revision returns the revision of the member's own definition of a job, if it has one.
func (m *Member) Revision(job string) (revision int, has bool) {
	i := slices.Index(slices.Concat(m.Jobs, m.NotUnderstood), job)
	switch n := len(m.Revisions); {
	case i < 0:
		return 0, false
	case n == 0:
		return 0, true
	default:
		return m.Revisions[min(i, n-1)], true
	}
}

// Job is what planning needs to know of a definition. The rest of the record belongs to
// whoever runs the job.
type Job struct {
	Name        string `json:"name"`
	Revision    int    `json:"revision,omitempty"`
	Shards      int    `json:"shards"`
	Strategy    string `json:"strategy,omitempty"`
	OnCrash     string `json:"on_crash,omitempty"` // CrashRerun or CrashFail; empty is CrashRerun
	MaxAttempts int    `json:"max_attempts,omitempty"`
	Tracking    string `json:"tracking,omitempty"` // TrackRuns or TrackClaims; empty is TrackRuns
	StartPaused bool   `json:"start_paused,omitempty"`

	// RunOn is the labels that who owns shards must have, all of them.
	RunOn map[string]string `json:"run_on,omitempty"`
}

// Attempts returns how many times a run may be begun.
func (j Job) Attempts() int {
	if j.MaxAttempts == 0 {
		return DefaultMaxAttempts
	}
	return j.MaxAttempts
}

// The values of Job.OnCrash.
const (
	CrashRerun = "rerun elsewhere"
	CrashFail  = "count as failed"
)

// The values of Job.Tracking.
const (
	TrackRuns   = "runs"
	TrackClaims = "claims"
)

// MaxShards bounds Job.Shards.
const MaxShards = 10_000

// DefaultMaxAttempts bounds attempts where Job.MaxAttempts is zero.
const DefaultMaxAttempts = 3

// ParseJob reads the part of a definition that planning needs, and checks it.
func ParseJob(def json.RawMessage) (Job, error) {
	var j Job
	if err := json.Unmarshal(def, &j); err != nil {
		return Job{}, err
	}
	if err := CheckJobName(j.Name); err != nil {
		return Job{}, fmt.Errorf("name: %w", err)
	}
	if j.Shards < 1 || j.Shards > MaxShards {
		return Job{}, fmt.Errorf("shards is %d, not between 1 and %d", j.Shards, MaxShards)
	}
	if j.MaxAttempts < 0 {
		return Job{}, fmt.Errorf("max_attempts is %d, below 0", j.MaxAttempts)
	}
	if j.OnCrash != "" && j.OnCrash != CrashRerun && j.OnCrash != CrashFail {
		return Job{}, fmt.Errorf("on_crash is %q, neither %q nor %q", j.OnCrash, CrashRerun, CrashFail)
	}
	if j.Tracking != "" && j.Tracking != TrackRuns && j.Tracking != TrackClaims {
		return Job{}, fmt.Errorf("tracking is %q, neither %q nor %q", j.Tracking, TrackRuns, TrackClaims)
	}
	if err := errors.Join(CheckLabels(j.RunOn, MaxRunOn)...); err != nil {
		return Job{}, fmt.Errorf("run_on: %w", err)
	}
	return j, nil
}

// Counts are sums over the life of a job.
type Counts struct {
	Claimed   uint64 `json:"claimed,omitempty"`
	Succeeded uint64 `json:"succeeded,omitempty"`
	Failed    uint64 `json:"failed,omitempty"`
	Skipped   uint64 `json:"skipped,omitempty"` // fires given up by the misfire policy, or of disabled shards
	Lost      uint64 `json:"lost,omitempty"`    // runs that a crash ended and nobody reruns
	Unknown   uint64 `json:"unknown,omitempty"` // claims of which a crash left untold whether they had ended: the job tracks no runs
}

// Add returns the sum.
func (c Counts) Add(o Counts) Counts {
	return Counts{
		c.Claimed + o.Claimed, c.Succeeded + o.Succeeded, c.Failed + o.Failed,
		c.Skipped + o.Skipped, c.Lost + o.Lost, c.Unknown + o.Unknown,
	}
}

// Epoch is a span of scheduled instants under one definition, so that all runs of a fire
// agree on the total and the definition. A fire belongs to the epoch with
// From <= fire < Until.
type Epoch struct {
	Gen   int     `json:"gen"`
	From  Instant `json:"from"`
	Until Instant `json:"until,omitzero"` // zero: open

	Def json.RawMessage `json:"definition"`
	job Job
}

// Job is the part of the definition that planning needs.
func (e *Epoch) Job() Job { return e.job }

// NewEpoch returns an epoch of a definition that ParseJob accepts.
func NewEpoch(gen int, from Instant, def json.RawMessage) (Epoch, error) {
	j, err := ParseJob(def)
	return Epoch{Gen: gen, From: from, Def: def, job: j}, err
}

// Plan is what members act on, written by leaders only. A decoded Plan is shared: it is
// read, or cloned and changed.
type Plan struct {
	Format   int                     `json:"format"`
	Job      string                  `json:"job"`
	Paused   bool                    `json:"paused,omitempty"`
	Stopped  bool                    `json:"schedule_stopped,omitempty"` // all epochs have ended; triggers and re-runs go on
	Epochs   []Epoch                 `json:"epochs"`                     // by Gen; never empty
	Owners   map[string]shardset.Set `json:"owners"`                     // by incarnation
	Frozen   shardset.Set            `json:"frozen,omitzero"`
	Disabled shardset.Set            `json:"disabled,omitzero"` // as in Control: perhaps beyond the total
	Marks    Marks                   `json:"marks,omitempty"`
	Reruns   Runs                    `json:"reruns,omitempty"`
	Triggers []Trigger               `json:"triggers,omitempty"` // by Number
	Counts   Counts                  `json:"counts,omitzero"`    // of incarnations that are gone
	Problem  string                  `json:"problem,omitempty"`  // why the plan is not what it should be
	Resets   uint64                  `json:"resets,omitempty"`   // of those in Control, the ones that are done

	// Unoffered is since when no live instance has offered the job, by a leader's clock; zero: one does.
	Unoffered Instant `json:"unoffered,omitzero"`

	Ended     Instant    `json:"ended,omitzero"`      // as in Claims, of incarnations that are gone
	Failures  Failures   `json:"failures,omitempty"`  // likewise
	Decisions []Decision `json:"decisions,omitempty"` // the latest, oldest first

	extra fields
}

// Last returns the newest epoch.
func (p *Plan) Last() *Epoch { return &p.Epochs[len(p.Epochs)-1] }

// Epoch returns the epoch of generation gen.
func (p *Plan) Epoch(gen int) (*Epoch, bool) {
	for i := range p.Epochs {
		if p.Epochs[i].Gen == gen {
			return &p.Epochs[i], true
		}
	}
	return nil, false
}

// Shards returns how many shards need an owner: the largest total in force.
func (p *Plan) Shards() int {
	n := 0
	for i := range p.Epochs {
		n = max(n, p.Epochs[i].job.Shards)
	}
	return n
}

// OwnerOf returns the incarnation that owns shard s, "" for none.
func (p *Plan) OwnerOf(s int) string {
	for inc, shards := range p.Owners {
		if shards.Has(s) {
			return inc
		}
	}
	return ""
}

// Clone returns a copy whose fields may be replaced. Sets, marks and runs are values:
// their methods return new ones.
func (p *Plan) Clone() *Plan {
	c := *p
	c.Epochs = slices.Clone(p.Epochs)
	c.Owners = maps.Clone(p.Owners)
	c.Triggers = slices.Clone(p.Triggers)
	return &c
}

// Claims is an incarnation's own record of a job.
type Claims struct {
	Job      string   `json:"job"`
	Marks    Marks    `json:"marks,omitempty"`
	Running  Runs     `json:"running,omitempty"`
	Reruns   Runs     `json:"reruns,omitempty"` // pending, as in Plan: handed back by this incarnation
	Counts   Counts   `json:"counts,omitzero"`
	Ended    Instant  `json:"ended,omitzero"` // when the last runs that ended did
	Failures Failures `json:"failures,omitempty"`
}
