package history

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"iter"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rota-dev/rota/executor"
)

// Outcome is how a run ended.
type Outcome = executor.Outcome

// The outcomes are those of package executor.
const (
	Succeeded   = executor.Succeeded
	Failed      = executor.Failed
	TimedOut    = executor.TimedOut
	Panicked    = executor.Panicked
	HandedBack  = executor.HandedBack
	LostSession = executor.LostSession
	Abandoned   = executor.Abandoned
	Cancelled   = executor.Cancelled
	Crashed     = executor.Crashed
)

// Limits of the texts in a record, in bytes.
const (
	MaxError  = 1 << 10 // of Run.Error; its beginning is kept
	MaxOutput = 4 << 10 // of Run.Output; its end is kept
)

// Run describes a run that has ended. Its key is Namespace, Group, Job, Fire, ID and Instance.
//
// A run may have two records: the leader records it as Crashed when the session of its owner has ended before the run, and the
// owner, if it lives, by its own outcome. Sinks keep that of the owner, which has the times, the error and the output, whichever
// they get first. The owner may have none: Keep can leave it out if the run succeeded.
type Run struct {
	// Namespace and Group are those of the fleet. A Recorder sets those that are empty.
	Namespace string `json:"namespace"`
	Group     string `json:"group"`
	// ID is executor.Run.ID.
	ID string `json:"id"`
	// Job, Fire, Trigger, Shard, Shards, Attempt, Reason, Instance and Fence are described at executor.Run.
	Job string `json:"job"`
	// Kind is the kind of a defined job, empty for a registered one.
	Kind    string    `json:"kind,omitzero"`
	Fire    time.Time `json:"fire"`
	Trigger uint64    `json:"trigger,omitzero"`
	Shard   int       `json:"shard"`
	Shards  int       `json:"shards"`
	Attempt int       `json:"attempt"`
	// Targets is executor.Run.Targets, for Fire.Shards. Sinks do not keep it.
	Targets  int    `json:"-"`
	Reason   string `json:"reason"`
	Instance string `json:"instance"`
	Fence    uint64 `json:"fence"`
	// Started is zero if the start is unknown, such as that of a run that crashed.
	Started time.Time `json:"started,omitzero"`
	Ended   time.Time `json:"ended"`
	Outcome Outcome   `json:"outcome"`
	// Error is the text of the error, at most MaxError bytes.
	Error string `json:"error,omitzero"`
	// ExitCode is the exit code of a command. Nil means that the run was not a command, or had no exit code.
	ExitCode *int `json:"exit_code,omitzero"`
	// Output is the end of the output of a command or, if the run panicked, the beginning of the stack: at most MaxOutput
	// bytes.
	Output string `json:"output,omitzero"`
	// TraceID is the trace of the run, if it has one; see executor.Run.SetTraceID.
	TraceID string `json:"trace_id,omitzero"`
	// ItemsFetched and ItemsProcessed are those that the handler counted, as handler.Dataflow does; see
	// executor.Run.CountItems.
	ItemsFetched   int64 `json:"items_fetched,omitzero"`
	ItemsProcessed int64 `json:"items_processed,omitzero"`
}

// replaces reports whether a record is the owner's of a run that a leader has recorded as crashed.
func (r *Run) replaces(kept *Run) bool { return kept.Outcome == Crashed && r.Outcome != Crashed }

// Skips counts skipped runs by the reason, which is executor.FiresSkipped.Reason.
type Skips struct {
	Misfire   int64 `json:"misfire,omitzero"`
	Disabled  int64 `json:"disabled,omitzero"`
	Unoffered int64 `json:"unoffered,omitzero"`
	Expired   int64 `json:"expired,omitzero"`
	Overlap   int64 `json:"overlap,omitzero"`
	Upstream  int64 `json:"upstream,omitzero"`
}

// newSkips returns n skipped runs of a reason.
func newSkips(reason executor.SkipReason, n int64) (s Skips) {
	if counts := s.byReason(); reason > 0 && int(reason) < len(counts) {
		*counts[reason] = n
	}
	return s
}

