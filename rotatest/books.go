package rotatest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// books is what the registry holds of the fleet, and what has been claimed in it. They are
// kept from the server's log alone: looking at them costs the fleet nothing, and they know
// what was there in between.
type books struct {
	groups   []*group
	sessions map[registry.SessionID]string // the machine of each that lives
	buried   map[string]bool               // machines of processes that have crashed
	drained  map[string]bool               // machines of processes that leave, or have left
	fault    func(format string, args ...any)
	returned func(id string) bool // whether the handler of a run was called and has returned; nil: of none
}

// group is the books of a group.
type group struct {
	books   *books
	keys    record.Keys
	office  registry.SessionID // whose key shows that it leads
	members map[string]record.Member
	outside record.Exclusion     // who is disabled for all jobs
	jobs    map[string]*jobBooks // by segment
}

// jobBooks is the books of a job. What it points to is never changed, only replaced.
type jobBooks struct {
	group   *group
	name    string
	stored  *record.Job     // the definition in the registry, which the plan is to take up
	control *record.Control // nil: none
	plan    *record.Plan    // nil: none yet
	claims  map[string]*record.Claims
	epochs  map[int]epoch     // of all plans there have been, by generation
	marks   record.Watermarks // what has been claimed or skipped of each shard, by anyone
}

// wasReset reports whether a job of this name, of any group, has been reset.
func (b *books) wasReset(job string) bool {
	for _, g := range b.groups {
		for _, j := range g.jobs {
			if j.name == job && j.plan != nil && j.plan.Resets > 0 {
				return true
			}
		}
	}
	return false
}

func newBooks(fault func(string, ...any)) *books {
	return &books{
		sessions: map[registry.SessionID]string{}, buried: map[string]bool{}, drained: map[string]bool{}, fault: fault,
	}
}

// open opens the books of a group, before anything is written in it.
func (b *books) open(keys record.Keys) {
	if slices.ContainsFunc(b.groups, func(g *group) bool { return g.keys == keys }) {
		return
	}
	b.groups = append(b.groups, &group{books: b, keys: keys, members: map[string]record.Member{}, jobs: map[string]*jobBooks{}})
}

// bury says that the process on a machine has crashed. Its session lives on for a while.
func (b *books) bury(machine string) { b.buried[machine] = true }

// enter brings the books up to date.
func (b *books) enter(log []memory.Commit) {
	for _, c := range log {
		if !c.Changed() {
			continue
		}
		if c.Opened != "" {
			b.sessions[c.Opened] = c.Client
		}
		delete(b.sessions, c.Ended)
		ops := slices.Clone(c.Then)
		for _, key := range c.Gone {
			ops = append(ops, registry.Op{Kind: registry.OpDelete, Key: key})
		}
		for _, g := range b.groups {
			g.enter(c, ops)
		}
	}
}

// enter writes what a commit did into the books, and audits the jobs that it touched.
func (g *group) enter(c memory.Commit, ops []registry.Op) {
	before := map[*jobBooks]jobBooks{}
	touch := func(segment string) *jobBooks {
		j := g.job(segment)
		if _, ok := before[j]; !ok {
			old := *j
			old.claims = maps.Clone(j.claims)
			before[j] = old
		}
		return j
	}
	for _, op := range ops {
		if err := g.write(op, touch); err != nil {
			g.books.fault("%s wrote %s at %s, which cannot be read: %v", c.Client, op.Key, clock(c.At), err)
		}
	}
	for j, old := range before {
		j.audit(c, &old)
	}
}

func (g *group) job(segment string) *jobBooks {
	j := g.jobs[segment]
	if j == nil {
		j = &jobBooks{group: g, name: segment, claims: map[string]*record.Claims{}, epochs: map[int]epoch{}}
		g.jobs[segment] = j
	}
	return j
}

// write writes one operation into the books. Keys that say nothing about jobs are passed
// over.
func (g *group) write(op registry.Op, touch func(segment string) *jobBooks) (err error) {
	dir, name := op.Key.Dir(), op.Key.Name()
	gone := op.Kind == registry.OpDelete
	switch dir {
	case g.keys.Seat().Dir():
		if op.Key == g.keys.Seat() && op.Kind != registry.OpSet { // a Set leaves it with its owner
			g.office = op.Session
		}
	case g.keys.Members():
		delete(g.members, name)
		if !gone {
			var m record.Member
			m, err = record.Decode[record.Member](op.Value)
			g.members[name] = m
			if m.Draining {
				g.books.drained[g.books.sessions[m.Session]] = true
			}
		}
	case g.keys.Jobs():
		j := touch(name)
		j.stored = nil
		if !gone {
			var def record.Job
			_, def, err = record.DecodeDefinition(op.Value)
			j.stored, j.name = &def, def.Name
		}
	case g.keys.Controls():
		if name == record.GroupSegment {
			g.outside = record.Exclusion{}
			if !gone {
				var c *record.GroupControl
				if c, err = record.DecodeGroupControl(op.Value); err == nil {
					g.outside = c.Exclusion
				}
			}
			return err
		}
		j := touch(name)
		j.control = nil
		if !gone {
			j.control, err = record.DecodeControl(op.Value)
		}
	case g.keys.Plans():
		j := touch(name)
		j.plan = nil
		if !gone {
			if j.plan, err = record.DecodePlan(op.Value); err == nil {
				j.name = j.plan.Job
			}
		}
	default:
		if dir.Dir() != g.keys.ClaimsOf("x").Dir() {
			return nil
		}
		j := touch(name)
		delete(j.claims, dir.Name())
		if !gone {
			var c record.Claims
			c, err = record.Decode[record.Claims](op.Value)
			j.claims[dir.Name()] = &c
		}
	}
	return err
}

