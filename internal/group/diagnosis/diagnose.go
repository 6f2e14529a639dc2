package diagnosis

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/count"
	"github.com/rota-dev/rota/internal/group/planning"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

// Severity is how much a finding matters.
type Severity int

// The severities.
const (
	Info    Severity = iota + 1 // it may be intended, or passes by itself
	Warning                     // fires may be late
	Error                       // fires do not run, or a record is damaged
)

// Kind is the kind of a finding.
type Kind string

// The kinds.
const (
	Unreadable  Kind = "unreadable"  // a record breaks a rule
	Foreign     Kind = "foreign"     // another program wrote a record
	Format      Kind = "format"      // a newer version wrote a record
	Orphaned    Kind = "orphaned"    // a record whose counterpart does not exist
	Missing     Kind = "missing"     // a record that should exist
	Expired     Kind = "expired"     // a member whose session does not exist
	Leaderless  Kind = "leaderless"  // the group has no leader
	Clock       Kind = "clock"       // clocks differ
	Unoffered   Kind = "unoffered"   // no live instance offers a job
	Retiring    Kind = "retiring"    // a retired job that is not deleted yet
	Unsupported Kind = "unsupported" // an instance cannot compile a definition
	Differs     Kind = "differs"     // an instance has another definition than the stored one
	Unowned     Kind = "unowned"     // shards have no owner
	Stuck       Kind = "stuck"       // shards or runs wait for long
	Problem     Kind = "problem"     // the plan names another problem
	Lost        Kind = "lost"        // the store has lost records
	Undelivered Kind = "undelivered" // a receiver gets no messages
	Collision   Kind = "collision"   // a name is that of a registered and of a defined job
	Limit       Kind = "limit"       // nearly as many jobs are defined as may be
)

// Finding is something that an operator should know.
type Finding struct {
	Severity Severity
	Kind     Kind
	Job      string       // "" if it concerns no job
	Key      registry.Key // "" if it concerns no single record
	What, Do string
}

// diagnosis collects findings.
type diagnosis struct {
	*Records
	skewed    map[string]bool // by incarnation
	differing map[string]bool // by incarnation: clocks that are a finding of a small fleet
	findings  []Finding

	stopped     bool // no instance is alive, which is a finding
	allDisabled bool // all live instances are disabled for all jobs, which is a finding
}

// Diagnose returns the findings, the most severe first.
func Diagnose(r *Records) []Finding {
	d := diagnosis{Records: r, skewed: map[string]bool{}, differing: map[string]bool{}}
	d.checkReadable()
	d.checkServing()
	d.checkElection()
	d.checkMembers()
	d.checkLocals()
	d.checkOrphans()
	d.checkLost()
	d.checkJobs()
	d.checkPools()
	d.checkWaitingTriggers()
	d.checkLateFires()
	d.checkRetiring()
	d.checkReceivers()
	d.checkDefined()
	slices.SortStableFunc(d.findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(b.Severity, a.Severity), strings.Compare(string(a.Kind), string(b.Kind)),
			strings.Compare(a.Job, b.Job), strings.Compare(string(a.Key), string(b.Key)), strings.Compare(a.What, b.What))
	})
	return d.findings
}

func (d *diagnosis) add(f Finding) { d.findings = append(d.findings, f) }

// checkReadable reports the records that cannot be read. Those of the election are left to checkElection.
func (d *diagnosis) checkReadable() {
	for _, key := range d.Foreign() {
		d.add(Finding{Error, Foreign, "", key, "another program wrote the value of this key", "delete the key; instances write their records again"})
	}
	if meta := d.Keys.Meta(); d.Meta != nil && d.Meta.Incident != nil {
		d.add(describeLoss(d.Meta.Incident, meta))
	} else if !d.Has(meta) && (len(d.Members)+len(d.Jobs) > 0 || len(d.Damaged(d.Keys.Members()))+len(d.Damaged(d.Keys.Jobs())) > 0) {
		d.add(Finding{Warning, Missing, "", meta, "the record of the namespace is missing", "it is created at the next join; if fences were raised, call Operator.RaiseFences again"})
	}
	for key := range d.Unreadable {
		if key.Dir() == d.Keys.Election() {
			continue
		}
		job := ""
		if segment, ofJob := d.JobOf(key); ofJob {
			job = d.Jobs[segment].Name
		}
		d.addUnreadable(key, job)
	}
}

