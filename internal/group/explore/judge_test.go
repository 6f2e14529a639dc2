package explore

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/group/claiming"
	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

// The judge checks each commit against the promises. It follows the description of the records in the
// documents and shares no decision with the functions that are explored.

// commit applies a request to the store, and judges the commit.
func (x *explorer) commit(n *world, r request) (registry.Rev, error, error) {
	before := n.store
	if x.guardsSeen != nil {
		for i := range len(r.txn.If) + len(r.txn.Then) {
			x.guardsSeen[guardOf(x.keys, &r.txn, i)] = true
		}
	}
	rev, err := n.store.apply(r.txn, x.removed)
	if err != nil {
		return rev, err, nil
	}
	return rev, nil, x.judgeCommit(&before, n, r)
}

func (x *explorer) judgeCommit(before *storeModel, n *world, r request) error {
	var all []error
	counted := false
	for _, op := range r.txn.Then {
		inc := op.Key.Dir().Name()
		switch {
		case op.Key == x.claimsKey(inc):
			counted = true
			all = append(all, x.judgeClaims(before, n, inc, op))
			if op.Kind != registry.OpDelete && !before.alive(r.by) {
				all = append(all, fmt.Errorf("session %s wrote its claims after it had expired", r.by))
			}
		case op.Key == x.planKey():
			counted = true
			all = append(all, x.judgePlan(before, n, op))
		case op.Key.Dir() == x.keys.Members():
			all = append(all, x.judgeMember(before, r, op))
		case op.Key == x.keys.Leader():
			all = append(all, x.judgeLeader(before, r), x.judgeNamedLeader(&n.store))
		case op.Key.Dir() == x.keys.Jobs():
			all = append(all, x.judgeDefinition(before, op))
		case op.Key.Dir() == x.keys.Kinds():
			all = append(all, judgeKind(before, op))
		case op.Key == x.keys.Defined(x.segment()):
			all = append(all, x.judgeCreation(before, n, op))
		case op.Key.Dir() == x.keys.Controls() && r.term.IsZero():
			n.noteOperatorWrite(before, op)
		}
	}
	if counted {
		all = append(all, x.judgeMonotony(before, &n.store))
	}
	if x.tracks {
		all = append(all, x.judgeEndedFires(before, n))
	}
	if leader, _ := before.get(x.keys.Leader()); !r.term.IsZero() && leader.modified != r.term.Seq {
		all = append(all, fmt.Errorf("a plan of term %v was committed in term %d", r.term, leader.modified))
	}
	return errors.Join(append(all, x.judgeSeat(&n.store))...)
}

// judgeEndedFires checks that a plan shows a fire as ended only if no shard has a run of it, or of an earlier one, left.
func (x *explorer) judgeEndedFires(before *storeModel, n *world) error {
	e, ok := n.store.get(x.planKey())
	if !ok {
		return nil
	}
	is, was := x.decodePlan(e.value).Fires, record.Instant(0)
	if old, ok := before.get(x.planKey()); ok && x.decodePlan(old.value).Fires != nil {
		was = x.decodePlan(old.value).Fires.Through
	}
	if is == nil || is.Through == was {
		return nil
	}
	if is.Through < was {
		return fmt.Errorf("the fires that have ended fell from %v to %v", was, is.Through)
	}
	for _, c := range n.claims {
		if c.fire <= is.Through && !c.ended && !n.isSuperseded(c) {
			return fmt.Errorf("shard %d: the fire of %v was shown as ended before attempt %d", c.shard, c.fire, c.attempt)
		}
	}
	return x.judgeAllClaimed(n, is.Ended[len(is.Ended)-1])
}

