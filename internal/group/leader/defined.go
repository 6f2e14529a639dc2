package leader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rota-dev/rota/internal/group/batch"
	"github.com/rota-dev/rota/internal/group/defined"
	"github.com/rota-dev/rota/internal/group/elector"
	"github.com/rota-dev/rota/internal/group/feed"
	"github.com/rota-dev/rota/internal/group/planning"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// maxSteps bounds the defined jobs that one round wakes or deletes: the leader plans nothing meanwhile.
const maxSteps = 500

// countsInterval is the least time between two writes of the numbers of defined jobs.
const countsInterval = 5 * time.Second

// definedJobs follows the jobs that were defined as data, wakes those that are due, and puts them to rest. It belongs to the
// goroutine of its leader.
type definedJobs struct {
	index      defined.Index
	kinds      *feed.Reader[record.KindCounts]
	buckets    []*feed.Reader[defined.Entry] // nil: no job was ever defined, as far as the leader knows
	synced     bool
	unreadable map[string]bool // segments whose record cannot be read

	countsRev    registry.Rev
	counts       record.KindCounts // as stored
	countAgainAt time.Time
	collisions   map[string]bool // segments whose job was registered in code as well
}

// decodeKindCounts decodes a record of the directory of kinds. A leader needs none but the counts.
func decodeKindCounts(e registry.Entry) (c record.KindCounts, err error) {
	if e.Key.Name() == record.CountsName {
		return record.DecodeKindCounts(e.Value)
	}
	return c, nil
}

// followBuckets begins to follow the buckets, once a job has been defined in the group.
func (l *Leader) followBuckets(ctx context.Context, wg *sync.WaitGroup) {
	d := &l.defined
	d.unreadable, d.collisions = map[string]bool{}, map[string]bool{}
	for bucket := range record.Buckets {
		d.buckets = append(d.buckets, followDirectory(ctx, wg, l, l.Self.Keys.DefinedIn(bucket), defined.NewEntry))
	}
}

// updateDefined applies what the feeds of kinds and buckets have delivered.
func (l *Leader) updateDefined(ctx context.Context, wg *sync.WaitGroup) {
	d := &l.defined
	if d.kinds == nil {
		return // a term without its loop, of a test
	}
	d.kinds.Drain(func(n feed.Update[record.KindCounts]) {
		if n.Name != record.CountsName {
			return
		}
		d.counts, d.countsRev = n.Value, n.Rev
		if n.Deleted {
			d.countsRev = registry.Rev{}
		}
		if d.buckets == nil && !n.Deleted {
			l.followBuckets(ctx, wg)
		}
	})
	synced := len(d.buckets) > 0
	for _, b := range d.buckets {
		synced = b.Drain(func(n feed.Update[defined.Entry]) {
			l.LastCommit = max(l.LastCommit, n.Rev.Seq)
			setMembership(d.unreadable, n.Name, n.Unreadable)
			if n.Deleted || n.Unreadable {
				d.index.Remove(n.Name)
			} else {
				d.index.Put(n.Name, n.Value)
			}
			l.showDefined(n.Name)
		}) && synced
	}
	if synced != d.synced {
		d.synced, l.idle = synced, false
	}
	l.View.DefinedSynced = synced
}

// ShowDefined makes these all the defined jobs that the leader knows. Package explore calls it in place of the feeds.
func (l *Leader) ShowDefined(entries map[string]defined.Entry) {
	l.defined.synced, l.View.DefinedSynced = true, true
	for segment, e := range entries {
		l.defined.index.Put(segment, e)
		l.showDefined(segment)
	}
}

// showDefined adds the record of a defined job to the view while the job is awake. Planning needs no other.
func (l *Leader) showDefined(segment string) {
	job, awake := l.View.Jobs[segment]
	if !awake || job.Kind == "" {
		delete(l.View.Defined, segment)
		return
	}
	l.idle = false
	e, known := l.defined.index.Get(segment)
	if !known {
		delete(l.View.Defined, segment)
		return
	}
	if rec, err := e.Decode(); err == nil {
		l.View.Defined[segment] = rec
	}
}