// describeLoss returns the finding about a loss of records.
func describeLoss(in *record.Incident, key registry.Key) Finding {
	what := "the store was wiped or replaced"
	if in.Kind == record.IncidentRewound {
		what = "the store was set back to an earlier state"
	}
	unknown := ""
	switch {
	case in.Operators:
	case in.Kind == record.IncidentRewound:
		unknown = "; not all that operators have changed since that state is restored"
	default:
		unknown = "; which instances and hosts were disabled, and who paused what, is not restored in full"
	}
	return Finding{
		Error, Lost, "", key,
		fmt.Sprintf("%s, as %s noticed at %v. Lost: watermarks, pending triggers and retries, counts, checkpoints. %d control records were restored from memory%s",
			what, in.By, in.Noticed, in.Restored, unknown),
		"rota restore FILE, if there is a dump; compare rota jobs with what was paused; then rota acknowledge. If databases refuse fences: rota raise-fences",
	}
}

// addUnreadable reports a record that cannot be read, unless another program wrote it.
func (d *diagnosis) addUnreadable(key registry.Key, job string) {
	err := d.Unreadable[key]
	if err == nil || errors.Is(err, registry.ErrForeign) {
		return
	}
	if errors.Is(err, record.ErrNewerFormat) {
		d.add(Finding{Error, Format, job, key, err.Error(), "upgrade this program, or finish the downgrade of the fleet"})
		return
	}
	d.add(Finding{Error, Unreadable, job, key, fmt.Sprintf("the record cannot be read: %v", err), d.adviseUnreadable(key)})
}

// adviseUnreadable returns how to mend a record that cannot be read, without a client of the store where a command can.
func (d *diagnosis) adviseUnreadable(key registry.Key) string {
	const otherwise = "; see docs/protocol/record-edits.md"
	switch dir := key.Dir(); {
	case key == d.Keys.Meta():
		return "with a dump: rota restore FILE; without: rota raise-fences --above N, where N is the greatest fence that any database has stored. Each replaces the record" + otherwise
	case dir == d.Keys.Members():
		return "nothing: its instance joins again with another record; that of a process that has ended is deleted with its other records. Either needs a leader" + otherwise
	case dir == d.Keys.Instances():
		return "start the instance under another name, or delete the key" + otherwise
	case dir == d.Keys.Jobs() || dir == d.Keys.Controls():
		return "with a dump: rota restore FILE, which replaces records that cannot be read; without: delete the key, or rota retire the job" + otherwise
	}
	return "restore or delete the record" + otherwise
}

// byLeader returns the remedy that the leader does something. Without a leader, it has to be elected first.
func (d *diagnosis) byLeader(does string) string {
	if d.Seat == nil {
		return "start an instance: the leader that is elected " + does
	}
	return "the leader " + does
}

// checkElection checks that the group has a leader.
func (d *diagnosis) checkElection() {
	const do = "start an instance; see elections in docs/operating/messages.md"
	if d.Seat == nil {
		if what := "the group has no leader, so no shard is reassigned; owners go on with theirs"; !d.stopped && (len(d.Members) > 0 || len(d.Plans) > 0) {
			d.add(Finding{Error, Leaderless, "", d.Keys.Seat(), what, do})
		}
		return
	}
	s := d.Seat
	d.addUnreadable(d.Keys.Seat(), "")
	d.addUnreadable(d.Keys.Leader(), "")
	if !d.Has(d.Keys.Leader()) {
		d.add(Finding{Error, Missing, "", d.Keys.Leader(), "the seat is held, and the record of the leader is missing", "the leader resigns and another is elected; if it stays so, restart the leader"})
	}
	for _, inc := range slices.Sorted(maps.Keys(s.Skewed)) {
		d.skewed[inc] = true
		off, relation := time.Duration(s.Skewed[inc]).Round(time.Millisecond), "ahead of"
		if off < 0 {
			off, relation = -off, "behind"
		}
		d.add(Finding{
			Error, Clock, "", d.Keys.Member(inc),
			fmt.Sprintf("the clock of %s is %v %s the fleet's median, so it claims nothing and owns no shards", record.InstanceOf(inc), off, relation),
			"set the clock of its host",
		})
	}
	for _, inc := range slices.Sorted(maps.Keys(s.Differing)) {
		of := "leader's"
		if leader, _ := d.ReadLeader(); leader == inc {
			of = "store's"
		}
		d.differing[inc] = true
		d.add(Finding{
			Warning, Clock, "", d.Keys.Member(inc),
			fmt.Sprintf("the clock of %s differed by %v from the %s, and in a fleet of one or two instances either may be wrong", record.InstanceOf(inc), time.Duration(s.Differing[inc]).Round(time.Millisecond), of),
			"check both clocks",
		})
	}
	for _, inc := range s.Incomplete {
		d.add(Finding{Warning, Missing, "", d.Keys.Member(inc), fmt.Sprintf("%s is alive, and one of its records is missing or damaged", inc), "it joins again by itself; if it stays so, restart it"})
	}
}