// byReason returns the fields, each at the number of its reason. There is none at 0.
func (s *Skips) byReason() [7]*int64 {
	return [...]*int64{
		executor.SkipMisfire: &s.Misfire, executor.SkipDisabled: &s.Disabled, executor.SkipUnoffered: &s.Unoffered,
		executor.SkipExpired: &s.Expired, executor.SkipOverlap: &s.Overlap, executor.SkipUpstream: &s.Upstream,
	}
}

// All returns the reasons with a count, in the order of the fields.
func (s Skips) All() iter.Seq2[executor.SkipReason, int64] {
	return func(yield func(executor.SkipReason, int64) bool) {
		for reason, n := range s.byReason() {
			if n != nil && *n > 0 && !yield(executor.SkipReason(reason), *n) {
				return
			}
		}
	}
}

func (s Skips) add(o Skips) Skips {
	return Skips{s.Misfire + o.Misfire, s.Disabled + o.Disabled, s.Unoffered + o.Unoffered, s.Expired + o.Expired, s.Overlap + o.Overlap, s.Upstream + o.Upstream}
}

// Duration returns the time from Started to Ended. It is zero if one of them is unknown.
func (r *Run) Duration() time.Duration {
	if r.Started.IsZero() || r.Ended.IsZero() {
		return 0
	}
	return max(0, r.Ended.Sub(r.Started))
}

// Fire sums up the runs of one fire of a job. As a record of a Recorder it covers one instance and those of its runs
// that had ended by a certain time; further runs are in a record with another Part. A Reader returns the sums.
type Fire struct {
	Namespace string    `json:"namespace"`
	Group     string    `json:"group"`
	Job       string    `json:"job"`
	Fire      time.Time `json:"fire"`
	Trigger   uint64    `json:"trigger,omitzero"`
	// Instance is empty in a sum over instances.
	Instance string `json:"instance,omitzero"`
	// Part distinguishes the records of a fire on an instance. It is zero in a sum.
	Part uint64 `json:"part,omitzero"`

	// Shards is the number of shards that the fire or trigger runs, the same on every instance: those of the job, or fewer
	// for a trigger of some shards. It is zero if no run has ended and Ended is zero.
	Shards int `json:"shards"`
	// OK counts the runs that succeeded; Failed those that failed, timed out, panicked or were cancelled; Unfinished those that were
	// handed back, abandoned or lost their session.
	OK         int64 `json:"ok"`
	Failed     int64 `json:"failed"`
	Unfinished int64 `json:"unfinished"`
	// Crashed counts the runs that the leader found crashed, whether or not they are made again. A process that lost its
	// session, but did not crash, counts the same run by its own outcome: as Unfinished, unless it ended before the loss.
	Crashed int64 `json:"crashed"`
	// Skipped counts the runs that were skipped, one for each fire and shard. If several fires were skipped at once, they
	// count in the record of the last fire that was due, since the others have no record: the skipped fires are then those
	// from SkippedFrom to Fire. SkippedFrom is zero if they are those of Fire only, or if the first one is not known.
	Skipped     int64     `json:"skipped"`
	SkippedFrom time.Time `json:"skipped_from,omitzero"`
	// SkippedBy are those of Skipped whose reason is known.
	SkippedBy Skips `json:"skipped_by,omitzero"`
	// Repeated counts the runs with an attempt above 1: retries, and runs made again after a crash or a hand-back.
	Repeated int64 `json:"repeated"`
	// FirstStart and LastEnd are zero if no run has ended.
	FirstStart time.Time `json:"first_start,omitzero"`
	LastEnd    time.Time `json:"last_end,omitzero"`
	// MaxLate is the longest time from the fire to the start of a first attempt. Fires that an operator retries or
	// backfills do not count.
	MaxLate time.Duration `json:"max_late"`
	// MaxDuration is the duration of the longest run, SumDuration that of all runs together. In JSON they are
	// nanoseconds.
	MaxDuration time.Duration `json:"max_duration"`
	SumDuration time.Duration `json:"sum_duration"`
	// ItemsFetched and ItemsProcessed are the sums of those of the runs.
	ItemsFetched   int64 `json:"items_fetched,omitzero"`
	ItemsProcessed int64 `json:"items_processed,omitzero"`
	// Ended is when the leader recorded that the fire had ended in the whole fleet, see executor.FireEnded. FailedShards
	// and SkippedShards are the shards that then had failed with their last attempt, and that had not run. All three are zero
	// before, and for jobs that no other job follows. The record is one of the leader, which may have run no shard.
	Ended         time.Time `json:"ended,omitzero"`
	FailedShards  int       `json:"failed_shards"`
	SkippedShards int       `json:"skipped_shards"`
}

