package diagnosis

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/count"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// DefinedJobs summarizes the jobs that are defined as data, of which there may be a hundred thousand. The zero value is empty.
type DefinedJobs struct {
	Kinds   map[string]*KindUse        // by name: those that are stored, and those of jobs
	Total   int                        // of jobs
	Damaged map[registry.Key]error     // records of kinds and jobs that cannot be read, and why
	Beside  map[string]*record.Defined // by segment: the jobs that have other records too, and those that are deleted
}

// KindUse is a kind and how many jobs are defined of it.
type KindUse struct {
	*record.Kind // nil: none is stored, or it cannot be read
	Jobs         int
	Revision     int    // the highest one that a job needs
	Example      string // a job that needs it
}

// Put adds the record of a defined job. Other reports whether a segment has other records.
func (j *DefinedJobs) Put(e registry.Entry, d *record.Defined, other func(segment string) bool) {
	segment := e.Key.Name()
	if d.IsGone() {
		return
	}
	if other(segment) || d.IsDeleted() {
		if j.Beside == nil {
			j.Beside = map[string]*record.Defined{}
		}
		j.Beside[segment] = d
	}
	if d.IsDeleted() {
		return
	}
	job, use := d.Parsed(), j.Use(d.Parsed().Kind)
	if j.Total++; use.Jobs == 0 || job.KindRevision > use.Revision {
		use.Revision, use.Example = job.KindRevision, job.Name
	}
	use.Jobs++
}

// Use returns the use of a kind.
func (j *DefinedJobs) Use(kind string) *KindUse {
	if j.Kinds == nil {
		j.Kinds = map[string]*KindUse{}
	}
	if j.Kinds[kind] == nil {
		j.Kinds[kind] = &KindUse{}
	}
	return j.Kinds[kind]
}

// PutDamaged adds a record that cannot be read.
func (j *DefinedJobs) PutDamaged(key registry.Key, err error) {
	if j.Damaged == nil {
		j.Damaged = map[registry.Key]error{}
	}
	j.Damaged[key] = err
}

// deletedLong is how long a deletion may take until that is a finding.
const deletedLong = time.Minute

// checkDefined checks the jobs that are defined as data, as far as their other records do not show it.
func (d *diagnosis) checkDefined() {
	for key, err := range d.Defined.Damaged {
		do := "define the job again once its key is deleted"
		if key.Dir() == d.Keys.Kinds() {
			do = "delete the key: the next process that registers the kind stores it again"
		}
		d.add(Finding{Error, Unreadable, "", key, fmt.Sprintf("the record cannot be read: %v", err), do + "; see docs/protocol/record-edits.md"})
	}
	for _, segment := range slices.Sorted(maps.Keys(d.Defined.Beside)) {
		d.checkBeside(segment, d.Defined.Beside[segment])
	}
	for _, name := range slices.Sorted(maps.Keys(d.Defined.Kinds)) {
		d.checkKind(name, d.Defined.Kinds[name])
	}
	d.checkLimit("in the group", d.Keys.Kinds(), d.Defined.Total, record.DefaultMaxJobs)
}

// checkBeside checks a defined job against the other records of its name.
func (d *diagnosis) checkBeside(segment string, job *record.Defined) {
	key := d.Keys.Defined(segment)
	switch registered := d.Jobs[segment]; {
	case job.IsDeleted() && d.Now-job.By.At > record.Instant(deletedLong):
		d.add(Finding{
			Info, Retiring, job.Job, key, fmt.Sprintf("the job was deleted at %v, and its records are not", job.By.At),
			d.byLeader("deletes them once its runs have ended; to end them: rota cancel " + job.Job),
		})
	case !job.IsDeleted() && registered.Name != "" && registered.Kind == "":
		d.add(Finding{
			Error, Collision, job.Job, key, "a process has registered a job of this name in code, so the one that is defined as data does not run",
			"delete the defined one (Operator.Delete), or rename one of them",
		})
	}
}

// checkKind checks a kind of which jobs are defined.
func (d *diagnosis) checkKind(name string, use *KindUse) {
	key := d.Keys.Kind(name)
	offers := 0
	for _, m := range d.LiveMembers() {
		if revision, has := m.Kinds[name]; has && revision >= use.Revision {
			offers++
		}
	}
	if use.Jobs > 0 && offers == 0 && !d.stopped {
		which := fmt.Sprintf("the kind %q", name)
		if use.Revision > 0 {
			which += fmt.Sprintf(" in revision %d", use.Revision)
		}
		d.add(Finding{
			Error, Unoffered, "", key, fmt.Sprintf("no live instance offers %s, of which %s defined, such as %s", which, areJobs(use.Jobs), use.Example),
			"start a process that registers it; if it was removed on purpose, delete the jobs",
		})
	}
	limit := record.DefaultMaxJobs
	if use.Kind != nil && use.MaxJobs > 0 {
		limit = use.MaxJobs
	}
	d.checkLimit(fmt.Sprintf("of kind %q", name), key, use.Jobs, limit)
}

// checkLimit reports that more than nine tenths of the jobs are defined that may be.
func (d *diagnosis) checkLimit(of string, key registry.Key, jobs, limit int) {
	if jobs > limit/10*9 {
		d.add(Finding{
			Warning, Limit, "", key, fmt.Sprintf("%s defined %s, of at most %d", areJobs(jobs), of, limit),
			"delete jobs that are not needed; the limit of a kind is Kind.MaxJobs",
		})
	}
}

func areJobs(n int) string {
	if n == 1 {
		return "1 job is"
	}
	return count.Of(n, "job") + " are"
}