// checkMembers checks each member by itself.
func (d *diagnosis) checkMembers() {
	for _, inc := range slices.Sorted(maps.Keys(d.Members)) {
		m, key := d.Members[inc], d.Keys.Member(inc)
		if !d.IsLive(m.Session) {
			f := Finding{Warning, Expired, "", key, fmt.Sprintf("the session of %s has expired, and its records are not reaped", m.Name), d.byLeader("reaps them; if it stays so, look at its log")}
			if d.Seat == nil && d.hasLeft(inc, &m.Member) {
				continue
			}
			if m.RestartGrace > 0 {
				f.Severity, f.Do = Info, "its shards wait for its return (restart grace); start it again"
			}
			d.add(f)
			continue
		}
		if off := time.Duration(m.Difference); off != 0 && !d.skewed[inc] && !d.differing[inc] {
			d.add(Finding{Warning, Clock, "", key, fmt.Sprintf("the clock of %s differed by about %v from that of the leader, more than half of the allowed skew", m.Name, off.Round(time.Millisecond)), "synchronize the clocks"})
		}
		for _, job := range slices.Sorted(maps.Keys(m.Ahead)) {
			d.add(Finding{
				Error, Clock, job, key, fmt.Sprintf("shards of %s wait until %v: a wrong clock claimed fires before their time", m.Name, m.Ahead[job].At),
				"correct the clock; to not wait, Operator.Reset",
			})
		}
		for _, job := range m.Unsupported {
			d.add(Finding{Warning, Unsupported, job, key, fmt.Sprintf("%s registers the job and cannot compile a definition in force, so it does not offer it", m.Name), "finish the upgrade"})
		}
		d.checkDefinitions(&m.Member, key)
		for _, job := range slices.Sorted(maps.Keys(m.Blocked)) {
			d.add(Finding{Error, Stuck, job, key, fmt.Sprintf("%s may not own %s: a handler of its earlier session has not returned", m.Name, m.Blocked[job].Text()), "end that process"})
		}
		for _, job := range slices.Sorted(maps.Keys(m.Waiting)) {
			w := m.Waiting[job]
			d.add(Finding{Warning, Stuck, job, key, fmt.Sprintf("%s on %s waiting for a worker since %v, behind %s", count.Of(w.Shards.Len()+w.More, "run"), m.Name, w.Since, w.Behind), "see docs/sizing.md"})
		}
	}
}

