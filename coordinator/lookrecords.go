package coordinator

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rota-dev/rota/coordinator/internal/due"
	"github.com/rota-dev/rota/internal/parallel"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

// groupRecords are the records of a group. Listings or watches put them in; status decodes those
// that changed since the last call.
type groupRecords struct {
	keys            record.Keys
	namespace, name string // of the group
	compile         due.Compiler

	jobs      map[string]*jobEntry // by segment
	order     []*jobEntry          // jobs by segment; nil if it is to be computed
	owned     map[string]int       // shards by incarnation, of all jobs
	running   map[string]int       // runs by incarnation, of all jobs
	members   map[string]*memberEntry
	instances map[registry.SessionID]registry.Entry
	group     registry.Entry // the control record of the group; zero if there is none
	leader    registry.Entry
	seat      registry.Entry

	localsOf     map[string]registry.Rev // the member records that localDiffers is of
	localDiffers map[string][]string     // by job
}

// jobEntry holds the stored records of a job, and their decoded form.
type jobEntry struct {
	def, control, plan registry.Entry            // without a key if there is none
	claims             map[string]registry.Entry // by incarnation

	// The rest is computed. planOf is the revision that decoded and programs belong to.
	planOf   registry.Rev
	decoded  *record.Plan
	programs map[int]due.Program
	planErr  error

	stale      bool // a record has changed since
	summary    JobSummary
	known      bool           // summary describes a job
	expires    time.Time      // when summary changes although no record does; zero for never
	running    map[string]int // by incarnation
	unreadable []registry.Key // records of the job that could not be decoded
	owned      map[string]int // by incarnation
}

// memberEntry is a member record.
type memberEntry struct {
	entry registry.Entry
	m     record.Member
	err   error
}

func (o *Operator) newGroupRecords() *groupRecords {
	return &groupRecords{
		keys: o.keys, namespace: o.namespace, name: o.group, compile: o.compile, jobs: map[string]*jobEntry{}, members: map[string]*memberEntry{}, owned: map[string]int{}, running: map[string]int{},
		instances: map[registry.SessionID]registry.Entry{},
	}
}

// listRecords reads the records of the group, in the order that Status has: plans before claims.
func (o *Operator) listRecords(ctx context.Context) (*groupRecords, error) {
	if err := o.checkFormat(ctx); err != nil {
		return nil, err
	}
	g := o.newGroupRecords()
	for _, dir := range g.directories() {
		// Reads of a handle never go back in time, so those after the fresh ones need not be fresh.
		fresh := dir != o.keys.Members() && dir != o.keys.Instances()
		listing, err := o.reg.List(ctx, dir, registry.ReadOptions{Fresh: fresh})
		if err != nil {
			return nil, err
		}
		g.putAll(listing.Entries)
	}
	var mu sync.Mutex
	return g, parallel.Each(ctx, maxListings, g.incarnations(), func(ctx context.Context, inc string) error {
		dir := o.keys.ClaimsOf(inc)
		listing, err := o.reg.List(ctx, dir, registry.ReadOptions{})
		mu.Lock()
		defer mu.Unlock()
		g.putAll(listing.Entries)
		return err
	})
}

// maxListings bounds the listings that run at once: a listing of ten thousand claims is megabytes.
const maxListings = 8

// directories returns the directories of the group but those of claims, in the order to read them.
func (g *groupRecords) directories() []registry.Key {
	return []registry.Key{
		g.keys.Jobs(), g.keys.Controls(), g.keys.Plans(), g.keys.Election(), g.keys.Members(), g.keys.Instances(),
	}
}

