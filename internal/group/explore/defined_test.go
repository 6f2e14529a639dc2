package explore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/group/defined"
	"github.com/rota-dev/rota/internal/group/leader"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/schedule"
)

// Worlds whose job is defined as data: operators define and delete it, leaders wake it, and processes offer it by their kind.

// kindName is the kind of the job.
const kindName = "kind"

// kindOf returns the kind of a process. The processes have its revisions in turn.
func (x *explorer) kindOf(p *process) record.Kind {
	return record.Kind{Name: kindName, Revision: 1 + int(p.name[0]-'a')%x.kinds}
}

// addKind adds the number of defined jobs to a first world, so that leaders follow them, and the job if the scenario begins with it.
func (x *explorer) addKind(s *world, sc scenario) {
	counts, err := record.Encode(&record.KindCounts{})
	if err != nil {
		panic(err)
	}
	x.must(s.store.apply(registry.Txn{Then: []registry.Op{registry.Create(x.keys.KindCounts(), counts)}}, x.removed))
	if sc.isDefined {
		x.must(s.store.apply(*x.buildCreation(s), x.removed))
		s.created++
	}
}

// definedRecord returns the record of the defined job, nil if there is none.
func (x *explorer) definedRecord(s *storeModel) *record.Defined {
	e, ok := s.get(x.keys.Defined(x.segment()))
	if !ok {
		return nil
	}
	d, err := record.DecodeDefined([]byte(e.value))
	if err != nil {
		panic(err)
	}
	return d
}

// buildCreation returns the transaction that defines the job, nil if it is defined. The job needs the newest revision of the kind.
func (x *explorer) buildCreation(s *world) *registry.Txn {
	reg := &recordingRegistry{store: &s.store}
	def := operator.Definition{Name: jobName, Kind: kindName, KindRevision: x.kinds, Schedule: schedule.Every(time.Minute), Shards: x.shards}
	if _, err := x.operatorOf(reg).Define(context.Background(), def, operator.IfAbsent(), operator.AllowUnknownKind()); err != nil && !errors.Is(err, errRecorded) && !errors.Is(err, operator.ErrExists) {
		panic(err)
	}
	if reg.recorded == nil {
		return nil
	}
	x.setInstants(reg.recorded, func(d *record.Defined) {
		token := fmt.Sprint("t", s.created+1) // the operator drew one
		d.Definition = []byte(strings.ReplaceAll(string(d.Definition), d.Created, token))
		d.Created, d.At = token, s.clock()
		d.Next = d.At.Add(-1).Add(time.Minute - time.Duration(int64(d.At.Add(-1))%int64(time.Minute)))
	})
	return reg.recorded
}

// setInstants edits the record of the defined job in a transaction, since the operator used the wall clock.
func (x *explorer) setInstants(t *registry.Txn, edit func(d *record.Defined)) {
	for i := range t.Then {
		if t.Then[i].Key != x.keys.Defined(x.segment()) {
			continue
		}
		d, err := record.DecodeDefined(t.Then[i].Value)
		if err != nil {
			panic(err)
		}
		d.By = record.Act{} // a text for people
		edit(d)
		if t.Then[i].Value, err = record.Encode(d); err != nil {
			panic(err)
		}
	}
}

// buildDeletion returns the transaction that deletes the job, nil if it is not defined, and whether a Delete that was committed may return.
func (x *explorer) buildDeletion(s *world) (t *registry.Txn, returns bool) {
	reg := &recordingRegistry{store: &s.store}
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	err := x.operatorOf(reg).Delete(ctx, jobName)
	if reg.recorded != nil {
		x.setInstants(reg.recorded, func(d *record.Defined) {
			if d.Gone != 0 {
				d.Gone = s.clock()
			}
		})
	}
	return reg.recorded, err == nil || errors.Is(err, operator.ErrUnknownJob)
}

// emitDefinitions emits the requests of operators who define and delete the job.
func (x *explorer) emitDefinitions(s *world, p *process, step emitProcessStep) {
	if s.left.defines > 0 && p.flights[kindCreate] == nil {
		if t := x.buildCreation(s); t != nil {
			step("defines the job", func(n *world, p *process) error {
				n.left.defines--
				p.send(kindCreate, *t)
				return nil
			})
		}
	}
	if !s.deleting && (s.left.deletes == 0 || p.flights[kindDelete] != nil) {
		return
	}
	t, returns := x.buildDeletion(s)
	switch {
	case s.deleting && returns:
		step("learns that no run of the deleted job can be claimed", func(n *world, _ *process) error {
			n.deleting, n.deleted = false, fmt.Sprint("t", n.created)
			return nil
		})
	case !s.deleting && t != nil:
		step("deletes the job", func(n *world, p *process) error {
			n.left.deletes--
			p.send(kindDelete, *t)
			return nil
		})
	}
}

// settleDefinition makes an operator act on the outcome of a definition or deletion: it repeats one that was refused.
func (x *explorer) settleDefinition(n *world, p *process, kind int, f *inFlight) {
	switch {
	case kind == kindDelete && f.err == nil:
		n.deleting = true
	case kind == kindDelete:
		if t, _ := x.buildDeletion(n); t != nil {
			p.send(kind, *t)
		}
	case f.err != nil:
		if t := x.buildCreation(n); t != nil {
			p.send(kind, *t)
		}
	}
}