// checkDefinitions compares a live member's own definitions with the stored ones. Lower revisions are one finding: in a
// rolling deployment, a member has that of each job that was changed, and is replaced within minutes.
func (d *diagnosis) checkDefinitions(m *record.Member, key registry.Key) {
	var lower []record.OtherDefinition
	content := map[string]record.OtherDefinition{} // those of lower of which the member has recorded that the content differs
	f := Finding{Info, Differs, "", key, "", "if it is not about to be replaced, as in a rolling deployment, start it with the version or jobs file of the others"}
	for _, job := range slices.Sorted(slices.Values(slices.Concat(m.Jobs, m.Unsupported))) {
		stored, known := d.Jobs[record.Segment(job)]
		if !known {
			continue
		}
		other, differs := m.FindOther(job, stored.Revision)
		switch {
		case !differs:
		case other.Revision == stored.Revision:
			d.add(Finding{Warning, Differs, job, key, other.String(), "raise Revision"})
		default:
			if lower = append(lower, other); len(lower) == 1 {
				f.Job = job
			}
			if other.Own != "" { // it came after the higher revision: it was left behind, or rolled back
				f.Severity, content[job] = Warning, other
			}
		}
	}
	switch len(lower) {
	case 0:
		return
	case 1:
		f.What = lower[0].String()
	default: // one revision may be that of a whole file, most of which has not changed
		f.What, f.Job = fmt.Sprintf("%s has another revision of %d jobs than is stored", m.Name, len(lower)), ""
		if names := slices.Sorted(maps.Keys(content)); len(names) > 0 {
			f.What += fmt.Sprintf(", and other content of %s, such as %s: %v", count.Of(len(names), "job"), names[0], content[names[0]])
		} else {
			f.What += fmt.Sprintf(": %v; whether their content differs is not on record", lower[0])
		}
	}
	d.add(f)
}

// checkLocals compares the local parts of jobs. Jobs that differ on the same instances are one finding.
func (d *diagnosis) checkLocals() {
	jobs := map[string][]string{} // by instances
	for job, instances := range record.CompareLocals(d.LiveMembers()) {
		names := strings.Join(instances, ", ")
		jobs[names] = append(jobs[names], job)
	}
	for names, differing := range jobs {
		slices.Sort(differing)
		f := Finding{
			Warning, Differs, "", "", fmt.Sprintf("%d jobs, such as %s, differ on %s in what is not stored: commands or requests", len(differing), differing[0], names),
			"give all instances the same jobs file or program",
		}
		if len(differing) == 1 {
			f.Job, f.What = differing[0], fmt.Sprintf("the job differs on %s in what is not stored: its command or request", names)
		}
		d.add(f)
	}
}

// checkOrphans checks that records have their counterparts.
func (d *diagnosis) checkOrphans() {
	orphan := func(key registry.Key, job, what, do string) { d.add(Finding{Warning, Orphaned, job, key, what, do}) }
	unclaimed := func(segment, inc string) {
		if _, known := d.Members[inc]; !known && !d.Has(d.Keys.Member(inc)) {
			orphan(d.Keys.Claims(inc, segment), d.Jobs[segment].Name, fmt.Sprintf("claims of %s, which has no member record", inc),
				d.byLeader("restores the member record or reaps the claims; if it stays so, look at its log"))
		}
	}
	for segment, of := range d.Claims {
		for inc := range of {
			unclaimed(segment, inc)
		}
	}
	for _, key := range d.Damaged(d.Keys.ClaimsOf("x").Dir()) {
		unclaimed(key.Name(), key.Dir().Name())
	}
	undefined := func(segment, name, forget string) {
		if !d.Has(d.Keys.Job(segment)) {
			orphan(d.Keys.Plan(segment), name, "a plan without a stored definition", d.byLeader("stores the definition again; if the job was removed on purpose: "+forget))
		}
	}
	for segment, p := range d.Plans {
		undefined(segment, p.Job, "rota forget "+p.Job)
	}
	for _, key := range d.Damaged(d.Keys.Plans()) {
		undefined(key.Name(), "", "delete the plan")
	}
	for segment, c := range d.Control {
		if c.Retiring == nil && !d.Has(d.Keys.Job(segment)) && d.Defined.Beside[segment] == nil {
			orphan(d.Keys.Control(segment), c.Job, "intent for a job without a stored definition", adviseUnoffered(record.Job{Name: c.Job}))
		}
	}
	for segment, p := range d.Plans {
		for inc := range p.Owners {
			if _, known := d.Members[inc]; !known && !d.Has(d.Keys.Member(inc)) {
				orphan(d.Keys.Plan(segment), p.Job, fmt.Sprintf("the plan names the owner %s, which has no member record", inc), d.byLeader("reassigns its shards; if it stays so, look at its log"))
			}
		}
	}
}