// alive reports whether an incarnation has a session and its process has not crashed.
func (b *books) alive(incarnation string) bool {
	_, session := split(incarnation)
	machine, ok := b.sessions[session]
	return ok && !b.buried[machine]
}

// absent reports whether the process on a machine should be in the fleet and is not.
func (b *books) absent(machine string) bool {
	for _, g := range b.groups {
		for _, m := range g.members {
			if at, ok := b.sessions[m.Session]; ok && at == machine {
				return false
			}
		}
	}
	return !b.buried[machine] && !b.drained[machine]
}

// stored reports whether the registry has a definition of a job that is not older.
func (b *books) stored(job string, revision int) bool {
	return slices.ContainsFunc(b.named(job), func(j *jobBooks) bool {
		return j.stored != nil && j.stored.Revision >= revision
	})
}

// split returns what record.Incarnation has put together.
func split(incarnation string) (instance string, s registry.SessionID) {
	i := strings.LastIndexByte(incarnation, '.')
	return incarnation[:max(i, 0)], registry.SessionID(incarnation[i+1:])
}

// offers reports whether an incarnation offers to own shards of j, and whether it may:
// operators may have disabled it.
func (j *jobBooks) offers(incarnation string) (offers, may bool) {
	m, ok := j.group.members[incarnation]
	offers = ok && j.group.books.alive(incarnation) && !m.Draining && m.Offers(j.name)
	disabled := j.group.outside.Excludes(&m) || j.control != nil && j.control.Excludes(&m)
	return offers, offers && !disabled
}

// offered reports whether anybody offers to own shards of j, and whether anybody may.
func (j *jobBooks) offered() (offers, may bool) {
	for incarnation := range j.group.members {
		o, m := j.offers(incarnation)
		offers, may = offers || o, may || m
	}
	return offers, may
}

// inFlight returns the runs that stand in a record and may be going on. Where ends are not
// tracked, those stay in it that have ended.
func (j *jobBooks) inFlight(c *record.Claims) record.Runs {
	out := c.Running
	for _, g := range c.Running {
		if j.group.books.returned == nil || j.epochs[g.Epoch].tracksRuns() {
			continue
		}
		for shard := range g.Shards.All() {
			if j.group.books.returned(runID(j.name, shard, g.Ref)) {
				out = out.Without(shardset.Of(shard))
			}
		}
	}
	return out
}

// busy returns the shards of a job that a living process runs according to its record.
func (b *books) busy(job string) shardset.Set {
	var busy shardset.Set
	for _, j := range b.named(job) {
		for incarnation, c := range j.claims {
			if b.alive(incarnation) {
				busy = busy.Union(j.inFlight(c).Shards())
			}
		}
	}
	return busy
}

// running returns Run.ID of the runs of a job that living processes have on record.
func (b *books) running(job string) []string {
	var ids []string
	for _, j := range b.named(job) {
		for incarnation, c := range j.claims {
			if !b.alive(incarnation) {
				continue
			}
			for _, g := range c.Running {
				for shard := range g.Shards.All() {
					ids = append(ids, runID(job, shard, g.Ref))
				}
			}
		}
	}
	return ids
}

// runID returns executor.Run.ID.
func runID(job string, shard int, r record.Ref) string {
	which := r.Fire.Time().Format(time.RFC3339Nano)
	if r.Trigger > 0 {
		which = fmt.Sprint("#", r.Trigger)
	}
	return fmt.Sprintf("%s/%d/%s/%d", job, shard, which, r.Attempt)
}

// named returns the books of jobs of that name, at most one for each group.
func (b *books) named(job string) []*jobBooks {
	var out []*jobBooks
	for _, g := range b.groups {
		if j, ok := g.jobs[record.Segment(job)]; ok {
			out = append(out, j)
		}
	}
	return out
}

// all returns the books of all jobs of g, in order of their segments.
func (g *group) all() []*jobBooks {
	out := make([]*jobBooks, 0, len(g.jobs))
	for _, segment := range slices.Sorted(maps.Keys(g.jobs)) {
		out = append(out, g.jobs[segment])
	}
	return out
}
