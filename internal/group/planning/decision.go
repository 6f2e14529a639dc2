package planning

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/group/batch"
	"github.com/rota-dev/rota/internal/group/event"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// Decision is the output of Decide.
type Decision struct {
	Changes  []Change            // of plans, by segment
	Reapings []Reaping           // of expired incarnations that own nothing any more
	Reads    []string            // incarnations whose claims to read before deciding again
	Parts    map[string][]string // by incarnation of Reads: the segments to read, if its other claims are not needed
	Follow   []string            // incarnations whose claims the next decision waits for

	EndedPauses []EndedPause  // committed before Changes
	Retirements []Retirement  // of retired jobs that no instance offers, committed before Changes
	Rests       []Rest        // of defined jobs, committed after Changes
	MoreRests   bool          // there are more of them
	PauseEnds   time.Duration // until pauses with an end are to be checked again; zero if there is none

	GraceEnds        time.Duration     // until the first restart grace ends; zero if no member is awaited
	StrategyErrors   map[string]error  // by job: why its strategy failed
	StrategyProblems map[string]string // by segment: the problems of those jobs, for the next View
}

// Change is a new plan for a job, with the conditions and operations that belong to it. One
// transaction commits all of a change, on condition of the term, or nothing.
type Change struct {
	Segment string
	rev     registry.Rev // of the plan that it replaces; zero to create the plan
	Plan    *record.Plan
	Expired []registry.SessionID
	lost    []string // the incarnations whose shards are failed over
	conds   []registry.Cond
	ops     []registry.Op
	Why     []string // for the log, and for the plan
	Crashed []event.Crashed
	Skipped []event.Skipped
	Due     record.Instant // when the first shard that lost its owner is due; zero if none is. After a crash such changes are urgent
	Upkeep  []string       // for the log only: frequent routine steps would displace the rest in the plan
}

// Reaping deletes the records of an expired incarnation that owns nothing any more.
type Reaping struct {
	Incarnation string
	Parts       []batch.Items // the last one deletes the member record, by which the others are found
}

// NoteDecision adds the reasons of a change to its plan, for people. No decision depends on them,
// and they are no reason to write a plan.
func (c *Change) NoteDecision(d record.Decision) {
	if len(c.Why) > 0 {
		d.What, d.Lost = strings.Join(c.Why, "; "), c.lost
		c.Plan.Note(d)
	}
}

// EncodeShare returns the part of a transaction that commits a change. A plan that is too large
// for one value loses the history that is kept for people.
func (c *Change) EncodeShare(k record.Keys) (batch.Items, error) {
	if err := c.Plan.Check(); err != nil { // no instance could read it
		return batch.Items{}, fmt.Errorf("plan of %q: %w", c.Plan.Job, err)
	}
	value, err := record.Encode(c.Plan)
	if errors.Is(err, registry.ErrTooLarge) {
		c.Plan.Decisions, c.Plan.Failures = nil, nil
		value, err = record.Encode(c.Plan)
	}
	if err != nil {
		return batch.Items{}, fmt.Errorf("plan of %q: %w", c.Plan.Job, err)
	}
	share := batch.Items{Conds: slices.Clone(c.conds), Ops: slices.Clone(c.ops)}
	for _, s := range c.Expired {
		share.Conds = append(share.Conds, registry.Dead(s))
	}
	if c.rev.IsZero() {
		share.Ops = append(share.Ops, registry.Create(k.Plan(c.Segment), value))
	} else {
		share.Ops = append(share.Ops, registry.Set(k.Plan(c.Segment), c.rev, value))
	}
	return share, nil
}

// PackLoads returns the transactions that reap an incarnation, in order.
func (b *Reaping) PackLoads(limits registry.Limits, term []registry.Cond) []batch.Load[batch.Items] {
	common := append(slices.Clone(term), registry.Dead(record.SessionOf(b.Incarnation)))
	return batch.Pack(common, b.Parts, limits, func(s batch.Items) batch.Items { return s }, func(batch.Items) bool { return false })
}