// checkJobs checks each job.
func (d *diagnosis) checkJobs() {
	for _, segment := range slices.Sorted(maps.Keys(d.Jobs)) {
		job := d.Jobs[segment]
		_, planned := d.Plans[segment]
		if planned || d.Has(d.Keys.Plan(segment)) || d.isRetiring(segment) {
			continue
		}
		f := Finding{Warning, Missing, job.Name, d.Keys.Plan(segment), "the job has no plan", d.byLeader("makes one; if it stays so, look at its log")}
		if d.countOffers(job.Job) == 0 {
			if d.stopped {
				continue
			}
			f.Severity, f.Kind, f.Do = Info, Unoffered, adviseUnoffered(job.Job)
			f.What = "the job has no plan, since no live instance offers it"
		}
		d.add(f)
	}
	for _, segment := range slices.Sorted(maps.Keys(d.Plans)) {
		if !d.isRetiring(segment) {
			d.checkPlan(segment, d.Plans[segment].Plan)
		}
	}
	if d.Compile == nil {
		return
	}
	for segment, job := range d.Jobs {
		if _, err := d.Compile(job.Def); err != nil {
			d.add(Finding{
				Info, Unsupported, job.Name, d.Keys.Job(segment), "this program cannot compile the definition: " + strings.ReplaceAll(err.Error(), "\n", "; "),
				"use the version that the fleet runs",
			})
		}
	}
}

// countOffers returns how many live members offer a job.
func (d *diagnosis) countOffers(job record.Job) (n int) {
	for _, m := range d.Members {
		if d.IsLive(m.Session) && m.Offers(job) {
			n++
		}
	}
	return n
}

// adviseUnoffered returns what to do about a job that no live instance offers.
func adviseUnoffered(job record.Job) string {
	if job.Kind != "" {
		return fmt.Sprintf("start a process that registers the kind %q; if it was removed on purpose, delete the job", job.Kind)
	}
	return fmt.Sprintf("start a process that registers the job; if it was removed or renamed on purpose: rota retire %s", job.Name)
}

// adviseProblem returns what to do about a problem of a plan.
func adviseProblem(job string) string {
	return fmt.Sprintf("rota explain %s; docs/operating/messages.md lists the problems", job)
}

// checkPlan checks the plan of a job.
func (d *diagnosis) checkPlan(segment string, p *record.Plan) {
	key := d.Keys.Plan(segment)
	unowned, total := shardset.Range(0, p.Shards()), p.Shards()
	for _, shards := range p.Owners {
		unowned = unowned.Minus(shards)
	}
	problem := p.Problem
	if problem == "" && d.countOffers(p.Last().Job()) == 0 && unowned.Len() == total {
		problem = planning.UnofferedProblem
	}
	kind := Problem
	switch {
	case strings.Contains(problem, planning.UnofferedProblem):
		kind = Unoffered
	case strings.Contains(problem, planning.UnsupportedProblem):
		kind = Unsupported
	case !unowned.IsZero():
		kind = Unowned
	}
	if !unowned.IsZero() && d.isServingProblem(problem) {
		return // nor can a shard be frozen, whose owner is alive then
	}
	if !unowned.IsZero() {
		why, do := problem, adviseProblem(p.Job)
		switch {
		case why == "":
			why, do = d.explainUnowned(p.Job, unowned)
		case kind == Unoffered:
			do = adviseUnoffered(p.Last().Job())
		default:
			if enable := d.adviseDisabled(segment, p.Job); enable != "" {
				do = enable + "; " + do
			}
		}
		d.add(Finding{Error, kind, p.Job, key, fmt.Sprintf("%d of %d shards have no owner (%s): %s", unowned.Len(), total, unowned, why), do})
	} else if problem != "" {
		d.add(Finding{Warning, kind, p.Job, key, problem, adviseProblem(p.Job)})
	}
	d.checkFrozen(segment, p)
}

// explainUnowned names the reason why shards have no owner although the plan names no problem.
func (d *diagnosis) explainUnowned(job string, unowned shardset.Set) (why, do string) {
	blocked := shardset.Set{}
	for _, m := range d.Members {
		blocked = blocked.Union(m.Blocked[job].Intersect(unowned))
	}
	switch {
	case d.Seat == nil:
		return "the group has no leader", "start an instance; see elections in docs/operating/messages.md"
	case !blocked.IsZero():
		return fmt.Sprintf("handlers of earlier sessions have not returned, which block %s", blocked.Text()), "end those processes"
	}
	return "the leader has not assigned them yet", "if it stays so, look at the leader's log"
}
