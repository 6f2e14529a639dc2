package record

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

// Act is an operator's act: who did what, when and why. Acts are for people; no decision depends on
// them.
type Act struct {
	At     Instant `json:"at"`
	By     string  `json:"by,omitempty"`
	Reason string  `json:"reason,omitempty"`
	What   string  `json:"what"`
}

// MaxActs is how many acts a control record holds.
const MaxActs = 32

// The bounds of the texts of an act, in bytes. All acts of a record fit in some 20 KiB.
const (
	maxActByBytes     = 64
	maxActReasonBytes = 256
	maxActWhatBytes   = 256
)

// Shortened returns a with its texts cut to their bounds.
func (a Act) Shortened() Act {
	a.By, a.Reason, a.What = cut(a.By, maxActByBytes), cut(a.Reason, maxActReasonBytes), cut(a.What, maxActWhatBytes)
	return a
}

// Acts are the last acts, oldest first.
type Acts []Act

// With returns acts with one more, and without the oldest beyond MaxActs. The receiver is unchanged.
func (as Acts) With(a Act) Acts {
	kept := as[max(0, len(as)+1-MaxActs):]
	return append(kept[:len(kept):len(kept)], a.Shortened())
}

// DisabledInstance returns the last act that disabled an instance, nil if none is on record.
func (as Acts) DisabledInstance(name string) *Act {
	return as.last(func(a Act) bool { return slices.Contains(a.disables("instance"), name) })
}

// DisabledHost returns the last act that disabled a host, nil if none is on record.
func (as Acts) DisabledHost(name string) *Act {
	return as.last(func(a Act) bool { return slices.Contains(a.disables("host"), name) })
}

// DisabledShard returns the last act that disabled a shard, nil if none is on record.
func (as Acts) DisabledShard(shard int) *Act {
	return as.last(func(a Act) bool { return a.DisabledShards().Has(shard) })
}

func (as Acts) last(is func(Act) bool) *Act {
	for i, a := range slices.Backward(as) {
		if is(a) {
			return &as[i]
		}
	}
	return nil
}

// DisabledShards returns the shards that an act disabled.
func (a Act) DisabledShards() (shards shardset.Set) {
	for _, name := range a.disables("shard") {
		if set, err := shardset.Parse(name); err == nil {
			shards = shards.Union(set)
		}
	}
	return shards
}

// disables returns what of a kind an act disabled. It reads the texts that Control.Describe and operator.Operator
// write: "disable shards 3 7, instances a b", "pause; disable hosts h", "drain instance a".
func (a Act) disables(kind string) (names []string) {
	for part := range strings.SplitSeq(a.What, "; ") {
		verb, rest, _ := strings.Cut(part, " ")
		if verb != "disable" && verb != "drain" {
			continue
		}
		for list := range strings.SplitSeq(rest, ", ") {
			if words := strings.Fields(list); len(words) > 0 && strings.TrimSuffix(words[0], "s") == kind {
				names = append(names, words[1:]...)
			}
		}
	}
	return names
}

// DecodeActs returns the acts on a control record, of a job or of the group as its key says. It fails if the record cannot be read.
func (k Keys) DecodeActs(key registry.Key, value []byte) (Acts, error) {
	if key == k.GroupControl() {
		c, err := DecodeGroupControl(value)
		if err != nil {
			return nil, err
		}
		return c.Acts, nil
	}
	c, err := DecodeControl(value)
	if err != nil {
		return nil, err
	}
	return c.Acts, nil
}

// Supersede reports whether as, the acts on a record in the memory of a process, are later than those on the stored record: all that
// operators have done to the stored one is among them, and they have more. What instances and leaders have done by themselves does not count.
func (as Acts) Supersede(stored Acts) bool {
	if len(stored) == 0 || len(as) == 0 { // an older version keeps no acts
		return false
	}
	for _, a := range stored {
		if a.isOfOperator() && !slices.Contains(as, a) && a.At >= as[0].At { // the oldest may have been dropped
			return false
		}
	}
	return as.HaveMoreThan(stored)
}

// HaveMoreThan reports whether an operator has done something that is among as and not among stored.
func (as Acts) HaveMoreThan(stored Acts) bool {
	return slices.ContainsFunc(as, func(a Act) bool { return a.isOfOperator() && !slices.Contains(stored, a) })
}

// AreFromMemory reports whether all acts on a record are those of instances that restored it from memory.
func (as Acts) AreFromMemory() bool {
	return len(as) > 0 && !slices.ContainsFunc(as, func(a Act) bool { return !a.isFromMemory() })
}

func (a Act) isFromMemory() bool { return a.By == byRota && a.Reason == FromMemory }

func (a Act) isOfOperator() bool { return !a.isFromMemory() && a.By != ByLeader }

// Hold is a pause, or a stop of a schedule, that is in force.
type Hold struct {
	// Until is when a pause ends by itself; zero if only an operator ends it.
	Until Instant `json:"paused_until,omitzero"`
	// HeldBy is the act that paused the job, or stopped its schedule. It is nil if neither is in force, or if an
	// older version wrote the record.
	HeldBy *Act `json:"held_by,omitempty"`
}

// endPause returns the act by which a leader ends a pause at its time.
func endPause(until, now Instant) Act {
	return Act{At: now, By: ByLeader, What: fmt.Sprintf("resume: the pause lasted until %v", until)}
}

// ByLeader is the By of an act of the leader.
const ByLeader = "the leader"

// WithoutPause returns a copy of c in which the pause has ended at its time.
func (c *Control) WithoutPause(now Instant) *Control {
	out := *c
	out.Acts = c.Acts.With(endPause(c.Until, now))
	out.Paused, out.Stopped, out.Hold = false, false, Hold{}
	return &out
}

// WithoutPause returns a copy of c in which the pause has ended at its time.
func (c *GroupControl) WithoutPause(now Instant) *GroupControl {
	out := *c
	out.Acts = c.Acts.With(endPause(c.Until, now))
	out.Paused, out.Hold = false, Hold{}
	return &out
}

// OwnHold is the job's own intent, without the pause of its group.
type OwnHold struct {
	Paused  bool `json:"paused,omitempty"`
	Stopped bool `json:"schedule_stopped,omitempty"`
}

// OwnHold returns the job's own part of what holds the plan.
func (p *Plan) OwnHold() OwnHold {
	if p.GroupPause != nil {
		return *p.GroupPause
	}
	return OwnHold{p.Paused, p.Stopped}
}