// stepDefined makes a leader wake the defined job, or delete its last records.
func (x *explorer) stepDefined(s *world, l *leader.Leader, p *process) {
	if x.kinds == 0 {
		return
	}
	l.Self.Clock = func() time.Time { return s.clock().Time() }
	entries := map[string]defined.Entry{}
	for i := range p.feeds[feedDefined] {
		e, err := defined.NewEntry(p.feeds[feedDefined][i].entry())
		if err != nil {
			panic(err)
		}
		entries[p.feeds[feedDefined][i].key.Name()] = e
	}
	l.ShowDefined(entries)
	if err := l.StepDefined(context.Background()); err != nil && !errors.Is(err, errRecorded) {
		panic(err)
	}
}

// judgeKind judges a write of the record of the kind.
func judgeKind(before *storeModel, op registry.Op) error {
	e, ok := before.get(op.Key)
	if !ok || op.Key.Name() == record.CountsName {
		return nil
	}
	was, err1 := record.DecodeKind([]byte(e.value))
	is, err2 := record.DecodeKind(op.Value)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if is.Revision <= was.Revision {
		return fmt.Errorf("revision %d of the kind was replaced by %d", was.Revision, is.Revision)
	}
	return nil
}

// judgeCreation judges a write of the record of the defined job: each creation comes once, and replaces none that was not deleted.
func (x *explorer) judgeCreation(before *storeModel, n *world, op registry.Op) error {
	is, was := x.definedRecord(&n.store), x.definedRecord(before)
	switch {
	case is == nil || is.IsDeleted():
		if was == nil || is == nil && !was.IsDeleted() {
			return fmt.Errorf("%v deletes a record of a job that is not deleted", op)
		}
	case was != nil && was.Created == is.Created:
	case was != nil && !was.IsDeleted():
		return fmt.Errorf("creation %s replaces %s, which was not deleted", is.Created, was.Created)
	case is.Created != fmt.Sprint("t", n.created+1):
		return fmt.Errorf("creation %s comes again", is.Created)
	default:
		n.created++
	}
	return nil
}

// judgeClaimOfDefined judges a claim by the records of the defined job: no run of a deleted job is claimed once Delete has returned.
func (x *explorer) judgeClaimOfDefined(n *world, shard int) error {
	if x.kinds == 0 {
		return nil
	}
	e, planned := n.store.get(x.planKey())
	if !planned {
		return fmt.Errorf("shard %d was claimed of a deleted job", shard)
	}
	if created := x.decodePlan(e.value).Last().Job().Created; created == n.deleted {
		return fmt.Errorf("shard %d: a run of %s was claimed after Delete had returned", shard, created)
	}
	return nil
}

// judgeDeletedPlan judges the deletion of the plan: operators have deleted the job, and no other record is left of it.
func (x *explorer) judgeDeletedPlan(before *storeModel, n *world) error {
	old, planned := before.get(x.planKey())
	if !planned {
		return errors.New("a plan was deleted that was not there")
	}
	p := x.decodePlan(old.value)
	if d := x.definedRecord(before); x.kinds == 0 || d != nil && d.Created == p.Last().Job().Created {
		return errors.New("the plan was deleted")
	}
	for _, e := range n.store.entries {
		if inc := e.key.Dir().Name(); e.key == x.claimsKey(inc) {
			return fmt.Errorf("the claims of %s stay without the job", inc)
		}
	}
	if _, stored := n.store.get(x.keys.Job(x.segment())); stored {
		return errors.New("the definition stays without its plan")
	}
	n.claims, n.epochs = nil, nil // of the next creation
	return nil
}

// judgeKindsOfOwners checks that shards are assigned only to members with the revision of the kind that the job needs.
func (x *explorer) judgeKindsOfOwners(before *storeModel, is *record.Plan) error {
	if x.kinds == 0 {
		return nil
	}
	var owned map[string]shardset.Set
	if e, ok := before.get(x.planKey()); ok {
		owned = x.decodePlan(e.value).Owners
	}
	for inc, shards := range is.Owners {
		if shards.Minus(owned[inc]).IsZero() {
			continue
		}
		if x.kindOf(&process{name: inc}).Revision < x.kinds {
			return fmt.Errorf("%s was assigned shards %s, and its kind is too old", inc, shards)
		}
	}
	return nil
}

// judgeDefinedRest judges, in a world at rest, that no record of a deleted job is left. It reports whether this is the whole judgement.
func (x *explorer) judgeDefinedRest(s *world) (ends bool, err error) {
	d := x.definedRecord(&s.store)
	if d != nil && !d.IsDeleted() {
		offers := func(p process) bool { return p.phase == phaseMember && !p.draining && x.kindOf(&p).Revision == x.kinds }
		return !slices.ContainsFunc(s.procs, offers) || s.now == 0, nil
	}
	if s.created > x.deletes-s.left.deletes {
		return true, fmt.Errorf("%d creations were deleted, and %d deletions requested", s.created, x.deletes-s.left.deletes)
	}
	if d != nil && !d.IsGone() {
		return true, errors.New("the job is never deleted")
	}
	for _, e := range s.store.entries {
		if e.key.Name() == x.segment() && e.key != x.keys.Defined(x.segment()) {
			return true, fmt.Errorf("%s is left of the deleted job", e.key)
		}
	}
	return true, nil
}
