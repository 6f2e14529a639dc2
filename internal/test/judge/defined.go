package judge

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/registry"
)

// definedRecord is what operators want of a name that is defined as data.
type definedRecord struct {
	Created    string          `json:"created"` // empty: it was deleted
	Revision   int             `json:"revision"`
	Definition json.RawMessage `json:"definition"`
	At         instant         `json:"at"`
	Next       instant         `json:"next"`
	Changed    instant         `json:"changed"`
	Earlier    []struct {
		Until instant `json:"until"`
	} `json:"earlier"`
	Gone        instant     `json:"gone"` // when the last other record of a deleted job was deleted
	DeleteAfter grace       `json:"delete_after"`
	Rest        *restRecord `json:"rest"`
}

// restRecord is how a job was put to rest.
type restRecord struct {
	Number   int     `json:"number"`
	From     instant `json:"from"` // fires before it were claimed or skipped
	Counts   tallies `json:"counts"`
	Ended    instant `json:"ended"`
	Failing  bool    `json:"failing"`
	Finished instant `json:"finished"`
}

// life returns the life of the next plan.
func (d *definedRecord) life() string {
	n := 0
	if d.Rest != nil {
		n = d.Rest.Number
	}
	return fmt.Sprintf("%s.%d", d.Created, n)
}

// owedFrom returns the instant from which on the job owes fires while it rests, by the earliest of its definitions.
func (d *definedRecord) owedFrom() instant {
	from := d.At
	if d.Rest != nil {
		from = d.Rest.From
	}
	if len(d.Earlier) == 0 {
		from = max(from, d.Changed)
	}
	return from
}

// tombstoneTime is how long a tombstone stays.
const tombstoneTime = 5 * time.Minute

// deleteAt returns when the record of a finished or deleted job is to be deleted, 0 if it is not.
func (d *definedRecord) deleteAt() instant {
	if d.Gone != 0 {
		return d.Gone.add(tombstoneTime)
	}
	r := d.Rest
	if r == nil || r.Finished == 0 || r.Failing || d.DeleteAfter < 0 {
		return 0
	}
	after := time.Duration(d.DeleteAfter)
	if after == 0 {
		after = time.Hour
	}
	at := r.Finished.add(after)
	if r.Ended != 0 {
		at = r.Ended.add(after)
	}
	return max(at, r.Finished.add(tombstoneTime))
}

// definedState is the observed state of a name that was ever defined as data.
type definedState struct {
	isKnown   bool
	record    *definedRecord     // nil: there is none
	awake     string             // the creation whose other records are there, or were last
	creations map[string]instant // when each creation was committed
	wanted    [][]byte           // all definitions of the record's creation
	deletions []deletion
	keys      map[life]string // of works
	records   map[registry.Key]bool
}

// noteRecord records that there is a record of the name, or no longer.
func (d *definedState) noteRecord(op *registry.Op) {
	if op.Kind == registry.OpDelete {
		delete(d.records, op.Key)
		return
	}
	if d.records == nil {
		d.records = map[registry.Key]bool{}
	}
	d.records[op.Key] = true
}

// LeftOfDeleted returns the keys of records of defined jobs, which are none if all were deleted long ago.
func (o *Judge) LeftOfDeleted() (keys []registry.Key) {
	for _, j := range o.jobs {
		if j.defined.isKnown {
			keys = slices.AppendSeq(keys, maps.Keys(j.defined.records))
		}
	}
	return keys
}

// deletion is a Delete that has returned.
type deletion struct{ called, returned instant }

// judgeDefined judges a write of the record of a defined job, other than in a commit that ends a life.
func (o *Judge) judgeDefined(c *Commit, op *registry.Op, j *jobState) {
	j.trail.add(c)
	d := &j.defined
	d.isKnown = true
	old := d.record
	if op.Kind == registry.OpDelete {
		o.judgeRemoval(c, j)
		d.record = nil
		return
	}
	rec, err := decode[definedRecord](op.Value)
	if err != nil {
		o.addJobViolation(15, j, "record: %v", err)
		return
	}
	d.record = rec
	switch {
	case rec.Created == "":
		if old == nil || old.Created == "" && rec.Gone == 0 {
			o.addJobViolation(15, j, "the deletion follows no creation")
		}
		if rec.Gone != 0 {
			o.report.Undefined++
		}
	case old == nil || old.Created == "":
		o.addCreation(j, rec.Created)
	case old.Created != rec.Created:
		o.addJobViolation(15, j, "creation %s replaces %s, which nobody has deleted", rec.Created, old.Created)
		o.addCreation(j, rec.Created)
	default:
		o.judgeChange(j, old, rec)
	}
	if rec.Created != "" {
		d.wanted = append(d.wanted, rec.Definition)
	}
}

