package due

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// Program computes which fires of a shard are due, by one definition of its job. A Program is
// pure: the same arguments give the same result on every instance.
type Program interface {
	// Due returns the fires due at now. The fires up to and including last have been claimed or
	// skipped; a later definition applies from until on, or never if until is zero.
	Due(last, until, now time.Time) Due
	// SkipDue returns the same for a disabled shard: all due fires are skipped, and Fire is zero.
	SkipDue(last, until, now time.Time) Due
}

// EndCounter is a Program whose fires may depend on the end of the shard's last run: the commit that
// records the end also raises the watermark to its instant, so that Due gets it as last. Definitions
// with such a Program must track runs.
type EndCounter interface {
	Program
	CountsEnds() bool
}

// CountsEnds reports whether p is an EndCounter that counts ends.
func CountsEnds(p Program) bool {
	c, ok := p.(EndCounter)
	return ok && c.CountsEnds()
}

// EndOf returns the instant to which the end of a run raises the watermark: the next millisecond, so that shards which end together
// share a watermark.
func EndOf(ended record.Instant) record.Instant { return (ended + 999_999) / 1_000_000 * 1_000_000 }

// Follower is a Program whose fires are those of other jobs, as far as the leader has released them. Due and
// SkipDue of such a Program are not called.
type Follower interface {
	Program
	FollowsJobs() bool // whether this program is one
	// DueReleased and SkipReleased are Due and SkipDue, given the released fires in ascending order.
	DueReleased(released []Release, last, now time.Time) Due
	SkipReleased(released []Release, last, now time.Time) Due
}

// asFollower returns p as a Follower, or false if its fires are not those of other jobs.
func asFollower(p Program) (Follower, bool) {
	f, ok := p.(Follower)
	return f, ok && f.FollowsJobs()
}

// Release is a fire of another job and the instant from which on it is due. Both are in ascending order.
type Release struct{ At, Released time.Time }

// Due holds the due fires of a shard.
type Due struct {
	Fire    time.Time // to be claimed now; zero for none. Never after now
	Missed  bool      // Fire is late by more than a grace, or replaces fires before it
	Skipped int       // number of fires after last that the misfire policy or the disabled shard skips
	Expired int       // those of Skipped that were owed for longer than the catch-up window
	Through time.Time // if set, all fires up to and including it count as claimed or skipped
	Wake    time.Time // if Fire is zero, when to compute again; zero: when the definition changes
}

// HasAny reports whether a fire is to be claimed or skipped.
func (d *Due) HasAny() bool { return !d.Fire.IsZero() || d.Skipped > 0 }

// Compiler compiles a stored definition. The error names the field and the rule that it
// violates. A member offers a job only if it can compile all definitions of the job in force:
// a later version of the library may support more.
type Compiler func(def json.RawMessage) (Program, error)

// InEpoch computes the due fires of an epoch for a shard with watermark m. It returns false if m
// is past the epoch.
func InEpoch(e *record.Epoch, prog Program, m record.Watermark, now record.Instant, disabled bool) (Due, bool) {
	if m.Epoch > e.Number {
		return Due{}, false
	}
	last := lastClaimed(e, m)
	f, follows := asFollower(prog)
	if follows {
		last = lastFollowed(e, m)
	}
	if !follows && e.Until != 0 && last >= e.Until { // all releases of an epoch belong to it, also those with later instants
		return Due{}, false
	}
	compute := prog.Due
	if disabled {
		compute = prog.SkipDue
	}
	if follows {
		compute = followed(f, e, disabled)
	}
	return compute(last.Time(), e.Until.Time(), now.Time()), true
}

// FirstUnclaimed returns the first fire of an epoch after watermark m, due or not; zero if there is none, or if m is past
// the epoch.
func FirstUnclaimed(e *record.Epoch, prog Program, m record.Watermark) record.Instant {
	if m.Epoch > e.Number {
		return 0
	}
	if _, ok := asFollower(prog); ok {
		last := lastFollowed(e, m)
		if i := slices.IndexFunc(e.Released, func(r record.Release) bool { return r.At > last }); i >= 0 {
			return e.Released[i].At
		}
		return 0
	}
	last := lastClaimed(e, m).Time()
	return record.InstantOf(prog.Due(last, e.Until.Time(), last).Wake)
}

// followed returns the function that computes the due fires of an epoch whose definition follows other jobs.
func followed(f Follower, e *record.Epoch, disabled bool) func(last, until, now time.Time) Due {
	released := make([]Release, len(e.Released))
	for i, r := range e.Released {
		released[i] = Release{At: r.At.Time(), Released: r.Released.Time()}
	}
	compute := f.DueReleased
	if disabled {
		compute = f.SkipReleased
	}
	return func(last, _, now time.Time) Due { return compute(released, last, now) }
}

// HasUnclaimed reports whether a shard with watermark m has not claimed or skipped all fires of an epoch up to an
// instant.
func HasUnclaimed(e *record.Epoch, prog Program, m record.Watermark, through record.Instant) bool {
	if _, ok := asFollower(prog); ok {
		return m.Epoch <= e.Number && slices.ContainsFunc(e.Released, func(r record.Release) bool {
			return r.At > lastFollowed(e, m) && r.At <= through
		})
	}
	found, ok := InEpoch(e, prog, m, through, false)
	return ok && (found.HasAny() || !found.Through.IsZero())
}

// PassDue returns a watermark that is m, raised past the fires of an epoch that were due at an instant.
func PassDue(e *record.Epoch, prog Program, m record.Watermark, at record.Instant) record.Watermark {
	if _, ok := asFollower(prog); !ok {
		return m.Max(record.Watermark{Epoch: e.Number, Fire: at})
	}
	for _, r := range e.Released { // due from the release on, however old the fire
		if r.Released <= at {
			m = m.Max(record.Watermark{Epoch: e.Number, Fire: r.At})
		}
	}
	return m
}

// lastClaimed returns the instant up to which the fires of an epoch are claimed or skipped for a shard
// with watermark m that is not past the epoch.
func lastClaimed(e *record.Epoch, m record.Watermark) record.Instant {
	last := e.From - 1 // a fire at From belongs to the epoch
	if m.Epoch == e.Number {
		last = max(last, m.Fire)
	}
	return last
}

// lastFollowed is lastClaimed for an epoch whose definition follows other jobs. All its releases are fires of it, also
// those with instants before its beginning.
func lastFollowed(e *record.Epoch, m record.Watermark) record.Instant {
	if m.Epoch == e.Number {
		return m.Fire
	}
	return 0
}

// Unclaimed returns the pending re-runs that the watermarks do not cover.
func Unclaimed(reruns record.Runs, marks record.Watermarks) record.Runs {
	out := reruns
	for _, g := range reruns {
		for _, part := range marks.Split(g.Shards) {
			if part.Watermark.Covers(g.Ref) {
				out = out.Without(part.Shards)
			}
		}
	}
	return out
}

// TriggerTargets returns the shards of an epoch that a trigger runs.
func TriggerTargets(t record.Trigger, e *record.Epoch) shardset.Set {
	all := shardset.Range(0, e.Job().Shards)
	if t.Shards == nil {
		return all
	}
	return all.Intersect(*t.Shards)
}
