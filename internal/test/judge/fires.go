package judge

import (
	"slices"
	"strings"

	"github.com/rota-dev/rota/registry"
)

// firesRecord is the part of a plan that tracks which fires have ended.
type firesRecord struct {
	From    instant     `json:"from"`
	Through instant     `json:"through"`
	Ended   []endedFire `json:"ended"`
}

type endedFire struct {
	Number  uint64  `json:"number"`
	At      instant `json:"at"`
	Trigger uint64  `json:"trigger"`
	Shards  int     `json:"shards"`
	Failed  int     `json:"failed"`
	Skipped int     `json:"skipped"`
	Ended   instant `json:"ended"` // by the leader's clock
}

// release makes a fire of followed jobs one of the job.
type release struct {
	At       instant `json:"at"`
	Released instant `json:"released"`

	epoch int
	due   instant // when owners know it at the latest, if nothing disturbs them
}

// countYoungReleases returns how many of the fires through an instant that shard n has not claimed were released so
// recently that its owner may not know it.
func (j *jobState) countYoungReleases(n int, through, now instant) int {
	sh, young := j.shards[n], 0
	for _, r := range j.released {
		e := j.epoch(r.epoch)
		isLeft := r.epoch > sh.epoch || r.epoch == sh.epoch && r.At > sh.watermark
		if e != nil && n < e.Def.Shards && isLeft && r.At <= through && r.due > now {
			young++
		}
	}
	return young
}

// followedRecord is the part of a plan that says how far its job has followed others.
type followedRecord struct {
	Through instant `json:"through"`
	Number  uint64  `json:"number"`
}

// followedJobs returns the names of the jobs that a definition follows, nil for none. Names that need quotes are
// not simulated.
func (d *definition) followedJobs() []string {
	kind, names, _ := strings.Cut(d.Schedule, " ")
	if kind != "after" && kind != "after-end" && kind != "after-failure" {
		return nil
	}
	return strings.Split(names, ", ")
}

// kind returns the first word of the schedule.
func (d *definition) kind() string {
	kind, _, _ := strings.Cut(d.Schedule, " ")
	return kind
}

// judgeFires judges the fires that a plan shows as ended: in order, each once, and none of which a run is left.
func (o *Judge) judgeFires(j *jobState, p *planRecord) {
	if p.Fires == nil {
		j.ended = nil // a new count may begin
		return
	}
	for _, e := range p.Fires.Ended {
		if n := len(j.ended); n > 0 && e.Number <= j.ended[n-1].Number {
			continue
		}
		isNext := len(p.Fires.Ended) == maxEndedFires && e == p.Fires.Ended[0] // the plan has no room for more
		if n := len(j.ended); n > 0 && (e.Number != j.ended[n-1].Number+1 && !isNext || e.At < j.ended[n-1].At) {
			o.addJobViolation(3, j, "the plan shows fire %v as ended, number %d, after %v, number %d", e.At, e.Number, j.ended[n-1].At, j.ended[n-1].Number)
		}
		j.ended = append(j.ended, e)
		o.report.EndedFires++
		o.judgeEnded(j, e.At)
	}
}

// maxEndedFires is how many ended fires a plan lists.
const maxEndedFires = 32

// judgeEnded judges that no shard has a run left, in progress or to be made, of a fire or of one before it.
func (o *Judge) judgeEnded(j *jobState, at instant) {
	for n, sh := range j.shards {
		for inc, r := range sh.running {
			if r.Fire <= at && !j.isPast(r) {
				o.addJobViolation(3, j, "fire %v was shown as ended while %s runs %s of shard %d", at, inc, r, n)
			}
		}
		if sh.orphan != nil && sh.orphan.Fire <= at && !j.isPast(sh.orphan.run) {
			o.addJobViolation(3, j, "fire %v was shown as ended before the re-run of %s of shard %d", at, sh.orphan.run, n)
		}
		if j.plan == nil {
			continue
		}
		if due, err := j.countDue(n, sh.epoch, sh.watermark, j.epochAt(at), at); err != nil || due > 0 {
			o.addJobViolation(3, j, "fire %v was shown as ended before shard %d made %d fires (error: %v)", at, n, due, err)
		}
	}
}

// epochAt returns the number of the last epoch that begins no later than at.
func (j *jobState) epochAt(at instant) int {
	number := 0
	for i := range j.epochs {
		if j.epochs[i].From <= at {
			number = j.epochs[i].Number
		}
	}
	return number
}

// judgeReleases judges the fires of a job that follows others.
func (o *Judge) judgeReleases(j *jobState, p *planRecord) {
	o.countUpstream(j, p)
	for i := range p.Epochs {
		e := &p.Epochs[i]
		for _, r := range e.Released {
			if n := len(j.released); n > 0 && r.At <= j.released[n-1].At {
				if !slices.ContainsFunc(j.released, func(known release) bool { return known.At == r.At }) {
					o.addJobViolation(3, j, "fire %v was released after fire %v", r.At, j.released[n-1].At)
				}
				continue
			}
			r.epoch = e.Number
			r.due = instantOf(o.now).add(o.maxDelay) // the plan is delivered meanwhile
			j.released = append(j.released, r)
			o.report.Releases++
			for _, name := range e.Def.followedJobs() {
				o.judgeRelease(j, e, name, r)
			}
		}
	}
}