// incarnations returns the incarnations that may have claims, sorted: members and owners of shards.
func (g *groupRecords) incarnations() []string {
	all := map[string]bool{}
	for inc := range g.members {
		all[inc] = true
	}
	for _, j := range g.jobs {
		p, _ := j.decodePlan(g.compile)
		if p == nil {
			continue
		}
		for inc := range p.Owners {
			all[inc] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

func (g *groupRecords) putAll(entries []registry.Entry) {
	for _, e := range entries {
		g.put(e)
	}
}

// put adds an entry, or replaces the one at its key.
func (g *groupRecords) put(e registry.Entry) { g.set(e.Key, e) }

// remove removes the entry at a key.
func (g *groupRecords) remove(key registry.Key) { g.set(key, registry.Entry{}) }

// set sets the entry at a key. An entry without a key means that there is none.
func (g *groupRecords) set(key registry.Key, e registry.Entry) {
	switch dir := key.Dir(); {
	case key == g.keys.GroupControl():
		g.group = e
	case key == g.keys.Leader():
		g.leader = e
	case key == g.keys.Seat():
		g.seat = e
	case dir == g.keys.Members():
		if e.Key == "" {
			delete(g.members, key.Name())
			return
		}
		m, err := record.DecodeMemberEntry(e)
		g.members[key.Name()] = &memberEntry{e, m, err}
	case dir == g.keys.Instances():
		g.setInstance(key, e)
	case dir == g.keys.Jobs():
		g.job(key).def = e
	case dir == g.keys.Controls():
		g.job(key).control = e
	case dir == g.keys.Plans():
		g.job(key).plan = e
	case dir.Dir() == g.keys.ClaimsOf("x").Dir():
		if e.Key == "" {
			delete(g.job(key).claims, dir.Name())
			return
		}
		g.job(key).claims[dir.Name()] = e
	}
}

// setInstance sets the owned key of an instance, which names another session after a restart.
func (g *groupRecords) setInstance(key registry.Key, e registry.Entry) {
	maps.DeleteFunc(g.instances, func(_ registry.SessionID, old registry.Entry) bool { return old.Key == key })
	if e.Key != "" {
		g.instances[e.Owner] = e
	}
}

// job returns the entry of a job by the key of one of its records, which is about to change.
func (g *groupRecords) job(key registry.Key) *jobEntry {
	j := g.jobs[key.Name()]
	if j == nil {
		j = &jobEntry{claims: map[string]registry.Entry{}}
		g.jobs[key.Name()], g.order = j, nil
	}
	j.stale = true
	return j
}

// decodePlan returns the plan, nil if there is none.
func (j *jobEntry) decodePlan(compile due.Compiler) (*record.Plan, error) {
	switch {
	case j.plan.Key == "":
		j.planOf, j.decoded, j.programs, j.planErr = registry.Rev{}, nil, nil, nil
	case j.planOf != j.plan.Modified:
		j.planOf, j.programs = j.plan.Modified, nil
		if j.decoded, j.planErr = record.DecodePlanEntry(j.plan); j.planErr != nil {
			j.decoded = nil
		}
		j.programs = compilePlan(j.decoded, compile)
	}
	return j.decoded, j.planErr
}

// decode returns the records of the job. It returns false if they do not describe a job: without a
// definition, only a plan or a control record that another program wrote is left.
func (j *jobEntry) decode(compile due.Compiler) (*jobRecords, bool) {
	j.unreadable = nil
	fault := func(e registry.Entry) { j.unreadable = append(j.unreadable, e.Key) }
	plan, err := j.decodePlan(compile)
	if err != nil {
		fault(j.plan)
	}
	r := &jobRecords{plan: plan, claims: make(map[string]record.Claims, len(j.claims))}
	if j.def.Key != "" {
		if r.text, r.def, err = record.DecodeDefinition(j.def.Value); err == nil {
			err = record.CheckJobOf(j.def.Key, r.def.Name)
		}
		if err != nil {
			fault(j.def)
			r.def = record.Job{}
		}
	}
	if r.def.Name == "" && plan != nil { // the leader restores the definition from the plan
		r.text, r.def = plan.Last().Def, plan.Last().Job()
	}
	r.control = controlWithoutRecord(r.def, plan)
	if j.control.Key != "" {
		c, err := record.DecodeControl(j.control.Value)
		if err == nil {
			err = record.CheckJobOf(j.control.Key, c.Job)
		}
		if err != nil {
			fault(j.control)
		} else {
			r.control = c
		}
	}
	for inc, e := range j.claims {
		c, err := record.Decode[record.Claims](e.Value)
		if err != nil {
			fault(e)
			continue
		}
		r.claims[inc] = c
	}
	slices.Sort(j.unreadable)
	return r, r.def.Name != ""
}

// refresh computes the summary of a job again, if it may have changed by now.
func (g *groupRecords) refresh(j *jobEntry, now time.Time) {
	if !j.stale && (j.expires.IsZero() || now.Before(j.expires)) {
		return
	}
	addTo(g.owned, j.owned, -1)
	addTo(g.running, j.running, -1)
	j.compute(g.compile, now)
	addTo(g.owned, j.owned, 1)
	addTo(g.running, j.running, 1)
}

// addTo adds numbers to sums by name, or subtracts them.
func addTo(sums, numbers map[string]int, sign int) {
	for name, n := range numbers {
		if sums[name] += sign * n; sums[name] == 0 {
			delete(sums, name)
		}
	}
}

// compute computes the summary of the job.
func (j *jobEntry) compute(compile due.Compiler, now time.Time) {
	j.stale, j.expires = false, time.Time{}
	j.owned, j.running = map[string]int{}, map[string]int{}
	r, ok := j.decode(compile)
	if j.known = ok; !ok {
		return
	}
	st := r.status(j.programs, now)
	j.summary = st.Summary()
	if j.planErr != nil {
		j.summary.Problem = unreadableProblem(j.plan.Key)
	}
	for inc, shards := range r.owners() {
		j.owned[inc] = shards.Len()
	}
	for inc, c := range r.claims {
		var running shardset.Set
		for _, g := range c.Running {
			running = running.Union(g.Shards)
		}
		j.running[inc] = running.Len()
	}
	j.expires = st.NextFire
	for _, rerun := range st.Reruns { // a retry is overdue from its own time on
		if at := rerun.NotBefore; at.After(now) && (j.expires.IsZero() || at.Before(j.expires)) {
			j.expires = at
		}
	}
}

// unreadableProblem is the problem of a job whose plan cannot be decoded. The leader, which cannot
// write such a plan, has the same text in its log.
func unreadableProblem(key registry.Key) string { return fmt.Sprintf("%s cannot be read", key) }

// status returns the state of the group at now.
func (g *groupRecords) status(now time.Time) GroupStatus {
	st := GroupStatus{At: now, Namespace: g.namespace, Group: g.name}
	if g.order == nil {
		for _, segment := range slices.Sorted(maps.Keys(g.jobs)) {
			g.order = append(g.order, g.jobs[segment])
		}
	}
	st.Jobs = make([]JobSummary, 0, len(g.jobs))
	for _, j := range g.order {
		g.refresh(j, now)
		st.Unreadable = append(st.Unreadable, j.unreadable...)
	}
	expired := g.findExpiredOwners()
	for _, j := range g.order {
		if !j.known {
			continue
		}
		st.Jobs = append(st.Jobs, j.summary)
		if len(expired) == 0 {
			continue
		}
		for inc, shards := range j.owned { // a session expires without a change of the job's records
			if expired[inc] {
				st.Jobs[len(st.Jobs)-1].addExpired(record.InstanceOf(inc), shards)
			}
		}
	}
	if differing := g.compareLocals(); len(differing) > 0 {
		for i := range st.Jobs {
			st.Jobs[i].LocalDiffers = differing[st.Jobs[i].Job]
		}
	}
	byName := func(a, b JobSummary) int { return strings.Compare(a.Job, b.Job) }
	if !slices.IsSortedFunc(st.Jobs, byName) { // segments escape some characters
		slices.SortFunc(st.Jobs, byName)
	}

	var control record.GroupControl
	if g.group.Key != "" {
		c, err := record.DecodeGroupControl(g.group.Value)
		if err != nil {
			st.Unreadable = append(st.Unreadable, g.group.Key)
		} else {
			control = *c
		}
	}
	in := intentOfGroup(&control)
	st.Disabled, st.Paused, st.Until, st.HeldBy = in.Disabled, in.Paused, in.Until, in.HeldBy
	var leading string
	if g.seat.Key != "" && g.leader.Key != "" {
		st.Leader, leading = leaderOf(g.leader)
	}
	seat, _ := record.Decode[record.Seat](g.seat.Value)
	for inc, m := range g.members {
		if m.err != nil {
			st.Unreadable = append(st.Unreadable, m.entry.Key)
			continue
		}
		i := g.instanceStatus(&m.m)
		i.Incarnation, i.Leader, i.Skew = inc, inc == leading, time.Duration(seat.Skewed[inc])
		i.Disabled = control.Excludes(&m.m)
		i.Shards, i.Running = g.owned[inc], g.running[inc]
		st.Instances = append(st.Instances, i)
	}
	slices.SortFunc(st.Instances, func(a, b InstanceStatus) int { return strings.Compare(a.Incarnation, b.Incarnation) })
	slices.Sort(st.Unreadable)
	return st
}

// compareLocals returns, by job, the live instances whose local part is not that of most.
func (g *groupRecords) compareLocals() map[string][]string {
	var live []*record.Member
	of := map[string]registry.Rev{}
	for inc, e := range g.members {
		if _, alive := g.instances[e.m.Session]; e.err == nil && alive && !e.m.Draining && len(e.m.Locals) > 0 {
			live, of[inc] = append(live, &e.m), e.entry.Modified
		}
	}
	if !maps.Equal(of, g.localsOf) {
		g.localsOf, g.localDiffers = of, record.CompareLocals(live)
	}
	return g.localDiffers
}

// findExpiredOwners returns the incarnations that own shards and whose sessions do not exist.
func (g *groupRecords) findExpiredOwners() map[string]bool {
	expired := map[string]bool{}
	for inc := range g.owned {
		if _, alive := g.instances[record.SessionOf(inc)]; !alive {
			expired[inc] = true
		}
	}
	return expired
}

// instanceStatus returns the state of a member by its own records.
func (g *groupRecords) instanceStatus(m *record.Member) InstanceStatus {
	s := InstanceStatus{
		Instance: m.Name, Host: m.Host, Session: m.Session, Draining: m.Draining, Labels: m.Labels, Weight: max(1, m.Weight),
		RestartGrace: time.Duration(m.RestartGrace), Jobs: len(m.Jobs), Unsupported: m.Unsupported, Differs: m.Differs,
	}
	if e, alive := g.instances[m.Session]; alive {
		s.Alive = true
		if i, err := record.Decode[record.Instance](e.Value); err == nil {
			s.PID, s.Started = i.PID, i.Started.Time()
		}
	}
	for _, w := range m.Waiting {
		s.Waiting += w.Shards.Len() + w.More
	}
	for _, b := range m.Blocked {
		s.Blocked += b.Len()
	}
	return s
}
