package planning

import (
	"cmp"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/group/batch"
	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

// A defined job is awake while it has a definition among View.Jobs. Its leader wakes it WakeAhead before its next fire, and
// puts it to rest when its next fire is more than RestBefore away. The second has to be the longer one, by more than a regular check.
const (
	WakeAhead  = 30 * time.Second
	RestBefore = 2 * time.Minute
)

// maxRests bounds the jobs that one decision puts to rest or deletes, and those whose claims it has read for that: the leader does
// nothing else meanwhile.
const maxRests = 500

// Rest deletes the records of a defined job that is awake. Either the job rests from then on, or operators do not want this
// creation of it any more.
type Rest struct {
	Segment string
	Job     record.Job
	Records batch.Items     // deletes the records as they were read; the next Defined is among them if there is one
	Defined *record.Defined // as written by Records; nil if they leave it as it is
	Deleted bool            // operators do not want this creation
	Key     registry.Key    // of the definition: the deletion of states depends on it
	Rev     registry.Rev    // of the definition
}

// isReplaced reports whether operators want another creation of a defined job than the one that is awake, or none.
func (v *View) isReplaced(segment string) bool {
	job, ok := v.Jobs[segment]
	if !ok || job.Kind == "" || !v.DefinedSynced {
		return false
	}
	if _, unreadable := v.UnreadableInputs[segment]; unreadable {
		return false
	}
	d, ok := v.Defined[segment]
	return !ok || d.Created != job.Created
}

// wantsNoRuns reports whether a job is to run no more: operators have retired, deleted or replaced it.
func (v *View) wantsNoRuns(segment string) bool {
	return v.isRetiring(segment) || v.isReplaced(segment)
}

// creation returns the record of a defined job that is awake. It returns false while the leader does not know it.
func (p *jobPlanner) creation() (d DefinedRecord, known bool) {
	d, known = p.Defined[p.segment]
	return d, known && p.DefinedSynced && d.Created == p.Jobs[p.segment].Created
}

// beginLife makes the first plan of a defined job since it was defined, or since it rested, continue where that left off.
func beginLife(plan *record.Plan, d DefinedRecord) {
	plan.Life = d.Life()
	if r := d.Rest; r != nil {
		plan.Counts, plan.Ended, plan.Failures = r.Counts, r.Ended, r.Failures
	}
}

// lifeBegins returns the instant from which on fires of a defined job are owed that has no plan.
func (p *jobPlanner) lifeBegins(d DefinedRecord, past pastPlan) record.Instant {
	from := min(d.At, p.Now)
	if d.Rest != nil {
		from = d.Rest.From
	}
	if len(d.Earlier) == 0 {
		from = max(from, min(d.Changed, p.Now))
	}
	return max(from, past.through+1)
}

// firstEpochs returns the epochs of the first plan since a job was defined, or since it rested: more than one if it was changed
// while fires were owed and no leader was there.
func (p *jobPlanner) firstEpochs(number int, from record.Instant, d DefinedRecord) (epochs []record.Epoch, err error) {
	job := p.Jobs[p.segment]
	if d.Defined != nil {
		for _, earlier := range d.Earlier {
			if earlier.Until <= from {
				continue
			}
			e, err := record.NewEpoch(number, from, earlier.Definition)
			if err != nil {
				return nil, err
			}
			e.Until, from = earlier.Until, earlier.Until
			epochs, number = append(epochs, e), number+1
		}
	}
	last, err := record.NewEpoch(number, from, job.Def)
	last.Stored = job.Stored
	return append(epochs, last), err
}

// pastOfRest returns what a job's rest began with.
func pastOfRest(r *record.Rest) pastPlan {
	return pastPlan{epoch: r.Epoch, trigger: r.Trigger, through: r.From - 1}
}

// findRests returns the defined jobs whose records can be deleted: on a slow tick those that are to rest, and always
// those that operators do not want, but none whose plan a change of this decision replaces.
func (r *round) findRests(changes []Change) (rests []Rest, more bool) {
	if !r.DefinedSynced {
		return nil, false
	}
	planned := make(map[string]bool, len(changes))
	for i := range changes {
		planned[changes[i].Segment] = true
	}
	for _, seg := range r.definedSegments() {
		if _, unreadable := r.UnreadableInputs[seg]; unreadable || planned[seg] || r.UnreadablePlans[seg] || r.EditedPlans[seg] {
			continue
		}
		if r.candidates == maxRests {
			return rests, len(rests) > 0
		}
		p := jobPlanner{round: r, segment: seg}
		p.prev, p.next = r.Plans[seg], r.Plans[seg].Plan
		rest, ok := Rest{}, false
		if r.isReplaced(seg) {
			rest, ok = p.deleteReplaced()
		} else if r.RestTick {
			rest, ok = p.rest()
		}
		if ok {
			rests = append(rests, rest)
		}
	}
	return rests, false
}

// definedSegments returns the segments of the defined jobs that are awake, sorted, but each time from another one on: those
// that cannot rest for long must not keep others from it.
func (r *round) definedSegments() (segments []string) {
	for seg, job := range r.Jobs {
		if job.Kind != "" && (r.RestTick || r.isReplaced(seg)) {
			segments = append(segments, seg)
		}
	}
	slices.Sort(segments)
	if n := len(segments); n > maxRests {
		turn := int(uint64(r.Now)/uint64(time.Second)) % n
		segments = slices.Concat(segments[turn:], segments[:turn])
	}
	return segments
}

// readAllClaims returns the claims records of a job by incarnation, also of members that own none of its shards any more.
// Without a fresh read of each member it requests those that are missing and returns false.
func (p *jobPlanner) readAllClaims() (claims map[string]ClaimsRecord, complete bool) {
	claims, complete = map[string]ClaimsRecord{}, true
	p.candidates++
	for inc := range p.Members {
		l, ok := p.freshPart(inc, p.segment, p.prev.Rev)
		if !ok {
			p.requestRecord(inc)
			complete = false
			continue
		}
		if l.Unreadable[p.segment] {
			return nil, false
		}
		if c, ok := l.Claims[p.segment]; ok {
			claims[inc] = c
		}
	}
	return claims, complete
}

// isIdle reports whether claims show no run in progress and none that is to be made again.
func isIdle(claims map[string]ClaimsRecord) bool {
	for _, c := range claims {
		if len(c.Running)+len(c.Reruns) > 0 {
			return false
		}
	}
	return true
}

// deleteRecords adds to rest the deletion of the job's definition, plan and claims, on condition that nothing has changed since
// they were read. A claim changes a claims record, and an owner that has none may make one.
func (p *jobPlanner) deleteRecords(rest *Rest, claims map[string]ClaimsRecord) {
	items := &rest.Records
	items.Ops = append(items.Ops, registry.Delete(rest.Key, rest.Rev))
	if p.prev.Rev.IsZero() {
		items.Conds = append(items.Conds, registry.Absent(p.Keys.Plan(p.segment)))
	} else {
		items.Ops = append(items.Ops, registry.Delete(p.Keys.Plan(p.segment), p.prev.Rev))
		for inc := range p.next.Owners {
			if _, has := claims[inc]; !has {
				items.Conds = append(items.Conds, registry.Absent(p.Keys.Claims(inc, p.segment)))
			}
		}
	}
	for inc, c := range claims {
		items.Ops = append(items.Ops, registry.Delete(p.Keys.Claims(inc, p.segment), c.Rev))
	}
	slices.SortFunc(items.Ops, func(a, b registry.Op) int { return cmp.Compare(a.Key, b.Key) })
	slices.SortFunc(items.Conds, func(a, b registry.Cond) int { return cmp.Compare(a.Key, b.Key) })
}

// newRest returns a Rest of the job without its records.
func (p *jobPlanner) newRest() Rest {
	job := p.Jobs[p.segment]
	return Rest{Segment: p.segment, Job: job.Job, Key: p.Keys.Job(p.segment), Rev: job.Rev}
}

// deleteReplaced deletes the records of a creation that operators do not want any more, once its plan allows no claim and
// its runs have ended.
func (p *jobPlanner) deleteReplaced() (Rest, bool) {
	if p.next != nil && !p.next.Paused || p.hasUnabsorbedClaims(p.segment) {
		return Rest{}, false
	}
	claims, complete := p.readAllClaims()
	if !complete {
		return Rest{}, false
	}
	for inc, c := range claims {
		if len(c.Running) > 0 {
			p.follow[inc] = true
			return Rest{}, false
		}
	}
	rest := p.newRest()
	rest.Deleted = true
	p.deleteRecords(&rest, claims)
	d, known := p.Defined[p.segment]
	switch key := p.Keys.Defined(p.segment); {
	case !known: // nor may it have a value that another program wrote, which lists leave out
		rest.Records.Conds = append(rest.Records.Conds, registry.Absent(key))
	case d.IsDeleted():
		rest.Defined = d.Tombstone(p.Now, d.By)
		value, err := record.Encode(rest.Defined)
		if err != nil {
			return Rest{}, false
		}
		rest.Records.Ops = append(rest.Records.Ops, registry.Set(key, d.Rev, value))
	}
	// An intent for the next creation stays.
	isLast := !known || d.IsDeleted()
	switch c, ok := p.Control[p.segment]; {
	case ok && (isLast || !c.HasActsSince(d.At)):
		rest.Records.Ops = append(rest.Records.Ops, registry.Delete(p.Keys.Control(p.segment), c.Rev))
	case !ok && isLast: // nor may there be one that is not observed yet: nobody would delete it
		rest.Records.Conds = append(rest.Records.Conds, registry.Absent(p.Keys.Control(p.segment)))
	}
	return rest, true
}

// mayRest reports whether a job may rest as far as its plan, its intents and the jobs beside it are concerned.
func (p *jobPlanner) mayRest(d DefinedRecord, known bool) bool {
	plan, job := p.next, p.Jobs[p.segment]
	switch {
	case !known || plan == nil || job.Revision != d.Revision || plan.Last().Job().Revision != d.Revision:
		return false // a definition is to come into force
	case len(plan.Epochs) > 1 || plan.Last().Until != 0 || len(plan.Last().Stored) > 0 || plan.Paused || plan.Stopped || plan.GroupPause != nil || plan.Unoffered != 0:
		return false
	case len(plan.Reruns)+len(plan.Triggers)+len(plan.Cancels) > 0 || !plan.Frozen.IsZero() || !plan.Disabled.IsZero() || plan.Fires != nil:
		return false
	case job.After != nil || job.Always || !due.TracksRuns(job.Job) || len(p.followers[p.segment]) > 0:
		return false
	case !p.unownedShards().IsZero() || p.hasUnabsorbedClaims(p.segment):
		return false // its fires may have come due
	}
	c, ok := p.Control[p.segment]
	return !ok || !c.KeepsAwake()
}

// rest puts the job to rest if its next fire is far away.
func (p *jobPlanner) rest() (Rest, bool) {
	d, known := p.creation()
	if !p.mayRest(d, known) {
		return Rest{}, false
	}
	e := p.next.Last()
	prog, err := p.compile(e)
	if err != nil || due.CountsEnds(prog) {
		return Rest{}, false
	}
	if at := prog.Due(p.Now.Time(), time.Time{}, p.Now.Time()).Wake; !at.IsZero() && record.InstantOf(at) <= p.Now.Add(RestBefore) {
		return Rest{}, false // whatever the claims say, which are not read for that
	}
	claims, complete := p.readAllClaims()
	if !complete || !isIdle(claims) {
		return Rest{}, false
	}
	rested := record.Rest{Number: 1, Epoch: e.Number, From: e.From, Counts: p.next.Counts, Ended: p.next.Ended, Failures: p.next.Failures}
	if d.Rest != nil {
		rested.Number = d.Rest.Number + 1
	}
	marks := slices.Clone(p.next.Watermarks)
	for inc, c := range claims {
		marks = marks.Fold(c.Watermarks, p.next.Owners[inc])
		rested.Counts = rested.Counts.Add(c.Counts)
		rested.Ended = max(rested.Ended, c.Ended)
		rested.Failures = rested.Failures.With(c.Failures...)
	}
	next, same := nextFire(e, prog, marks, p.next.Shards())
	if !same || next != 0 && next <= p.Now.Add(RestBefore) {
		return Rest{}, false
	}
	for _, part := range marks.Split(shardset.Range(0, p.next.Shards())) {
		rested.Trigger = max(rested.Trigger, part.Trigger)
		if part.Epoch == e.Number {
			rested.From = max(rested.From, part.Fire+1)
		}
	}
	if next == 0 && !e.Job().OnTrigger {
		rested.Finished = p.Now
	}
	rested.Failing = !due.FailingShards(p.next, map[int]due.Program{e.Number: prog}, marks, nil, rested.Failures).IsZero()
	return p.restWith(d, rested, next, claims)
}

// nextFire returns the first fire of an epoch that no shard has claimed, due or not, zero if there is none. It returns false
// if the shards differ in it.
func nextFire(e *record.Epoch, prog due.Program, marks record.Watermarks, shards int) (next record.Instant, same bool) {
	for i, part := range marks.Split(shardset.Range(0, shards)) {
		at := due.FirstUnclaimed(e, prog, part.Watermark)
		if i > 0 && at != next {
			return 0, false
		}
		next = at
	}
	return next, true
}

// restWith returns the transaction that puts the job to rest.
func (p *jobPlanner) restWith(d DefinedRecord, rested record.Rest, next record.Instant, claims map[string]ClaimsRecord) (Rest, bool) {
	defined := *d.Defined
	defined.Rest, defined.Next, defined.Changed, defined.Earlier = &rested, next, 0, nil
	value, err := record.Encode(&defined)
	if err != nil {
		return Rest{}, false
	}
	rest := p.newRest()
	rest.Defined = &defined
	p.deleteRecords(&rest, claims)
	rest.Records.Ops = append(rest.Records.Ops, registry.Set(p.Keys.Defined(p.segment), d.Rev, value))
	return rest, true
}