// Runs returns the number of runs that ended on an instance.
func (f *Fire) Runs() int64 { return f.OK + f.Failed + f.Unfinished }

// allSucceeded reports whether no run of the fire ended otherwise.
func (f *Fire) allSucceeded() bool {
	return f.Failed+f.Unfinished+f.Crashed == 0 && f.FailedShards == 0
}

// addRun counts a run.
func (f *Fire) addRun(r *Run) {
	switch r.Outcome {
	case Succeeded:
		f.OK++
	case HandedBack, LostSession, Abandoned:
		f.Unfinished++
	case Crashed:
		f.Crashed++
	default:
		f.Failed++
	}
	one := Fire{Shards: cmp.Or(r.Targets, r.Shards), FirstStart: r.Started, LastEnd: r.Ended, MaxDuration: r.Duration(), SumDuration: r.Duration(), ItemsFetched: r.ItemsFetched, ItemsProcessed: r.ItemsProcessed}
	if r.Attempt > 1 {
		one.Repeated = 1
	} else if !r.Started.IsZero() && !r.runsPastFire() {
		one.MaxLate = max(0, r.Started.Sub(r.Fire))
	}
	f.merge(&one)
}

// runsPastFire reports whether the run is the first attempt at a fire of the past, for an operator.
func (r *Run) runsPastFire() bool {
	return r.Reason == executor.Backfill.String() || r.Reason == executor.Retried.String() && r.Trigger > 0
}

// merge adds the counts, times and durations of other.
func (f *Fire) merge(other *Fire) {
	f.Shards = max(f.Shards, other.Shards)
	f.OK += other.OK
	f.Failed += other.Failed
	f.Crashed += other.Crashed
	f.Unfinished += other.Unfinished
	f.Skipped += other.Skipped
	if f.SkippedFrom.IsZero() || !other.SkippedFrom.IsZero() && other.SkippedFrom.Before(f.SkippedFrom) {
		f.SkippedFrom = other.SkippedFrom
	}
	f.SkippedBy = f.SkippedBy.add(other.SkippedBy)
	f.ItemsFetched += other.ItemsFetched
	f.ItemsProcessed += other.ItemsProcessed
	f.Repeated += other.Repeated
	if f.FirstStart.IsZero() || !other.FirstStart.IsZero() && other.FirstStart.Before(f.FirstStart) {
		f.FirstStart = other.FirstStart
	}
	if other.LastEnd.After(f.LastEnd) {
		f.LastEnd = other.LastEnd
	}
	f.MaxLate = max(f.MaxLate, other.MaxLate)
	f.MaxDuration = max(f.MaxDuration, other.MaxDuration)
	f.SumDuration += other.SumDuration
	if other.Ended.After(f.Ended) {
		f.Ended = other.Ended
	}
	f.FailedShards = max(f.FailedShards, other.FailedShards)
	f.SkippedShards = max(f.SkippedShards, other.SkippedShards)
}

// Limits of the texts in keys, in bytes. In MySQL a key may have 3072 bytes, with four for each byte here.
const (
	maxNamespace = 190
	maxGroup     = 64
	maxJob       = 128
	maxID        = 190
	maxInstance  = 128
)

