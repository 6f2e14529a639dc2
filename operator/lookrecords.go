package operator

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/parallel"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// groupRecords are the records of a group. Listings or watches put them in; refresh decodes those
// that changed since the last call.
type groupRecords struct {
	keys            record.Keys
	namespace, name string // of the group
	compile         due.Compiler

	jobs      map[string]*jobEntry // by segment
	planned   map[string]int       // plans by incarnation that owns shards
	members   map[string]*memberEntry
	instances map[registry.SessionID]instanceEntry
	group     registry.Entry // the control record of the group; zero if there is none
	leader    registry.Entry
	seat      registry.Entry

	summaries
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
	index      int            // in summaries.expiries; -1 if expires is zero
	running    map[string]int // by incarnation
	unreadable []registry.Key // records of the job that could not be decoded
	owned      map[string]int // by incarnation

	changed   bool   // since the last call of changes
	published string // the job's name as of that call, empty if it was not known
}

// memberEntry is a member record.
type memberEntry struct {
	entry registry.Entry
	m     record.Member
	err   error
}

// instanceEntry is the owned key of an instance.
type instanceEntry struct {
	key registry.Key
	record.Instance
	err error // the record could not be decoded
}

func (o *Operator) newGroupRecords() *groupRecords {
	return &groupRecords{
		keys: o.keys, namespace: o.namespace, name: o.group, compile: o.compile, jobs: map[string]*jobEntry{}, planned: map[string]int{},
		members: map[string]*memberEntry{}, instances: map[registry.SessionID]instanceEntry{},
		summaries: summaries{owned: map[string]int{}, running: map[string]int{}, unreadable: map[*jobEntry]bool{}},
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
	for inc := range g.planned {
		all[inc] = true
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
		g.lostStale = true
		if e.Key == "" {
			delete(g.members, key.Name())
			return
		}
		m, err := record.DecodeMemberEntry(e)
		g.members[key.Name()] = &memberEntry{e, m, err}
	case dir == g.keys.Instances():
		g.lostStale = true
		g.setInstance(key, e)
	case dir == g.keys.Jobs():
		g.job(key).def = e
	case dir == g.keys.Controls():
		g.job(key).control = e
	case dir == g.keys.Plans():
		g.setPlan(g.job(key), e)
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
	maps.DeleteFunc(g.instances, func(_ registry.SessionID, old instanceEntry) bool { return old.key == key })
	if e.Key == "" {
		return
	}
	i, err := record.Decode[record.Instance](e.Value)
	if err != nil {
		i = record.Instance{}
	}
	g.instances[e.Owner] = instanceEntry{key, i, err}
}

// setPlan sets the plan of a job. It decodes the plan at once, for the claims of its owners are listed
// or watched next.
func (g *groupRecords) setPlan(j *jobEntry, e registry.Entry) {
	count := func(sign int) {
		if p, _ := j.decodePlan(g.compile); p != nil {
			for inc := range p.Owners {
				if g.planned[inc] += sign; g.planned[inc] == 0 {
					delete(g.planned, inc)
				}
			}
		}
	}
	count(-1)
	j.plan = e
	count(1)
}

// job returns the entry of a job by the key of one of its records, which is about to change.
func (g *groupRecords) job(key registry.Key) *jobEntry {
	j := g.jobs[key.Name()]
	if j == nil {
		j = &jobEntry{claims: map[string]registry.Entry{}, index: -1}
		g.jobs[key.Name()] = j
	}
	g.markStale(j)
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
		c, err := record.DecodeClaims(e.Value)
		if err != nil {
			fault(e)
			continue
		}
		r.claims[inc] = c
	}
	slices.Sort(j.unreadable)
	return r, r.def.Name != ""
}