// judgeAllClaimed checks that all shards have claimed an ended fire, or skipped it.
func (x *explorer) judgeAllClaimed(n *world, f record.EndedFire) error {
	watermarks := x.sumRecords(&n.store).watermarks
	for _, e := range n.epochs {
		if e.from > f.At || e.until != 0 && f.At >= e.until {
			continue
		}
		for s := range f.Shards {
			m := watermarks.Of(s)
			if f.Trigger > 0 && m.Trigger < f.Trigger || f.Trigger == 0 && m.Epoch <= e.number && m.Fire < f.At {
				return fmt.Errorf("shard %d: the fire of %v was shown as ended before its claim", s, f.At)
			}
		}
	}
	return nil
}

// judgeAllEnded checks, in a world at rest, that the plan shows the last tracked fire as ended.
func (x *explorer) judgeAllEnded(s *world, p *record.Plan) error {
	last := record.Instant(0)
	for _, c := range s.claims {
		if last = max(last, c.fire); !c.ended && !s.isSuperseded(c) {
			return nil // it waits for a retry, or the world has no process left
		}
	}
	if f := p.Fires; f == nil || last >= f.From && f.Through < last {
		return fmt.Errorf("the fire of %v is never shown as ended: %+v", last, f)
	}
	return nil
}

// judgeMember judges a change of a member record.
func (x *explorer) judgeMember(before *storeModel, r request, op registry.Op) error {
	alive := before.alive(record.SessionOf(op.Key.Name()))
	if op.Kind == registry.OpDelete && alive {
		return fmt.Errorf("the record of %s, which is alive, was deleted", op.Key.Name())
	}
	if op.Kind != registry.OpDelete && !before.alive(r.by) {
		return fmt.Errorf("session %s wrote its member record after it had expired", r.by)
	}
	return nil
}

// judgeLeader judges a change of the leader record: the session named there has made it, or has expired.
func (x *explorer) judgeLeader(before *storeModel, r request) error {
	if !before.alive(r.by) {
		return fmt.Errorf("session %s wrote the leader record after it had expired", r.by)
	}
	if old := x.leaderOf(before); old != "" && old != r.by && before.alive(old) {
		return fmt.Errorf("session %s replaced the leader %s, which is alive", r.by, old)
	}
	return nil
}

// judgeNamedLeader checks that the named leader is alive: an expired one does not plan.
func (x *explorer) judgeNamedLeader(after *storeModel) error {
	if named := x.leaderOf(after); !after.alive(named) {
		return fmt.Errorf("session %s is named as leader and has expired", named)
	}
	return nil
}

func (x *explorer) leaderOf(s *storeModel) registry.SessionID {
	e, ok := s.get(x.keys.Leader())
	if !ok {
		return ""
	}
	leader, err := record.Decode[record.Leader]([]byte(e.value))
	if err != nil {
		panic(err)
	}
	return leader.Session
}

// judgeSeat checks that the leader owns the seat.
func (x *explorer) judgeSeat(s *storeModel) error {
	seat, ok := s.get(x.keys.Seat())
	if leader := x.leaderOf(s); ok && leader != "" && seat.owner != leader {
		return fmt.Errorf("session %s owns the seat, and %s is the leader", seat.owner, leader)
	}
	return nil
}

// judgeDefinition judges a change of the job's definition.
func (x *explorer) judgeDefinition(before *storeModel, op registry.Op) error {
	e, ok := before.get(op.Key)
	if !ok || op.Kind == registry.OpDelete {
		return nil
	}
	_, was, err1 := record.DecodeDefinition([]byte(e.value))
	_, is, err2 := record.DecodeDefinition(op.Value)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if is.Revision <= was.Revision {
		return fmt.Errorf("revision %d of the definition was replaced by %d", was.Revision, is.Revision)
	}
	return nil
}

// judgeMonotony checks that, over all records together, no count and no watermark falls.
func (x *explorer) judgeMonotony(before, after *storeModel) error {
	if _, planned := after.get(x.planKey()); !planned {
		return nil // the job was deleted
	}
	was, is := x.sumRecords(before), x.sumRecords(after)
	a, b := was.counts, is.counts
	if a.Claimed > b.Claimed || a.Succeeded > b.Succeeded || a.Failed > b.Failed || a.Skipped > b.Skipped ||
		a.Lost > b.Lost || a.Unknown > b.Unknown || a.Retried > b.Retried {
		return fmt.Errorf("counts fell from %+v to %+v", a, b)
	}
	for s := range min(was.shards, is.shards) {
		old := was.watermarks.Of(s)
		if now := is.watermarks.Of(s); old.Max(now) != now {
			return fmt.Errorf("shard %d: the watermark fell from %+v to %+v", s, old, now)
		}
	}
	return nil
}

