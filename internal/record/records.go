package record

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/rota-dev/rota/internal/jobname"
	"github.com/rota-dev/rota/internal/scheduletext"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

// Format is the newest format of records that this version reads and writes.
const Format = 1

// Instance is the value of an instance's owned key.
type Instance struct {
	Session registry.SessionID `json:"session"`
	Group   string             `json:"group,omitempty"`
	Host    string             `json:"host,omitempty"`
	PID     int                `json:"pid,omitempty"`
	Started Instant            `json:"started,omitzero"`
}

// MayBeIn reports whether i may be an instance of a group. Instances of all groups are listed together, and the record of an
// older version, or one that cannot be read, does not name its group.
func (i *Instance) MayBeIn(group string) bool { return i.Group == group || i.Group == "" }

// Leader names the leader. The number of the commit that wrote it is the term.
type Leader struct {
	Incarnation string             `json:"incarnation"`
	Session     registry.SessionID `json:"session"`
}

// Seat is the value of the seat, the key that is deleted with the leader's session.
type Seat struct {
	// Successors are the incarnations that apply without delay, in this order, when the group has
	// lost its leader.
	Successors []string `json:"successors,omitempty"`
	// Clock is a reading of the leader's clock, which members compare with their own. If it is
	// zero, the leader does not compare clocks.
	Clock Instant `json:"clock,omitzero"`
	// Off is, by incarnation, how far a skewed clock is ahead of the fleet's median.
	Skewed map[string]Duration `json:"skewed,omitempty"`
	// Differing is, by incarnation, how far a clock that differs by more than the limit was ahead, if none can be proven
	// wrong: of two members, how far that of the other was ahead of the leader's; and how far that of the leader of one
	// or two was ahead of the store's.
	Differing map[string]Duration `json:"differing,omitempty"`
	// Incomplete names live incarnations with a missing or undecodable record. They have to join
	// again.
	Incomplete []string `json:"incomplete,omitempty"`
}

// Member is the record of an incarnation in a group.
type Member struct {
	Name     string                  `json:"name"`
	Session  registry.SessionID      `json:"session"`
	Host     string                  `json:"host,omitempty"`
	Jobs     []string                `json:"jobs"` // names of the offered jobs, sorted
	Labels   map[string]string       `json:"labels,omitempty"`
	Weight   int                     `json:"weight,omitempty"`   // 0 means 1
	Draining bool                    `json:"draining,omitempty"` // final for this incarnation
	Blocked  map[string]shardset.Set `json:"blocked,omitempty"`  // by job: shards of which an earlier handler has not returned

	// NotUnderstood are the unsupported jobs: the member would offer them, but cannot compile the
	// definition in force. They are not among Jobs.
	Unsupported []string `json:"unsupported,omitempty"`

	// Revisions are the revisions of the member's own definitions, of Jobs and then of
	// NotUnderstood. The last revision also applies to all jobs after it; an empty list means
	// zero for all. See SetRevisions.
	Revisions []int `json:"revisions,omitempty"`
	// Differs are jobs, a bounded number, whose stored definition had the revision of the
	// member's own one and different content when this record was written.
	Differs []string `json:"differs,omitempty"`
	// Own is, by job and for a bounded number of jobs, in which fields the member's own definition differed from the
	// stored one when the member offered the job: the stored revision was higher, or the same. See DescribeOwn.
	Own map[string]string `json:"own,omitempty"`

	// Kinds are the revisions of the kinds of which the member offers all jobs, by name.
	Kinds map[string]int `json:"kinds,omitempty"`

	// Locals identify the parts of Jobs and then of Unsupported that only this process has, such as
	// commands. Empty ones at the end are left out. See SetLocals.
	Locals []string `json:"locals,omitempty"`

	// RestartGrace is how long its shards wait for the return of an instance of its name.
	RestartGrace Duration `json:"restart_grace,omitzero"`

	// Clock is the reading of its clock when this record was written, or zero if it reports none.
	Clock Instant `json:"clock,omitzero"`
	// Answers is the latest observed reading of a leader's clock from which Clock differs, or zero
	// if it has observed none since it joined or since its clock was set.
	Answers Instant `json:"answers,omitzero"`
	// Difference is how far its clock was ahead of that reading when it observed it. Clock is of the latest write of
	// this record, so Clock and Answers do not show that.
	Difference Duration `json:"difference,omitzero"`
	// Ahead is, by job, the instant until which its shards wait, if that is further ahead of its
	// clock than clocks within the limit can be apart.
	Ahead map[string]Ahead `json:"ahead,omitempty"`

	// Waiting is, by job, the runs that have long waited for a worker. They are among the running
	// ones of Claims.
	Waiting map[string]Waiting `json:"waiting,omitempty"`
}