// noteFollowed has the index decide again about the jobs that a job follows.
func (l *Leader) noteFollowed(after []string) {
	for _, job := range after {
		l.defined.index.Ask(record.Segment(job))
	}
}

// besides returns what the view knows of a defined job beside the record in its bucket.
func (l *Leader) besides(segment string, followers map[string][]string) (b defined.Beside) {
	if job, ok := l.View.Jobs[segment]; ok {
		b.Awake = &job
	}
	_, b.Planned = l.View.Plans[segment]
	b.Planned = b.Planned || l.View.UnreadablePlans[segment]
	if c, ok := l.View.Control[segment]; ok {
		b.Wanted = c.KeepsAwake()
	}
	b.Followed = len(followers[segment]) > 0
	return b
}

// nextStep returns when StepDefined has something to do by time; zero: never.
func (l *Leader) nextStep() (at time.Time) {
	if next := l.defined.index.NextDue(); next != 0 && l.defined.synced {
		at = time.Now().Add(next.Time().Sub(l.Self.Clock()))
	}
	return earliest(at, l.defined.countAgainAt)
}

// StepDefined wakes the defined jobs that are due, and deletes those that are over. After an error the next call decides about
// the same jobs again: without a write, no event would ask for that.
func (l *Leader) StepDefined(ctx context.Context) error {
	d := &l.defined
	if !d.synced {
		return nil
	}
	if err := l.publishCounts(ctx); err != nil {
		return err
	}
	now := record.InstantOf(l.Self.Clock())
	if !d.index.HasWork(now) {
		return nil
	}
	followers := planning.FindFollowers(&l.View)
	taken := d.index.Take(now, maxSteps, func(segment string) defined.Beside { return l.besides(segment, followers) })
	if err := l.carryOut(ctx, taken); err != nil {
		for _, due := range taken {
			d.index.Ask(due.Segment)
		}
		return err
	}
	if d.index.HasWork(now) {
		l.wakeUp()
	}
	return nil
}

// carryOut commits the steps of defined jobs.
func (l *Leader) carryOut(ctx context.Context, steps []defined.Due) error {
	term := []registry.Cond{registry.At(l.Self.Keys.Leader(), l.View.Term)}
	var stores []storedDefined
	var deletes []defined.Due
	for _, due := range steps {
		switch due.Step {
		case defined.Delete, defined.Bury:
			deletes = append(deletes, due)
		default:
			s, err := l.storeDefined(due)
			if err != nil { // unlikely, as it was decoded before; the others must not wait for it
				l.defined.unreadable[due.Segment] = true
				continue
			}
			stores = append(stores, s)
		}
	}
	l.Progress.SetTask("writes", "defined jobs")
	if err := l.commitStored(ctx, term, stores); err != nil {
		return err
	}
	return l.deleteOver(ctx, term, deletes)
}

// storedDefined is the definition of a defined job that is to be awake.
type storedDefined struct {
	defined.Due
	record planning.DefinedRecord
	job    planning.JobRecord
	items  batch.Items
}

// storeDefined returns the write that wakes a job, or updates its definition.
func (l *Leader) storeDefined(due defined.Due) (storedDefined, error) {
	rec, err := due.Entry.Decode()
	if err != nil {
		return storedDefined{}, err
	}
	value, err := record.Encode(rec.Definition)
	if err != nil {
		return storedDefined{}, err
	}
	def, job, err := record.DecodeDefinition(value)
	if err != nil {
		return storedDefined{}, err
	}
	key := l.Self.Keys.Job(due.Segment)
	s := storedDefined{Due: due, record: rec, job: planning.JobRecord{Def: def, Job: job}}
	s.items.Conds = []registry.Cond{registry.At(l.Self.Keys.Defined(due.Segment), rec.Rev)}
	if due.Step == defined.Wake {
		s.items.Conds = append(s.items.Conds, registry.Absent(l.Self.Keys.Plan(due.Segment)))
		s.items.Ops = []registry.Op{registry.Create(key, value)}
	} else {
		s.items.Ops = []registry.Op{registry.Set(key, l.View.Jobs[due.Segment].Rev, value)}
	}
	return s, nil
}