// recordSums are the sums of the records of the job.
type recordSums struct {
	shards     int
	watermarks record.Watermarks
	counts     record.Counts
}

func (x *explorer) sumRecords(s *storeModel) recordSums {
	var t recordSums
	e, ok := s.get(x.planKey())
	if !ok {
		return t
	}
	p := x.decodePlan(e.value)
	t.shards, t.watermarks, t.counts = p.Shards(), p.Watermarks, p.Counts
	for i := range s.entries {
		e := &s.entries[i]
		if inc := e.key.Dir().Name(); e.key == x.claimsKey(inc) {
			c := x.decodeClaims(e.value)
			t.counts = t.counts.Add(c.Counts)
			t.watermarks = t.watermarks.Fold(c.Watermarks, shardset.Range(0, t.shards))
		}
	}
	return t
}

func (x *explorer) claimsRecordOf(s *storeModel, inc string) record.Claims {
	e, ok := s.get(x.claimsKey(inc))
	if !ok {
		return record.Claims{}
	}
	return x.decodeClaims(e.value)
}

// judgeClaims judges a change of an incarnation's record of the job.
func (x *explorer) judgeClaims(before *storeModel, n *world, inc string, op registry.Op) error {
	was := x.claimsRecordOf(before, inc)
	if op.Kind == registry.OpDelete {
		if n.store.alive(record.SessionOf(inc)) && !was.Running.Shards().IsZero() {
			return fmt.Errorf("the record of %s, which is alive and runs %s, was deleted", inc, was.Running.Shards())
		}
		return nil
	}
	is := x.decodeClaims(string(op.Value))
	for s := range was.Running.Shards().All() {
		r, _ := was.Running.Of(s)
		now, runs := is.Running.Of(s)
		next, pending := is.Reruns.Of(s)
		switch {
		case runs && now == r:
		case pending && next.Fire == r.Fire && next.Trigger == r.Trigger && next.Attempt == r.Attempt+1:
		case runs && now.Fire == r.Fire && now.Trigger == r.Trigger && now.Attempt == r.Attempt+1 && now.IsRetry(): // claimed at once
		default:
			n.markEnded(s, r)
		}
	}
	for s := range is.Running.Shards().All() {
		r, _ := is.Running.Of(s)
		if old, ok := was.Running.Of(s); ok && old == r {
			continue
		}
		if err := x.judgeClaim(n, inc, s, r); err != nil {
			return err
		}
	}
	var owned shardset.Set // when a shard moves, the plan takes its pending runs; see judgePlan
	if e, ok := before.get(x.planKey()); ok {
		owned = x.decodePlan(e.value).Owners[inc]
	}
	for s := range was.Reruns.Shards().Minus(is.Reruns.Shards()).Intersect(owned).All() {
		if r, _ := was.Reruns.Of(s); !n.isClaimed(s, r) {
			return fmt.Errorf("shard %d: %s dropped attempt %d, which it put on record as pending", s, inc, r.Attempt)
		}
	}
	return nil
}