// Ahead is an instant that a skewed clock wrote: a watermark of the epoch with number Epoch, or
// the beginning of that epoch.
type Ahead struct {
	Epoch int     `json:"epoch"`
	At    Instant `json:"at"`
}

// Offers reports whether the member offers a job. Of a defined job it must have the kind, and support the definitions in force.
func (m *Member) Offers(j Job) bool {
	if j.Kind != "" {
		return m.hasKind(j) && !slices.Contains(m.Unsupported, j.Name)
	}
	_, registered := slices.BinarySearch(m.Jobs, j.Name)
	return registered
}

// hasKind reports whether the member has the kind of a job, in the revision that the job needs.
func (m *Member) hasKind(j Job) bool {
	revision, ok := m.Kinds[j.Kind]
	return ok && revision >= j.KindRevision
}

// OffersSame reports whether two members offer the same jobs.
func (m *Member) OffersSame(other *Member) bool {
	return slices.Equal(m.Jobs, other.Jobs) && maps.Equal(m.Kinds, other.Kinds) && (len(m.Kinds) == 0 || slices.Equal(m.Unsupported, other.Unsupported))
}

// LacksSupport reports whether the member would offer a job if it supported the definitions in force.
func (m *Member) LacksSupport(j Job) bool {
	return slices.Contains(m.Unsupported, j.Name) && (j.Kind == "" || m.hasKind(j))
}

