package record

import (
	"cmp"
	"slices"

	"github.com/rota-dev/rota/internal/shardset"
)

// Fires is the part of a plan that tracks which fires have ended: all runs of a fire, of all shards. A plan has
// one while another job follows its job. A trigger counts as a fire, at its instant.
type Fires struct {
	From    Instant     `json:"from"`             // earlier fires are not tracked
	Through Instant     `json:"through,omitzero"` // the last fire that has ended; those before it have ended, too
	Ended   []EndedFire `json:"ended,omitempty"`  // the latest, oldest first
	Open    FireRuns    `json:"open,omitempty"`   // of shards that have changed their owner
}

// EndedFire is a fire of which all runs have ended.
type EndedFire struct {
	Number  uint64  `json:"number"` // counts the ended fires of the job, from 1
	At      Instant `json:"at"`
	Trigger uint64  `json:"trigger,omitempty"`
	Shards  int     `json:"shards"`
	Failed  int     `json:"failed,omitempty"`
	Skipped int     `json:"skipped,omitempty"` // shards that did not run the fire
	Ended   Instant `json:"ended"`             // by the leader's clock
}

// MaxEndedFires bounds Fires.Ended, and the open fires of a record.
const MaxEndedFires = 32

// FireRun is what is known about the runs of a fire that has not ended.
type FireRun struct {
	Epoch   int          `json:"epoch"`
	At      Instant      `json:"at"`
	Trigger uint64       `json:"trigger,omitempty"`
	Ran     shardset.Set `json:"ran"`             // shards that have claimed the fire
	Failed  shardset.Set `json:"failed,omitzero"` // those of which the last attempt has failed, or was lost
}

// FireRuns are the runs of several fires, sorted by instant.
type FireRuns []FireRun

// IsZero reports whether rs has no fires.
func (rs FireRuns) IsZero() bool { return len(rs) == 0 }

// With returns rs with runs of one fire added. The receiver is unchanged.
func (rs FireRuns) With(r FireRun) FireRuns {
	out := slices.Clone(rs)
	i, found := slices.BinarySearchFunc(out, r, FireRun.compare)
	if !found {
		return slices.Insert(out, i, r)
	}
	out[i].Ran, out[i].Failed = out[i].Ran.Union(r.Ran), out[i].Failed.Union(r.Failed)
	return out
}

// Merge returns the runs of both.
func (rs FireRuns) Merge(others FireRuns) FireRuns {
	for _, r := range others {
		rs = rs.With(r)
	}
	return rs
}

// Within returns the runs of shards only.
func (rs FireRuns) Within(shards shardset.Set) FireRuns {
	var out FireRuns
	for _, r := range rs {
		if r.Ran, r.Failed = r.Ran.Intersect(shards), r.Failed.Intersect(shards); !r.Ran.IsZero() {
			out = append(out, r)
		}
	}
	return out
}

// After returns the runs of fires after an instant.
func (rs FireRuns) After(at Instant) FireRuns {
	i := slices.IndexFunc(rs, func(r FireRun) bool { return r.At > at })
	if i < 0 {
		return nil
	}
	return rs[i:]
}

// Latest returns the runs of the latest fires, no more than a record may hold.
func (rs FireRuns) Latest() FireRuns { return rs[max(0, len(rs)-MaxEndedFires):] }

// FireRunOf returns the entry of a claimed run.
func FireRunOf(r Ref, ran, failed shardset.Set) FireRun {
	return FireRun{Epoch: r.Epoch, At: r.Fire, Trigger: r.Trigger, Ran: ran, Failed: failed}
}

func (r FireRun) compare(o FireRun) int {
	return cmp.Or(cmp.Compare(r.At, o.At), cmp.Compare(r.Trigger, o.Trigger))
}

// Ends is the copy of a claims record that leaders watch. It is as old as the last end of a run, or the last
// skipped fire: what it says of such runs stays true.
type Ends struct {
	Incarnation string `json:"incarnation"`
	Claims
}

// Followed is the part of a plan that says how far its job has followed the fires of other jobs.
type Followed struct {
	Through Instant `json:"through"`          // their fires up to here have been released, or not
	Number  uint64  `json:"number,omitempty"` // of the last such fire, of the job named first
}

// Release makes a fire of another job one of this job.
type Release struct {
	At       Instant `json:"at"`
	Released Instant `json:"released"` // by the leader's clock: when the fire is due. It grows with At
}

// MaxReleases bounds the releases of an epoch.
const MaxReleases = 32
