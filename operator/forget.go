package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/group/batch"
	"github.com/rota-dev/rota/internal/group/snapshot"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// ErrOffered means that live instances offer the job, or still own shards of it. The text names them.
var ErrOffered = errors.New("the job is in use")

// Forget deletes a job for good: its definition, its plan with counts and failures, the intent of operators with the
// acts, claims of expired instances, and the states that Run.Checkpoint or Owned.Save have stored for its shards. Pending
// re-runs and triggers are lost. History that package history has written stays.
//
// Forget fails with ErrOffered while a live instance offers the job, or would if it supported the definition, or owns
// shards of it: deploy without the job, or call Executor.Withdraw, first. It fails with ErrUnknownJob if nothing of the
// job is on record. An instance that offers the job later stores it again, as a new job.
//
// The records are deleted in one transaction, on condition that they are as Forget read them: a plan for an instance
// that has joined meanwhile prevents it. Forget then waits for a second. If an instance that found the definition stored
// has joined within it, Forget stores the definition again, as that of a new job, and fails with ErrOffered. An
// instance that takes longer than that from its comparison of definitions to its join offers a job that no other
// record knows; it has to register the job again.
//
// Forget fails with ErrDefined for a job that is defined as data: Delete deletes it.
//
// Forget also deletes records of the job that cannot be read. If the plan is one of them, an instance that has claims of the
// job counts as an owner until its session ends.
//
// Forget leaves no act, since the record that would hold it is deleted.
func (o *Operator) Forget(ctx context.Context, job string) error {
	if err := o.forget(ctx, job); err != nil {
		return fmt.Errorf("forget %q: %w", job, err)
	}
	return nil
}

func (o *Operator) forget(ctx context.Context, job string) error {
	if err := o.checkFormat(ctx); err != nil {
		return err
	}
	segment := record.Segment(job)
	if d, err := o.readDefined(ctx, segment); err != nil || d.Defined != nil {
		return cmp.Or(err, ErrDefined)
	}
	for {
		known := true
		txn, def, err := o.forgetTxn(ctx, job, segment)
		if errors.Is(err, ErrUnknownJob) {
			known, err = false, nil // an earlier call may have left states
		}
		if err != nil {
			return err
		}
		if known {
			_, err = registry.Apply(ctx, o.reg, txn)
			if _, refused := batch.FindConflict(err); refused {
				continue // something has changed: check again
			}
			if err == nil {
				err = o.recheckForgotten(ctx, job, def)
			}
			if err != nil {
				return err
			}
		}
		states, err := o.deleteStates(ctx, segment)
		if err == nil && !known && states == 0 {
			return ErrUnknownJob
		}
		return err
	}
}

// forgetSettling is how long Forget waits for instances that are just joining. A join takes a few round trips.
const forgetSettling = time.Second