func (x *explorer) judgeClaim(n *world, inc string, shard int, r record.Ref) error {
	if err := x.judgeClaimOfDefined(n, shard); err != nil {
		return err
	}
	c := claimOf(shard, r)
	i, found := slices.BinarySearchFunc(n.claims, c, claimedRun.compareClaims)
	if found {
		return fmt.Errorf("shard %d: attempt %d at the fire of %v was claimed twice", shard, r.Attempt, r.Fire)
	}
	for _, o := range n.claims {
		if o.fire == r.Fire && o.trigger == 0 && r.Trigger == 0 && o.epoch != r.Epoch {
			return fmt.Errorf("shard %d: the fire of %v was claimed in epoch %d, and in %d before", shard, r.Fire, r.Epoch, o.epoch)
		}
		if o.shard != shard {
			continue
		}
		before := o.isSameFire(c) && o.attempt == c.attempt-1
		if before && o.ended {
			return fmt.Errorf("shard %d: attempt %d at the fire of %v follows one that ended", shard, r.Attempt, r.Fire)
		}
		if !before && !o.ended && !n.isSuperseded(o) {
			return fmt.Errorf("shard %d: the fire of %v was claimed before attempt %d at the fire of %v had ended", shard, r.Fire, o.attempt, o.fire)
		}
	}
	if r.Fire > n.clock() && r.Trigger == 0 {
		return fmt.Errorf("shard %d: the fire of %v was claimed at %v", shard, r.Fire, n.clock())
	}
	if !n.store.alive(record.SessionOf(inc)) {
		return fmt.Errorf("shard %d: %s claimed the fire of %v after its session had expired", shard, inc, r.Fire)
	}
	for _, e := range n.store.entries {
		other := e.key.Dir().Name()
		if e.key.Name() != x.segment() || e.key.Dir() != x.keys.ClaimsOf(other) || other == inc || !n.store.alive(record.SessionOf(other)) {
			continue
		}
		if x.decodeClaims(e.value).Running.Shards().Has(shard) {
			return fmt.Errorf("shard %d: %s claimed the fire of %v while %s runs it", shard, inc, r.Fire, other)
		}
	}
	n.claims = slices.Insert(slices.Clone(n.claims), i, c)
	return nil
}

func claimOf(shard int, r record.Ref) claimedRun {
	return claimedRun{shard: shard, epoch: r.Epoch, fire: r.Fire, trigger: r.Trigger, attempt: r.Attempt}
}

func (c claimedRun) compareClaims(o claimedRun) int {
	return cmp.Or(cmp.Compare(c.shard, o.shard), cmp.Compare(c.fire, o.fire), cmp.Compare(c.epoch, o.epoch),
		cmp.Compare(c.trigger, o.trigger), cmp.Compare(c.attempt, o.attempt))
}

// isClaimed reports whether a run of a shard was claimed.
func (s *world) isClaimed(shard int, r record.Ref) bool {
	_, found := slices.BinarySearchFunc(s.claims, claimOf(shard, r), claimedRun.compareClaims)
	return found
}

// isSameFire reports whether two claims of a shard are of the same fire or trigger.
func (c claimedRun) isSameFire(o claimedRun) bool { return c.fire == o.fire && c.trigger == o.trigger }

// isSuperseded reports whether a later attempt at the same fire has been claimed.
func (s *world) isSuperseded(c claimedRun) bool {
	return slices.ContainsFunc(s.claims, func(o claimedRun) bool { return o.shard == c.shard && o.isSameFire(c) && o.attempt > c.attempt })
}

// endIsUnrecorded reports whether the run of a claim has ended and its owner records that with its next
// claim only.
func (s *world) endIsUnrecorded(c claimedRun) bool {
	return slices.ContainsFunc(s.procs, func(p process) bool {
		if p.phase != phaseMember || p.jobState == nil || due.RecordsEnds(p.jobState.Plan) {
			return false
		}
		r, ok := p.jobState.Claims.Running.Of(c.shard)
		return ok && claimOf(c.shard, r).compareClaims(c) == 0 &&
			slices.ContainsFunc(p.jobState.Ended, func(e claiming.EndedRun) bool { return e.Shard == c.shard })
	})
}

// markEnded notes that the run of a claim has ended or was counted.
func (s *world) markEnded(shard int, r record.Ref) {
	i, found := slices.BinarySearchFunc(s.claims, claimOf(shard, r), claimedRun.compareClaims)
	if found {
		s.claims = slices.Clone(s.claims)
		s.claims[i].ended = true
	}
}