// countUpstream counts the ended fires of the followed job that a plan passes without a release. It expects plans to
// follow one job.
func (o *Judge) countUpstream(j *jobState, p *planRecord) {
	if j.plan == nil || j.plan.Followed == nil || p.Followed == nil || p.Followed.Through <= j.plan.Followed.Through {
		return
	}
	isRelease := map[instant]bool{}
	for i := range p.Epochs {
		for _, r := range p.Epochs[i].Released {
			isRelease[r.At] = true
		}
	}
	def := &p.last().Def
	for _, name := range def.followedJobs() {
		parent := o.jobNamed(name)
		if parent == nil {
			continue
		}
		last, before := j.plan.Followed.Number, instant(0)
		for _, f := range parent.ended {
			if f.At == before {
				last = f.Number // a trigger at the instant of a fire
			}
			if f.At <= j.plan.Followed.Through || f.At > p.Followed.Through || f.At == before {
				continue
			}
			before = f.At
			skipped := 0
			if last > 0 && f.Number > last+1 {
				skipped = int(f.Number-last-1) * p.last().Def.Shards // the plan of the followed job never had room for these
			}
			last = f.Number
			e := p.last()
			passes := e.Until != 0 || def.kind() == "after-failure" && f.Failed == 0 // neither released nor counted
			if all := parent.plan.Fires; isRelease[f.At] {
				// it becomes a fire of the job
			} else if all != nil && f.Number < all.Ended[0].Number {
				skipped += e.Def.Shards // the plan of the followed job has no room for this one any more
				if passes {
					j.perhapsPassed += e.Def.Shards // if the leader read an older plan, which had
				}
			} else if !passes && def.kind() != "after-failure" {
				skipped += e.Def.Shards
			}
			j.counts.Skipped += skipped
			o.report.Skipped += skipped
			o.report.SkippedUpstream += skipped
		}
	}
}

// judgeRelease judges that a followed job has ended the fire, as the definition wants.
func (o *Judge) judgeRelease(j *jobState, e *epoch, name string, r release) {
	parent := o.jobNamed(name)
	if parent == nil {
		o.addJobViolation(3, j, "fire %v was released, but the followed job %s is unknown", r.At, name)
		return
	}
	i := slices.IndexFunc(parent.ended, func(f endedFire) bool { return f.At == r.At })
	if i < 0 {
		o.addJobViolation(3, j, "fire %v was released, but job %s has not ended it", r.At, name)
		return
	}
	f := parent.ended[i]
	for _, also := range parent.ended[i+1:] {
		if also.At == r.At { // a trigger at the instant of a fire
			f.Failed, f.Skipped = f.Failed+also.Failed, f.Skipped+also.Skipped
		}
	}
	if e.Def.kind() == "after" && f.Failed+f.Skipped > 0 {
		o.addJobViolation(3, j, "fire %v was released, but of %d shards of job %s %d failed and %d skipped it", r.At, f.Shards, name, f.Failed, f.Skipped)
	}
}

func (o *Judge) jobNamed(name string) *jobState {
	for _, j := range o.jobs {
		if j.name == name {
			return j
		}
	}
	return nil
}

// judgeFollowed judges, in a settled fleet, that a job has followed all ended fires of the jobs that it follows, and
// that these have no fire left that is not shown as ended.
func (o *Judge) judgeFollowed(j *jobState, due instant) {
	names := j.plan.last().Def.followedJobs()
	if names == nil || j.plan.last().Until != 0 {
		return
	}
	for _, name := range names {
		parent := o.jobNamed(name)
		if parent == nil || parent.plan == nil || parent.plan.Fires == nil || j.plan.Followed == nil {
			o.addJobViolation(3, j, "the job does not follow job %s", name)
			continue
		}
		through := instant(0)
		for _, f := range parent.plan.Fires.Ended {
			if f.Ended <= due && o.isOld(f.Ended) {
				through = f.At
			}
		}
		if j.plan.Followed.Through < through {
			o.addJobViolation(3, j, "the job has followed the fires of %s through %v, but they have ended through %v", name, j.plan.Followed.Through, through)
		}
		o.judgeAllEnded(parent, due)
	}
}

// isOld reports whether an instant is so long ago that the leader has acted on what happened then.
func (o *Judge) isOld(at instant) bool { return at.add(3*o.maxDelay) < instantOf(o.now) }

// judgeAllEnded judges that the plan shows a fire as ended that all shards have passed.
func (o *Judge) judgeAllEnded(j *jobState, due instant) {
	for _, sh := range j.shards {
		if len(sh.running) > 0 || sh.orphan != nil || !o.isOld(sh.free) {
			return
		}
	}
	last := instant(0)
	for of := range j.works {
		if of.trigger == 0 && of.fire <= due {
			last = max(last, of.fire)
		}
	}
	if f := j.plan.Fires; last >= f.From && f.Through < last {
		o.addJobViolation(3, j, "fire %v has ended, but the plan shows fires as ended through %v only", last, f.Through)
	}
}

// judgeEndsRecord judges a write of the copy of a claims record: it belongs to the session of its writer.
func (o *Judge) judgeEndsRecord(c *Commit, op *registry.Op) {
	rec, err := decode[struct {
		Incarnation string `json:"incarnation"`
	}](op.Value)
	if err != nil {
		o.AddViolation(1, "%s: %v", op.Key, err)
		return
	}
	if s := o.session(rec.Incarnation); s == nil || c.Client != "" && s.client != c.Client {
		o.AddViolation(1, "%s wrote %s of %s, which is another client's", c.Client, op.Key, rec.Incarnation)
	}
}