// recheckForgotten stores a deleted definition again if a live member offers the job by now.
func (o *Operator) recheckForgotten(ctx context.Context, job string, def []byte) error {
	select {
	case <-time.After(forgetSettling):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	_, err := o.findExpired(ctx, job, nil)
	if !errors.Is(err, ErrOffered) || len(def) == 0 {
		return err
	}
	_, stored := registry.Apply(ctx, o.reg, registry.Txn{Then: []registry.Op{registry.Create(o.keys.Job(record.Segment(job)), def)}})
	if _, exists := batch.FindConflict(stored); exists {
		return err // the instance has stored its own
	}
	return errors.Join(err, stored)
}

// forgetTxn returns the transaction that deletes the records of a job, and the definition that it deletes.
func (o *Operator) forgetTxn(ctx context.Context, job, segment string) (txn registry.Txn, def []byte, err error) {
	var owners []string
	for _, key := range []registry.Key{o.keys.Job(segment), o.keys.Plan(segment), o.keys.Control(segment)} {
		e, found, err := o.getRecord(ctx, key)
		if err != nil {
			return txn, nil, err
		}
		if !found {
			txn.If = append(txn.If, registry.Absent(key))
			continue
		}
		txn.Then = append(txn.Then, registry.Delete(key, e.Modified))
		switch key {
		case o.keys.Job(segment):
			def = e.Value
		case o.keys.Plan(segment):
			p, err := record.DecodePlan(e.Value)
			switch {
			case errors.Is(err, ErrNewerFormat):
				return txn, nil, fmt.Errorf("read %s: %w", key, err)
			case err != nil: // every instance with claims may be an owner
				if owners, err = o.findClaimants(ctx, segment); err != nil {
					return txn, nil, err
				}
			default:
				owners = slices.Collect(maps.Keys(p.Owners))
			}
		}
	}
	if len(txn.Then) == 0 {
		return txn, nil, ErrUnknownJob
	}
	expired, err := o.findExpired(ctx, job, owners)
	if err != nil {
		return txn, nil, err
	}
	for _, inc := range expired {
		if err := o.addExpiredClaims(ctx, &txn, inc, segment, slices.Contains(owners, inc)); err != nil {
			return txn, nil, err
		}
	}
	return txn, def, nil
}

// findClaimants returns the incarnations that have a claims record of a job.
func (o *Operator) findClaimants(ctx context.Context, segment string) (incs []string, err error) {
	listing, err := o.reg.List(ctx, o.keys.Members(), registry.ReadOptions{})
	if err != nil {
		return nil, err
	}
	for _, e := range listing.Entries {
		_, found, err := o.getRecord(ctx, o.keys.Claims(e.Key.Name(), segment))
		if err != nil {
			return nil, err
		}
		if found {
			incs = append(incs, e.Key.Name())
		}
	}
	return incs, nil
}

// findExpired returns the owners and members whose sessions have expired, sorted. It fails with ErrOffered if a live
// member offers the job, or a live one of owners exists.
func (o *Operator) findExpired(ctx context.Context, job string, owners []string) ([]string, error) {
	s := snapshot.New(o.keys)
	if err := o.listMembers(ctx, s); err != nil {
		return nil, err
	}
	if damaged := s.Damaged(o.keys.Members()); len(damaged) > 0 {
		return nil, fmt.Errorf("read %s: the member may offer the job", damaged[0])
	}
	members := memberStatuses(s, job, 0)
	for _, inc := range owners {
		if members[inc] == nil {
			members[inc] = &MemberStatus{Instance: record.InstanceOf(inc), Alive: s.IsLive(record.SessionOf(inc))}
		}
	}
	var expired, using []string
	for _, inc := range slices.Sorted(maps.Keys(members)) {
		switch m := members[inc]; {
		case !m.Alive:
			expired = append(expired, inc)
		case m.Offers || m.Unsupported:
			using = append(using, m.Instance+" offers it")
		case slices.Contains(owners, inc):
			using = append(using, m.Instance+" owns shards of it")
		}
	}
	if len(using) > 0 {
		return nil, fmt.Errorf("%w: %s", ErrOffered, strings.Join(using, ", "))
	}
	return expired, nil
}

// addExpiredClaims adds the claims record of an expired incarnation to a transaction, if there is one. For an owner
// the transaction is conditional on the end of the session: a live owner may claim at any time.
func (o *Operator) addExpiredClaims(ctx context.Context, txn *registry.Txn, inc, segment string, owns bool) error {
	key := o.keys.Claims(inc, segment)
	e, found, err := o.getRecord(ctx, key)
	if err != nil {
		return err
	}
	switch {
	case found:
		txn.Then = append(txn.Then, registry.Delete(key, e.Modified))
	case owns:
		txn.If = append(txn.If, registry.Absent(key))
	default:
		return nil
	}
	txn.If = append(txn.If, registry.Dead(record.SessionOf(inc)))
	return nil
}

// deleteStates deletes the states of a job's shards on conditions, and returns how many there were.
func (o *Operator) deleteStates(ctx context.Context, segment string, conds ...registry.Cond) (int, error) {
	listing, err := o.reg.List(ctx, o.keys.Data(segment, 0).Dir(), registry.ReadOptions{Fresh: true})
	if err != nil {
		return 0, err
	}
	loads := batch.Pack(conds, listing.Entries, o.reg.Limits(), func(e registry.Entry) batch.Items {
		return batch.Items{Ops: []registry.Op{registry.Delete(e.Key, e.Modified)}}
	}, func(registry.Entry) bool { return false })
	for _, ld := range loads {
		if _, err := registry.Apply(ctx, o.reg, ld.Txn); err != nil {
			return 0, fmt.Errorf("delete states of shards: %w", err)
		}
	}
	return len(listing.Entries), nil
}