// judgePlan judges a change of the plan.
func (x *explorer) judgePlan(before *storeModel, n *world, op registry.Op) error {
	if op.Kind == registry.OpDelete {
		return x.judgeDeletedPlan(before, n)
	}
	is := x.decodePlan(string(op.Value))
	if err := x.judgeKindsOfOwners(before, is); err != nil {
		return err
	}
	if err := n.noteEpochs(is); err != nil {
		return err
	}
	old, ok := before.get(x.planKey())
	if !ok {
		return nil
	}
	was := x.decodePlan(old.value)
	for inc, shards := range was.Owners {
		lost := shards.Minus(is.Owners[inc])
		running, returned := x.claimsRecordOf(before, inc).Running, x.claimsRecordOf(before, inc).Reruns
		for s := range returned.Shards().Intersect(lost).All() {
			r, _ := returned.Of(s)
			if next, pending := is.Reruns.Of(s); !n.isClaimed(s, r) && (!pending || next != r) {
				return fmt.Errorf("shard %d: attempt %d, which %s put on record, is not pending", s, r.Attempt, inc)
			}
		}
		for s := range running.Shards().Intersect(lost).All() {
			r, _ := running.Of(s)
			if before.alive(record.SessionOf(inc)) {
				return fmt.Errorf("shard %d moved from %s, which is alive and runs it", s, inc)
			}
			next, pending := is.Reruns.Of(s)
			counted := is.Counts.Lost > was.Counts.Lost
			if e, ok := was.Epoch(r.Epoch); ok && !due.TracksRuns(e.Job()) {
				counted = is.Counts.Unknown > was.Counts.Unknown
			}
			if !pending && !counted {
				return fmt.Errorf("shard %d: the unfinished run of %s is neither pending nor counted", s, inc)
			} else if pending && (next.Fire != r.Fire || next.Attempt != r.Attempt+1) {
				return fmt.Errorf("shard %d: the unfinished run of %s is pending as %v", s, inc, next)
			} else if !pending {
				n.markEnded(s, r)
			}
		}
	}
	return nil
}

// noteEpochs notes the epochs of the plan.
func (s *world) noteEpochs(p *record.Plan) error {
	s.epochs = slices.Clone(s.epochs)
	for i := range p.Epochs {
		e := &p.Epochs[i]
		now := epoch{e.Number, e.Job().Shards, e.From, e.Until}
		if k := slices.IndexFunc(s.epochs, func(o epoch) bool { return o.number == e.Number }); k >= 0 {
			s.epochs[k] = now
			continue
		}
		if k := len(s.epochs); k > 0 && (s.epochs[k-1].until == 0 || s.epochs[k-1].until > e.From) {
			return fmt.Errorf("epoch %d begins before the previous one has ended", e.Number)
		}
		s.epochs = append(s.epochs, now)
	}
	return nil
}

// noteOperatorWrite counts the trigger or reset that a write of a control record requests.
func (s *world) noteOperatorWrite(before *storeModel, op registry.Op) {
	resets := func(value []byte) uint64 {
		c, err := record.DecodeControl(value)
		if err != nil {
			panic(err)
		}
		return c.Resets
	}
	was := uint64(0)
	if e, ok := before.get(op.Key); ok {
		was = resets([]byte(e.value))
	}
	if resets(op.Value) > was {
		s.resetsAccepted++
	} else {
		s.triggersAccepted++
	}
}