// commitStored commits definitions, and applies them to the view without waiting for their events. What the store refuses is
// decided about again when the watches deliver what has changed.
func (l *Leader) commitStored(ctx context.Context, term []registry.Cond, stores []storedDefined) error {
	_, err := applyParts(ctx, l, term, stores, func(s storedDefined) batch.Items { return s.items }, func(s storedDefined, rev registry.Rev) {
		s.job.Rev = rev
		l.jobs.Feed.RecordWrite(s.Segment, rev, s.job)
		l.View.Jobs[s.Segment], l.View.Defined[s.Segment] = s.job, s.record
		l.noteFollowed(followedBy(s.job.Job))
		l.idle = false
	})
	if err != nil {
		return fmt.Errorf("wake defined jobs: %w", err)
	}
	return nil
}

// followedBy returns the jobs that a job follows.
func followedBy(j record.Job) []string {
	if j.After == nil {
		return nil
	}
	return j.After.Jobs
}

// deleteOver deletes the records of resting jobs that operators have deleted, or that finished long ago: first the states of
// their shards. Of a job that operators have deleted, a tombstone stays for a while.
func (l *Leader) deleteOver(ctx context.Context, term []registry.Cond, over []defined.Due) error {
	if len(over) == 0 {
		return nil
	}
	keys, tombstones := l.Self.Keys, map[string]*record.Defined{}
	changed, err := deleteJobs(ctx, l, term, over, func(due defined.Due) (o stateOwner) {
		if due.Step == defined.Delete {
			o = stateOwner{due.Segment, registry.At(keys.Defined(due.Segment), due.Entry.Rev)}
		}
		return o
	}, func(due defined.Due) (items batch.Items) {
		items.Ops = []registry.Op{registry.Delete(keys.Defined(due.Segment), due.Entry.Rev)}
		if due.Step == defined.Bury {
			return items
		}
		items.Conds = []registry.Cond{registry.Absent(keys.Job(due.Segment)), registry.Absent(keys.Plan(due.Segment))}
		if due.Entry.Created == "" {
			if d, value, err := l.tombstoneOf(&due.Entry); err == nil { // it was decoded before
				items.Ops[0], tombstones[due.Segment] = registry.Set(keys.Defined(due.Segment), due.Entry.Rev, value), d
			}
		}
		if c, ok := l.View.Control[due.Segment]; ok {
			items.Ops = append(items.Ops, registry.Delete(keys.Control(due.Segment), c.Rev))
		} else { // nor may there be one that is not observed yet: nobody would delete it
			items.Conds = append(items.Conds, registry.Absent(keys.Control(due.Segment)))
		}
		return items
	}, func(due defined.Due, rev registry.Rev) {
		if l.putTombstone(due.Segment, tombstones[due.Segment], rev); due.Step == defined.Delete {
			delete(l.View.Control, due.Segment)
			l.Log.Debug("defined job deleted", "job", due.Segment)
		}
	})
	for segment := range changed {
		l.defined.index.Ask(segment)
	}
	if err != nil {
		return fmt.Errorf("delete defined jobs: %w", err)
	}
	return nil
}

// tombstoneOf returns what is left of a deleted job, and its encoded form.
func (l *Leader) tombstoneOf(e *defined.Entry) (*record.Defined, []byte, error) {
	rec, err := e.Decode()
	if err != nil {
		return nil, nil, err
	}
	d := rec.Tombstone(record.InstantOf(l.Self.Clock()), rec.By)
	value, err := record.Encode(d)
	return d, value, err
}

// putTombstone replaces the entry of a job whose other records are deleted. Without a tombstone nothing is left.
func (l *Leader) putTombstone(segment string, d *record.Defined, rev registry.Rev) {
	l.defined.index.Remove(segment)
	if d == nil {
		return
	}
	if value, err := record.Encode(d); err == nil {
		l.defined.index.Put(segment, defined.EntryOf(d, rev, value))
	}
}