// addCreation records a new creation of a name.
func (o *Judge) addCreation(j *jobState, created string) {
	d := &j.defined
	if _, known := d.creations[created]; known {
		o.addJobViolation(15, j, "creation %s comes again", created)
	}
	if d.creations == nil {
		d.creations = map[string]instant{}
	}
	d.creations[created], d.wanted = instantOf(o.now), nil
	o.report.Defined++
}

// judgeChange judges the change of a definition. One of a job without a plan keeps what is owed by the earlier definition.
func (o *Judge) judgeChange(j *jobState, old, rec *definedRecord) {
	if rec.Revision != old.Revision+1 {
		o.addJobViolation(15, j, "revision %d follows %d", rec.Revision, old.Revision)
	}
	o.report.Redefined++
	planned := j.plan != nil && strings.HasPrefix(j.plan.Life, rec.Created+".") // not by an earlier creation
	if planned || len(rec.Earlier) > len(old.Earlier) {
		return
	}
	owed, err := countFires(old.Definition, old.owedFrom(), rec.Changed)
	if len(old.Earlier) > 0 {
		owed++
	}
	if err != nil || owed > 0 {
		o.addJobViolation(2, j, "revision %d, from %v on, drops %d fires since %v of the definition before (error: %v)", rec.Revision, rec.Changed, owed, old.owedFrom(), err)
	}
}

// countFires returns how many fires a definition has from an instant on, before another one.
func countFires(def []byte, from, until instant) (int, error) {
	d, err := decode[definition](def)
	if err != nil || until == 0 {
		return 0, err
	}
	e := epoch{From: from, Until: until, Def: *d}
	e.setFires()
	return e.fires(from-1, until-1)
}

// judgeRemoval judges the deletion of the only record of a name.
func (o *Judge) judgeRemoval(c *Commit, j *jobState) {
	old := j.defined.record
	switch {
	case j.plan != nil || j.stored != nil:
		o.addJobViolation(14, j, "the record of the defined job was deleted, but not its others")
	case old == nil:
	default:
		if at := old.deleteAt(); c.Client != "" && (at == 0 || at > o.latest()) {
			o.addJobViolation(15, j, "revision %d was deleted at %v, which nobody has asked for before %v", old.Revision, instantOf(o.now), at)
		}
	}
}

// judgeWake judges the definition of a defined job that is awake from now on, or changes.
func (o *Judge) judgeWake(op *registry.Op, j *jobState, def *definition) {
	d := &j.defined
	if d.record == nil || d.record.Created != def.Created {
		o.addJobViolation(15, j, "the definition of creation %q was stored, which operators do not want", def.Created)
	}
	if op.Kind != registry.OpCreate {
		return
	}
	if j.plan != nil {
		o.addJobViolation(15, j, "the job was woken while it had a plan")
	}
	if d.awake != def.Created && d.awake != "" {
		o.endCreation(j)
	}
	d.awake = def.Created
	for _, earlier := range d.wanted { // the first plan has epochs of those by which fires are owed
		j.sources.addDefinition(earlier)
	}
	o.report.Wakes++
}

// endCreation makes the fires and triggers of the next creation new work.
func (o *Judge) endCreation(j *jobState) {
	control, has := j.control, j.hasControl
	if j.epochs != nil {
		j.firstLife = j.epochs[len(j.epochs)-1].life + 1
	}
	j.beginLife()
	j.control, j.hasControl = control, has
	j.sources = sources{overrides: []json.RawMessage{nil}}
	j.sources.addOverride(control.Override)
	j.claims, j.resetsBefore = map[string]*claimsRecord{}, 0
	for _, sh := range j.shards {
		sh.running = map[string]run{}
	}
}

// judgeLife judges the first plan of a life: it continues where the rest left off.
func (o *Judge) judgeLife(j *jobState, p *planRecord) {
	d := j.defined.record
	if j.plan != nil || !j.defined.isKnown {
		return
	}
	if d == nil || p.Life != d.life() {
		o.addJobViolation(15, j, "a plan of life %q begins, but the record is %+v", p.Life, d)
		return
	}
	if p.Paused {
		return
	}
	e := p.Epochs[0]
	e.setFires()
	from := d.owedFrom()
	if d.Rest != nil && e.From < d.Rest.From {
		o.addJobViolation(2, j, "epoch %d begins at %v, before the rest from %v on", e.Number, e.From, d.Rest.From)
	}
	lost := epoch{From: from, Until: e.From, Def: e.Def}
	lost.setFires()
	if n, err := lost.fires(from-1, e.From-1); err != nil || n > 0 {
		o.addJobViolation(2, j, "epoch %d begins at %v, %d fires after %v (error: %v)", e.Number, e.From, n, from, err)
	}
}