// SetRevisions sets Revisions from a map by job, without trailing repetitions of one revision.
func (m *Member) SetRevisions(of map[string]int) {
	var all []int
	for _, job := range slices.Concat(m.Jobs, m.Unsupported) {
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
	i, found := slices.BinarySearch(m.Jobs, job)
	if !found {
		i = len(m.Jobs) + slices.Index(m.Unsupported, job)
	}
	switch n := len(m.Revisions); {
	case i < len(m.Jobs) && !found:
		return 0, false
	case n == 0:
		return 0, true
	default:
		return m.Revisions[min(i, n-1)], true
	}
}

// SetLocals sets Locals from a map by job.
func (m *Member) SetLocals(of map[string]string) {
	m.Locals = nil
	if len(of) == 0 {
		return
	}
	for i, job := range slices.Concat(m.Jobs, m.Unsupported) {
		if local := of[job]; local != "" {
			m.Locals = append(append(m.Locals, make([]string, i-len(m.Locals))...), local)
		}
	}
}

// local returns what identifies the local part of an offered job, "" if nothing does.
func (m *Member) local(job string) string {
	if i, ok := slices.BinarySearch(m.Jobs, job); ok && i < len(m.Locals) {
		return m.Locals[i]
	}
	return ""
}

// CompareLocals returns, by job, the names of the members that offer it with another local part than most of them,
// sorted. Without a most frequent one it returns all. Members without a local part of the job do not count.
func CompareLocals(members []*Member) map[string][]string {
	members = slices.DeleteFunc(slices.Clone(members), func(m *Member) bool { return len(m.Locals) == 0 })
	alike := func(m *Member) bool {
		return slices.Equal(m.Locals, members[0].Locals) && slices.Equal(m.Jobs, members[0].Jobs)
	}
	if len(members) < 2 || !slices.ContainsFunc(members, func(m *Member) bool { return !alike(m) }) {
		return nil // the usual case, at little cost for ten thousand jobs
	}
	first, differing := map[string]string{}, map[string][]string{}
	for _, m := range members {
		for i, local := range m.Locals[:min(len(m.Jobs), len(m.Locals))] {
			job := m.Jobs[i]
			switch other, known := first[job]; {
			case local == "":
			case !known:
				first[job] = local
			case local != other && differing[job] == nil:
				differing[job] = CompareLocal(members, job)
			}
		}
	}
	return differing
}

// CompareLocal is CompareLocals for one job.
func CompareLocal(members []*Member, job string) []string {
	locals := map[string]string{}
	for _, m := range members {
		locals[m.Name] = m.local(job)
	}
	return findDiffering(locals)
}

// findDiffering returns the names whose value is another than the most frequent one, or all names if several
// values are as frequent. Empty values do not count.
func findDiffering(values map[string]string) (names []string) {
	count := map[string]int{}
	for _, v := range values {
		count[v]++
	}
	delete(count, "")
	usual, most := "", 0
	for v, n := range count {
		switch {
		case n > most:
			usual, most = v, n
		case n == most:
			usual = ""
		}
	}
	if len(count) < 2 {
		return nil
	}
	for name, v := range values {
		if v != "" && v != usual {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Job is the part of a definition that planning needs. Package executor defines the other fields.
type Job struct {
	Name        string `json:"name"`
	Revision    int    `json:"revision,omitempty"`
	Shards      int    `json:"shards"`
	Strategy    string `json:"strategy,omitempty"`
	OnCrash     string `json:"on_crash,omitempty"` // CrashRerun or CrashFail; empty is CrashRerun
	MaxAttempts int    `json:"max_attempts,omitempty"`
	Tracking    string `json:"tracking,omitempty"` // TrackRuns or TrackClaims; empty is TrackRuns
	StartPaused bool   `json:"start_paused,omitempty"`
	OnOverlap   string `json:"on_overlap,omitempty"` // a value below; empty: fires wait for the run

	// Of a defined job. A registered one has none of them.
	Kind         string `json:"kind,omitempty"`
	KindRevision int    `json:"kind_revision,omitempty"` // owners must have the kind in this revision or a higher one
	Created      string `json:"created,omitempty"`       // see Defined

	// Pool bounds the runs of the fleet; empty: none does.
	Pool string `json:"pool,omitempty"`

	// RunOn are the labels that an owner of shards must have.
	RunOn map[string]string `json:"run_on,omitempty"`

	// After, Always and OnTrigger are the parts of the schedule that planning needs: the jobs that the job follows, if any,
	// and whether its runs are daemons.
	After     *scheduletext.After `json:"-"`
	Always    bool                `json:"-"`
	OnTrigger bool                `json:"-"` // it has no schedule
}

// ParamsOf returns the parameter of a definition and those of its shards; none if the definition has other fields of these
// names, as one of another library may.
func ParamsOf(def json.RawMessage) (param string, ofShards map[int]string) {
	var d struct {
		Param       string         `json:"param"`
		ShardParams map[int]string `json:"shard_params"`
	}
	if json.Unmarshal(def, &d) != nil {
		return "", nil
	}
	return d.Param, d.ShardParams
}

// MayRerun reports whether the definition permits r, the next attempt after a crash. Attempts are bounded because a
// run that crashes its instance could crash the whole fleet, one instance after another. Attempts that were handed back
// or failed crashed no instance and do not count. A daemon has no bound: without a re-run, its next fire would begin at
// once, so the bound would protect nothing.
func (j Job) MayRerun(r Ref) bool {
	return j.OnCrash != CrashFail && (j.Always || r.CrashAttempts() <= cmp.Or(j.MaxAttempts, DefaultMaxAttempts))
}

// SkipsOverlapping reports whether the fires that come due during a run are skipped.
func (j Job) SkipsOverlapping() bool { return j.OnOverlap == OverlapSkip }

// CancelsOverlapped reports whether a fire that comes due during a run ends it.
func (j Job) CancelsOverlapped() bool { return j.OnOverlap == OverlapCancel }

// OnTrigger is the text of a schedule without fires.
const OnTrigger = "on trigger"

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

// The values of Job.OnOverlap.
const (
	OverlapSkip   = "skip"
	OverlapCancel = "cancel running"
)

// MaxShards bounds Job.Shards.
const MaxShards = 10_000

// DefaultMaxAttempts applies if Job.MaxAttempts is zero.
const DefaultMaxAttempts = 3

// ParseJob decodes and checks the part of a definition that planning needs.
func ParseJob(def json.RawMessage) (Job, error) {
	if len(def) > maxDefinitionBytes {
		return Job{}, fmt.Errorf("%d bytes, at most %d", len(def), maxDefinitionBytes)
	}
	var parsed struct {
		Job
		Schedule json.RawMessage `json:"schedule"`
	}
	if err := json.Unmarshal(def, &parsed); err != nil {
		return Job{}, err
	}
	j := parsed.Job
	var err error
	schedule := scheduleText(parsed.Schedule)
	if j.After, err = parseAfterOf(j.Name, schedule); err != nil {
		return Job{}, fmt.Errorf("schedule: %w", err)
	}
	j.Always = scheduletext.IsAlways(schedule)
	j.OnTrigger = schedule == OnTrigger
	if err := jobname.Check(j.Name); err != nil {
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
	if j.OnOverlap != "" && !j.SkipsOverlapping() && !j.CancelsOverlapped() {
		return Job{}, fmt.Errorf("on_overlap is %q, neither %q nor %q", j.OnOverlap, OverlapSkip, OverlapCancel)
	}
	if j.Pool != "" {
		if err := CheckPool(j.Pool); err != nil {
			return Job{}, fmt.Errorf("pool: %w", err)
		}
	}
	if err := errors.Join(CheckLabels(j.RunOn, MaxRunOn)...); err != nil {
		return Job{}, fmt.Errorf("run_on: %w", err)
	}
	return j, nil
}

// Counts are totals over the life of a job or of an incarnation.
type Counts struct {
	Claimed   uint64 `json:"claimed,omitempty"`
	Succeeded uint64 `json:"succeeded,omitempty"`
	Failed    uint64 `json:"failed,omitempty"`
	Skipped   uint64 `json:"skipped,omitempty"` // fires skipped by the misfire policy, and fires of disabled shards
	Lost      uint64 `json:"lost,omitempty"`    // runs ended by a crash and not re-run
	Unknown   uint64 `json:"unknown,omitempty"` // claims with an unknown end after a crash, of jobs that do not track runs
	Retried   uint64 `json:"retried,omitempty"` // runs that failed and were put on record to be made again
}

// Add returns the sum. A total that reaches MaxNumber stays there.
func (c Counts) Add(o Counts) Counts {
	return Counts{
		addNumbers(c.Claimed, o.Claimed), addNumbers(c.Succeeded, o.Succeeded), addNumbers(c.Failed, o.Failed),
		addNumbers(c.Skipped, o.Skipped), addNumbers(c.Lost, o.Lost), addNumbers(c.Unknown, o.Unknown), addNumbers(c.Retried, o.Retried),
	}
}

// Epoch is a span of scheduled instants under one definition: all runs of a fire have the same
// total and the same definition. A fire belongs to the epoch with From <= fire < Until.
type Epoch struct {
	Number int     `json:"number"`
	From   Instant `json:"from"`
	Until  Instant `json:"until,omitzero"` // zero while the epoch is open

	// Released are the fires of a job that follows others, sorted, as far as shards may not have claimed them.
	Released []Release `json:"released,omitempty"`

	Def json.RawMessage `json:"definition"`
	// Stored is the definition as stored, if Def is an override of it.
	Stored json.RawMessage `json:"stored_definition,omitempty"`
	job    Job
}

// Job is the part of the definition that planning needs.
func (e *Epoch) Job() Job { return e.job }

// NewEpoch returns an epoch, or the error of ParseJob for the definition.
func NewEpoch(gen int, from Instant, def json.RawMessage) (Epoch, error) {
	j, err := ParseJob(def)
	return Epoch{Number: gen, From: from, Def: def, job: j}, err
}

// Plan is the plan of a job, which only leaders write. Goroutines share a decoded Plan, so that
// changes have to be made to a Clone.
type Plan struct {
	Format     int                     `json:"format"`
	Job        string                  `json:"job"`
	Life       string                  `json:"life,omitempty"` // see Defined; empty for registered jobs
	Paused     bool                    `json:"paused,omitempty"`
	Stopped    bool                    `json:"schedule_stopped,omitempty"` // all epochs have ended; triggers and re-runs continue
	Epochs     []Epoch                 `json:"epochs"`                     // sorted by number; never empty
	Owners     map[string]shardset.Set `json:"owners"`                     // by incarnation
	Frozen     shardset.Set            `json:"frozen,omitzero"`
	Disabled   shardset.Set            `json:"disabled,omitzero"` // may exceed the total, as in Control
	Watermarks Watermarks              `json:"watermarks,omitempty"`
	Reruns     Runs                    `json:"reruns,omitempty"`
	Triggers   []Trigger               `json:"triggers,omitempty"` // sorted by Number
	Counts     Counts                  `json:"counts,omitzero"`    // of expired incarnations
	Problem    string                  `json:"problem,omitempty"`  // why the plan is not as desired
	Resets     uint64                  `json:"resets,omitempty"`   // how many of the Resets in Control have been applied
	Fires      *Fires                  `json:"fires,omitempty"`    // nil unless another job follows this one. Not changed in place
	Followed   *Followed               `json:"followed,omitempty"` // nil unless this job follows others. Not changed in place

	// Cancels are runs that operators have cancelled, until they have ended.
	Cancels Runs `json:"cancels,omitempty"`

	// GroupPause is the job's own intent while the pause of the group applies; Paused is true then. It is nil otherwise.
	GroupPause *OwnHold `json:"group_pause,omitempty"`

	// Unoffered is the instant, by a leader's clock, since which no live instance has offered the
	// job. It is zero while one does.
	Unoffered Instant `json:"unoffered,omitzero"`

	Ended     Instant    `json:"ended,omitzero"`      // as in Claims, of expired incarnations
	Failures  Failures   `json:"failures,omitempty"`  // as in Claims, of expired incarnations
	Decisions []Decision `json:"decisions,omitempty"` // the latest, oldest first

	extra Fields
}

// Last returns the newest epoch.
func (p *Plan) Last() *Epoch { return &p.Epochs[len(p.Epochs)-1] }

// Epoch returns the epoch with number gen.
func (p *Plan) Epoch(gen int) (*Epoch, bool) {
	for i := range p.Epochs {
		if p.Epochs[i].Number == gen {
			return &p.Epochs[i], true
		}
	}
	return nil, false
}

// EpochAt returns the epoch that a fire belongs to, nil if the plan has none.
func (p *Plan) EpochAt(fire Instant) *Epoch {
	for i := range p.Epochs {
		if e := &p.Epochs[i]; e.From <= fire && (e.Until == 0 || fire < e.Until) {
			return e
		}
	}
	return nil
}

// Shards returns how many shards need an owner: the largest total of all epochs.
func (p *Plan) Shards() int {
	n := 0
	for i := range p.Epochs {
		n = max(n, p.Epochs[i].job.Shards)
	}
	return n
}

// OwnerOf returns the incarnation that owns shard s, or "" if none does.
func (p *Plan) OwnerOf(s int) string {
	for inc, shards := range p.Owners {
		if shards.Has(s) {
			return inc
		}
	}
	return ""
}

// Clone returns a copy whose fields, and elements of Epochs, Owners and Triggers, may be changed.
// Sets, marks and runs are shared, since their methods return new values.
func (p *Plan) Clone() *Plan {
	c := *p
	c.Epochs = slices.Clone(p.Epochs)
	c.Owners = maps.Clone(p.Owners)
	c.Triggers = slices.Clone(p.Triggers)
	return &c
}

// Claims is the claims record of an incarnation for a job.
type Claims struct {
	Job        string     `json:"job"`
	Watermarks Watermarks `json:"watermarks,omitempty"`
	Running    Runs       `json:"running,omitempty"`
	Reruns     Runs       `json:"reruns,omitempty"` // pending re-runs of runs that this incarnation handed back
	Counts     Counts     `json:"counts,omitzero"`
	Ended      Instant    `json:"ended,omitzero"` // when the last run ended
	Failures   Failures   `json:"failures,omitempty"`
	Fires      FireRuns   `json:"fires,omitempty"` // that have not ended, while the plan tracks them
}

// scheduleText returns the text of a definition's schedule, "" if it has none: schedules of other executors need not be
// texts.
func scheduleText(schedule json.RawMessage) (text string) {
	if len(schedule) == 0 || schedule[0] != '"' || json.Unmarshal(schedule, &text) != nil {
		return ""
	}
	return text
}

// parseAfterOf returns the jobs that a job follows by the text of its schedule, nil if there are none.
func parseAfterOf(job, schedule string) (*scheduletext.After, error) {
	a, err := scheduletext.ParseAfter(schedule)
	if a != nil && slices.Contains(a.Jobs, job) {
		return nil, errors.New("a job cannot follow itself")
	}
	return a, err
}