// commitRests puts defined jobs to rest, and deletes those that operators do not want any more.
func (l *Leader) commitRests(ctx context.Context, rests []planning.Rest, term []registry.Cond) error {
	if len(rests) == 0 {
		return nil
	}
	l.Progress.SetTask("writes", "rests")
	_, err := deleteJobs(ctx, l, term, rests, func(r planning.Rest) (o stateOwner) {
		if r.Deleted {
			o = stateOwner{r.Segment, registry.At(r.Key, r.Rev)}
		}
		return o
	}, func(r planning.Rest) batch.Items { return r.Records }, l.recordRest)
	if err != nil {
		return fmt.Errorf("put defined jobs to rest: %w", err)
	}
	return nil
}

// recordRest removes a job that rests, or was deleted, from the view without waiting for the events.
func (l *Leader) recordRest(r planning.Rest, rev registry.Rev) {
	delete(l.View.Plans, r.Segment)
	delete(l.View.Jobs, r.Segment)
	delete(l.View.Defined, r.Segment)
	if r.Deleted {
		control := l.Self.Keys.Control(r.Segment)
		if slices.ContainsFunc(r.Records.Ops, func(op registry.Op) bool { return op.Key == control }) { // an intent for the next creation stays
			delete(l.View.Control, r.Segment)
		}
		l.Log.Debug("defined job deleted", "job", r.Job.Name)
	}
	if r.Defined != nil {
		if value, err := record.Encode(r.Defined); err == nil {
			l.defined.index.Put(r.Segment, defined.EntryOf(r.Defined, rev, value))
		}
	}
	l.defined.index.Ask(r.Segment)
	l.noteFollowed(followedBy(r.Job))
}

// publishCounts writes how many jobs are defined, for the limits of those who define more.
func (l *Leader) publishCounts(ctx context.Context) error {
	d, now := &l.defined, time.Now()
	counts := record.KindCounts{ByKind: d.index.Counts()}
	if counts.EqualKinds(&d.counts) {
		d.countAgainAt = time.Time{}
		return nil
	}
	if now.Before(d.countAgainAt) {
		return nil
	}
	again := d.countAgainAt.IsZero() // the first change of several waits for the others
	if d.countAgainAt = now.Add(countsInterval); again {
		return nil
	}
	counts.At = record.InstantOf(l.Self.Clock())
	value, err := record.Encode(&counts)
	if err != nil {
		return err
	}
	key := l.Self.Keys.KindCounts()
	op := registry.Create(key, value)
	if !d.countsRev.IsZero() {
		op = registry.Set(key, d.countsRev, value)
	}
	rev, err := registry.Apply(ctx, l.Self.Reg, registry.Txn{If: []registry.Cond{registry.At(l.Self.Keys.Leader(), l.View.Term)}, Then: []registry.Op{op}})
	refusal, refused := batch.FindConflict(err)
	switch {
	case refused && refusal.Index == 0:
		return elector.ErrTermOver
	case refused: // its watch delivers another version
		return nil
	case errors.Is(err, registry.ErrTooLarge):
		l.Log.Warn("numbers of defined jobs not written: there are too many kinds", "error", err)
		return nil
	case err != nil:
		return fmt.Errorf("write the numbers of defined jobs: %w", err)
	}
	d.counts, d.countsRev = counts, rev
	return nil
}

// reportCollisions logs once each defined job whose name was registered in code as well, so that it cannot wake.
func (l *Leader) reportCollisions(segment string) {
	d := &l.defined
	job, stored := l.View.Jobs[segment]
	e, known := d.index.Get(segment)
	collides := stored && job.Kind == "" && known && !e.IsGone()
	if collides && !d.collisions[segment] {
		l.Log.Error("a process registers a job in code that was defined as data; the defined one does not run: delete it, or rename the other", "job", job.Name)
	}
	if d.collisions != nil {
		setMembership(d.collisions, segment, collides)
	}
}