// judgeRest judges a world in which no step is left.
func (x *explorer) judgeRest(s *world) error {
	ready := func(p process) bool { return p.phase == phaseMember && !p.draining }
	if len(s.claims) == 0 && s.now == 0 || !slices.ContainsFunc(s.procs, ready) {
		return nil
	}
	if x.kinds > 0 {
		if ends, err := x.judgeDefinedRest(s); ends {
			return err
		}
	}
	e, ok := s.store.get(x.planKey())
	if !ok {
		return errors.New("there is no plan")
	}
	p := x.decodePlan(e.value)
	if p.Resets != uint64(s.resetsAccepted) {
		return fmt.Errorf("%d resets were accepted, and the plan has %d", s.resetsAccepted, p.Resets)
	}
	if x.awaitsRetry(s, p) {
		return nil
	}
	if !p.Reruns.Shards().IsZero() {
		for s2 := range p.Reruns.Shards().All() {
			r, _ := p.Reruns.Of(s2)
			if !slices.ContainsFunc(s.claims, func(c claimedRun) bool { return c.compareClaims(claimOf(s2, r)) == 0 }) {
				return fmt.Errorf("shard %d: attempt %d at the fire of %v is pending for ever", s2, r.Attempt, r.Fire)
			}
		}
	}
	if !p.Frozen.IsZero() {
		return fmt.Errorf("shards %s are frozen for ever", p.Frozen)
	}
	first := 0
	for _, c := range s.claims {
		if c.attempt == 1 && c.trigger == 0 {
			first++
		}
		if !c.ended && !s.isSuperseded(c) && !s.endIsUnrecorded(c) {
			return fmt.Errorf("shard %d: attempt %d at the fire of %v never ended", c.shard, c.attempt, c.fire)
		}
	}
	if x.fromEnds {
		return x.judgeNothingDue(s, p)
	}
	if x.tracks {
		if err := x.judgeAllEnded(s, p); err != nil {
			return err
		}
	}
	skipped, due := int(x.sumRecords(&s.store).counts.Skipped), x.countFires(s)
	if first+skipped != due {
		return fmt.Errorf("%d fires of shards were due, %d were claimed and %d counted as skipped", due, first, skipped)
	}
	return s.judgeTriggers()
}

// judgeNothingDue checks that no fire of the epoch in force is due whose instant counts from the end of a run.
func (x *explorer) judgeNothingDue(s *world, p *record.Plan) error {
	sums := x.sumRecords(&s.store)
	for n := range p.Last().Job().Shards {
		if d, ok := due.InEpoch(p.Last(), afterEnds{}, sums.watermarks.Of(n), s.clock(), false); ok && d.HasAny() {
			return fmt.Errorf("shard %d: the fire of %v is due for ever", n, d.Fire)
		}
	}
	return nil
}

// awaitsRetry reports whether a retry waits for an instant after the last one.
func (x *explorer) awaitsRetry(s *world, p *record.Plan) bool {
	pending := p.Reruns
	for inc := range p.Owners {
		pending = slices.Concat(pending, x.claimsRecordOf(&s.store, inc).Reruns)
	}
	return slices.ContainsFunc(pending, func(g record.RunGroup) bool {
		return g.NotBefore > s.clock() && g.NotBefore < s.clock().Add(2*retryDelay)
	})
}

// judgeTriggers checks that each accepted trigger has run on all shards.
func (s *world) judgeTriggers() error {
	shards, epochs := map[uint64]int{}, map[uint64]int{}
	for _, c := range s.claims {
		if c.trigger > 0 && c.attempt == 1 {
			shards[c.trigger]++
			epochs[c.trigger] = c.epoch
		}
	}
	if len(shards) != s.triggersAccepted {
		return fmt.Errorf("%d triggers were accepted, and %d were run", s.triggersAccepted, len(shards))
	}
	for number, ran := range shards {
		i := slices.IndexFunc(s.epochs, func(e epoch) bool { return e.number == epochs[number] })
		if i < 0 || s.epochs[i].shards != ran {
			return fmt.Errorf("trigger %d was run by %d shards of epoch %d", number, ran, epochs[number])
		}
	}
	return nil
}

// countFires returns how many fires have been due, counted for each shard.
func (x *explorer) countFires(s *world) int {
	sum := 0
	for at := instantAt(60); at <= s.clock(); at = at.Add(time.Minute) {
		for _, e := range s.epochs {
			if e.from <= at && (e.until == 0 || at < e.until) {
				sum += e.shards
			}
		}
	}
	return sum
}