// judgeLifeEnd judges a commit that deletes the plan and definition of a defined job: it is put to rest, or deleted.
func (o *Judge) judgeLifeEnd(c *Commit, j *jobState) {
	j.trail.add(c)
	deletes := map[string]bool{}
	var write *registry.Op
	for i := range c.Then {
		dir, name, ok := o.splitKey(c.Then[i].Key)
		if !ok || name != j.segment {
			continue
		}
		if deletes[dir] = c.Then[i].Kind == registry.OpDelete; strings.HasPrefix(dir, "defined/") {
			write = &c.Then[i]
		}
	}
	if j.stored != nil && !deletes["jobs"] || j.plan != nil && !deletes["plan"] {
		o.addJobViolation(14, j, "a commit deletes records of the job, but not all: %v", deletes)
	}
	for inc := range j.claims {
		if !deletes["claims/"+inc] {
			o.addJobViolation(14, j, "the claims of %s stay without the job", inc)
		}
	}
	for n, sh := range j.shards {
		for inc, r := range sh.running {
			o.addJobViolation(14, j, "shard %d: the job's records were deleted while %s runs %s", n, inc, r)
		}
	}
	var rec *definedRecord
	if write != nil && write.Kind == registry.OpSet {
		var err error
		if rec, err = decode[definedRecord](write.Value); err != nil {
			o.addJobViolation(15, j, "record: %v", err)
			return
		}
	}
	switch {
	case rec != nil && rec.Created != "":
		o.judgeRest(c, rec, j)
	case write != nil && rec == nil:
		o.addJobViolation(15, j, "the job was deleted without a tombstone")
	default:
		o.judgeDeleted(j, rec, deletes["control"])
	}
}

// judgeRest judges that nothing is owed or left of a job that is put to rest.
func (o *Judge) judgeRest(c *Commit, rec *definedRecord, j *jobState) {
	old := j.defined.record
	if old == nil || rec.Created != old.Created || rec.Created != j.defined.awake || rec.Rest == nil || rec.Revision != old.Revision || len(rec.Earlier) > 0 {
		o.addJobViolation(15, j, "%s is put to rest with the record %+v", j.defined.awake, rec)
		return
	}
	o.judgeTerm(c, j)
	last := &j.epochs[len(j.epochs)-1]
	for n, sh := range j.shards {
		if sh.orphan != nil {
			o.addJobViolation(3, j, "shard %d: the job is put to rest before the re-run of %s", n, sh.orphan.run)
		}
		if due, err := j.countDue(n, sh.epoch, sh.watermark, last.Number, rec.Rest.From-1); err != nil || due > 0 {
			o.addJobViolation(2, j, "shard %d: the job is put to rest before %d fires after %v (error: %v)", n, due, sh.watermark, err)
		}
	}
	for number, left := range j.triggers {
		o.addJobViolation(2, j, "the job is put to rest before %d shards have claimed trigger %d", left.len(), number)
	}
	if n, err := countFires(last.definitionText(j), rec.Rest.From, rec.Next); err != nil || n > 0 || rec.Next == 0 && last.hasFires(rec.Rest.From) {
		o.addJobViolation(2, j, "the job rests from %v on, its next fire is to be %v, but %d are before that (error: %v)", rec.Rest.From, rec.Next, n, err)
	}
	sum := tallies{}
	if j.plan != nil {
		sum = j.plan.Counts
	}
	for _, c := range j.claims {
		sum = sum.plus(c.Counts)
	}
	if sum != rec.Rest.Counts {
		o.addJobViolation(2, j, "the job is put to rest with the counts %+v; its records have %+v", rec.Rest.Counts, sum)
	}
	o.compareCounts(j, rec.Rest.Counts)
	if last.Until == 0 {
		last.Until = rec.Rest.From
	}
	j.defined.record = rec
	j.endPlan()
	o.report.Rests++
}

// definitionText returns the definition of an epoch, which is the stored one of a job that may rest.
func (e *epoch) definitionText(j *jobState) []byte { return j.stored }