// normalize returns r as every sink can hold it and a Reader returns it.
func (r Run) normalize() Run {
	r.Namespace, r.Group = cleanKey(r.Namespace, maxNamespace), cleanKey(r.Group, maxGroup)
	r.ID, r.Job, r.Instance = cleanKey(r.ID, maxID), cleanKey(r.Job, maxJob), cleanKey(r.Instance, maxInstance)
	r.Fire, r.Started, r.Ended = roundTime(r.Fire), roundTime(r.Started), roundTime(r.Ended)
	r.Trigger, r.Fence = min(r.Trigger, math.MaxInt64), min(r.Fence, math.MaxInt64)
	r.Shard, r.Shards, r.Attempt = fitInt32(r.Shard), fitInt32(r.Shards), fitInt32(r.Attempt)
	r.Reason, r.Outcome = cleanKey(r.Reason, 32), Outcome(cleanKey(string(r.Outcome), 32))
	r.TraceID, r.Kind = cleanKey(r.TraceID, 64), cleanKey(r.Kind, 64)
	r.Error, r.Output = cleanHead(r.Error, MaxError), cleanTail(r.Output, MaxOutput)
	return r
}

// normalize returns f as every sink can hold it and a Reader returns it.
func (f Fire) normalize() Fire {
	f.Namespace, f.Group = cleanKey(f.Namespace, maxNamespace), cleanKey(f.Group, maxGroup)
	f.Job, f.Instance = cleanKey(f.Job, maxJob), cleanKey(f.Instance, maxInstance)
	f.Fire, f.FirstStart, f.LastEnd = roundTime(f.Fire), roundTime(f.FirstStart), roundTime(f.LastEnd)
	f.SkippedFrom = roundTime(f.SkippedFrom)
	f.Trigger, f.Shards = min(f.Trigger, math.MaxInt64), fitInt32(f.Shards)
	f.MaxLate, f.MaxDuration = f.MaxLate.Truncate(time.Microsecond), f.MaxDuration.Truncate(time.Microsecond)
	f.SumDuration = f.SumDuration.Truncate(time.Microsecond)
	f.Ended, f.FailedShards, f.SkippedShards = roundTime(f.Ended), fitInt32(f.FailedShards), fitInt32(f.SkippedShards)
	return f
}

// Databases have times of microseconds, and the years that four digits can express.
var firstTime, lastTime = time.Date(1000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

func roundTime(t time.Time) time.Time {
	switch {
	case t.IsZero():
		return time.Time{}
	case t.Before(firstTime):
		return firstTime
	case t.After(lastTime):
		return lastTime
	}
	return t.UTC().Truncate(time.Microsecond)
}

func fitInt32(n int) int { return min(max(n, math.MinInt32), math.MaxInt32) }

const replacement = "\uFFFD"

// cleanText replaces bytes that a database refuses: invalid UTF-8 and NUL.
func cleanText(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, replacement), "\x00", replacement)
}

// cleanHead returns the beginning of s as valid text of at most n bytes.
func cleanHead(s string, n int) string {
	if len(s) > n+utf8.UTFMax {
		s = s[:n+utf8.UTFMax]
	}
	s = cleanText(s)
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return strings.Clone(s[:n]) // a slice would keep all of it in memory
}

// cleanTail returns the end of s as valid text of at most n bytes.
func cleanTail(s string, n int) string {
	return strings.Clone(lastBytes(cleanText(lastBytes(s, n)), n))
}

// lastBytes returns the end of s, of at most n bytes, from the begin of a character on.
func lastBytes(s string, n int) string {
	if len(s) > n {
		s = s[len(s)-n:]
		for len(s) > 0 && !utf8.RuneStart(s[0]) {
			s = s[1:]
		}
	}
	return s
}

// cleanKey returns s as text of at most n bytes that every database compares byte by byte. Two texts that differ
// remain different: a text that is changed gets a hash of the original. MySQL ignores spaces at the end.
func cleanKey(s string, n int) string {
	if len(s) <= n && !strings.HasSuffix(s, " ") && !strings.Contains(s, "\x00") && utf8.ValidString(s) {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	hash := "~" + hex.EncodeToString(sum[:8])
	return cleanHead(s, n-len(hash)) + hash
}