// hasFires reports whether an epoch has fires from an instant on.
func (e *epoch) hasFires(from instant) bool {
	return e.every > 0 || slices.ContainsFunc(e.at, func(at instant) bool { return at >= from })
}

// endPlan forgets the plan of a job, whose epochs and watermarks stay.
func (j *jobState) endPlan() {
	j.plan, j.stored, j.inForce = nil, nil, nil
	j.claims = map[string]*claimsRecord{}
	for _, sh := range j.shards {
		sh.owner = ""
	}
}

// judgeDeleted judges that a creation whose records are deleted is one that operators do not want.
func (o *Judge) judgeDeleted(j *jobState, tombstone *definedRecord, control bool) {
	d := &j.defined
	if d.record != nil && d.record.Created == d.awake {
		o.addJobViolation(15, j, "the records of creation %s were deleted, which nobody has asked for", d.awake)
	}
	if j.plan != nil && !j.plan.Paused {
		o.addJobViolation(15, j, "the records of creation %s were deleted before its plan was paused", d.awake)
	}
	if tombstone != nil {
		d.record = tombstone
	}
	if control {
		j.control, j.hasControl = controlRecord{}, false
	}
	o.endCreation(j)
	d.awake = ""
	o.report.Undefined++
}

// judgeDefinedSettled judges, in a settled fleet, that no fire is owed of a resting job, and no record left of a deleted one.
func (o *Judge) judgeDefinedSettled(j *jobState, due instant) {
	d := j.defined.record
	switch {
	case d == nil && (j.plan != nil || j.stored != nil):
		o.addJobViolation(15, j, "records of the job are left that nobody wants")
	case d == nil:
	case d.Created == "" && (d.Gone == 0 || d.deleteAt() <= due):
		o.addJobViolation(15, j, "the deleted job was not deleted, or its tombstone stays: %+v", d)
	case d.Created == "":
	case j.plan == nil && d.deleteAt() != 0:
		if d.deleteAt() <= due {
			o.addJobViolation(15, j, "the job has finished, and was to be deleted at %v", d.deleteAt())
		}
	case j.plan == nil:
		if n, err := countFires(d.Definition, d.owedFrom(), due); (err != nil || n > 0) && o.hasMemberOf(d) {
			o.addJobViolation(2, j, "the job rests, and %d fires since %v are owed (error: %v)", n, d.owedFrom(), err)
		}
	case string(j.stored) != string(d.Definition):
		o.addJobViolation(13, j, "the definition is %s, but operators want %s", j.stored, d.Definition)
	}
}

// hasMemberOf reports whether a live member has the kind of a job.
func (o *Judge) hasMemberOf(d *definedRecord) bool {
	def, err := decode[definition](d.Definition)
	if err != nil {
		return false
	}
	for inc, m := range o.members {
		if o.alive(inc) && !m.Draining && def.acceptsLabels(m) {
			return true
		}
	}
	return false
}

// JudgeDelete judges a Delete of a job that has returned without an error, or since the job is unknown: no run is claimed from then on of a
// creation that was there when it was called. The judge may have seen commits up to a while before that, but none after it.
func (o *Judge) JudgeDelete(job string, called, returned time.Time) {
	j := o.job(job)
	j.defined.deletions = append(j.defined.deletions, deletion{instantOf(called), instantOf(returned)})
}

// judgeAfterDeletion judges a claim by the deletions that have returned.
func (o *Judge) judgeAfterDeletion(j *jobState, n int, inc string, r run) {
	if !j.defined.isKnown {
		return
	}
	created := j.defined.creations[j.defined.awake]
	for _, d := range j.defined.deletions {
		if created < d.called && instantOf(o.now) > d.returned {
			o.addJobViolation(15, j, "shard %d: %s claimed %s of a creation of %v, after a Delete of %v had returned at %v", n, inc, r, created, d.called, d.returned)
		}
	}
}

// judgeKey judges that all calls of a work of a defined job have one key, which no other work has.
func (o *Judge) judgeKey(j *jobState, f *Call, of life) {
	if f.Key == "" || !j.defined.isKnown {
		return
	}
	if j.defined.keys == nil {
		j.defined.keys = map[life]string{}
	}
	key := strings.Replace(f.Key, fmt.Sprintf("/%d/", f.Shard), "/", 1)
	for other, is := range j.defined.keys {
		if (other == of) != (is == key) {
			o.addJobViolation(15, j, "shard %d: the key of %s is %q, but that of work %+v is %q", f.Shard, f.run(), key, other, is)
			return
		}
	}
	j.defined.keys[of] = key
}
