package rotatest

import (
	"maps"
	"slices"
	"strings"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// model is the content of the registry and the history of claims. It is built from the server's
// log of commits, so it sees every intermediate state and adds no requests.
type model struct {
	groups   []*groupModel
	sessions map[registry.SessionID]string // the machine of each that lives
	crashed  map[string]bool               // machines of processes that have crashed
	drained  map[string]bool               // machines of processes that leave, or have left
	fault    func(format string, args ...any)
	returned func(id string) bool // whether the handler of a run was called and has returned; nil: of none
}

// groupModel is the model of a group.
type groupModel struct {
	model    *model
	keys     record.Keys
	leader   registry.SessionID // whose key shows that it leads
	members  map[string]record.Member
	disabled record.Exclusion     // instances and hosts that are disabled for all jobs
	jobs     map[string]*jobModel // by segment
}

// jobModel is the model of a job. Its records are replaced, never changed in place.
type jobModel struct {
	group      *groupModel
	name       string
	stored     *record.Job     // the definition in the registry, which the plan is to take up
	control    *record.Control // nil: none
	plan       *record.Plan    // nil: none yet
	claims     map[string]*record.Claims
	epochs     map[int]epoch     // of all plans so far, by number
	watermarks record.Watermarks // of each shard, over all claims records
}

// wasReset reports whether a job of this name, of any group, has been reset.
func (b *model) wasReset(job string) bool {
	for _, g := range b.groups {
		for _, j := range g.jobs {
			if j.name == job && j.plan != nil && j.plan.Resets > 0 {
				return true
			}
		}
	}
	return false
}

func newModel(fault func(string, ...any)) *model {
	return &model{
		sessions: map[registry.SessionID]string{}, crashed: map[string]bool{}, drained: map[string]bool{}, fault: fault,
	}
}

// addGroup adds a group, before anything is written in it.
func (b *model) addGroup(keys record.Keys) {
	if slices.ContainsFunc(b.groups, func(g *groupModel) bool { return g.keys == keys }) {
		return
	}
	b.groups = append(b.groups, &groupModel{model: b, keys: keys, members: map[string]record.Member{}, jobs: map[string]*jobModel{}})
}

// markCrashed records that the process on a machine has crashed, before its session expires.
func (b *model) markCrashed(machine string) { b.crashed[machine] = true }

// apply updates the model by commits.
func (b *model) apply(log []memory.Commit) {
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
			g.apply(c, ops)
		}
	}
}

// apply updates the model by a commit, and audits the jobs that it touched.
func (g *groupModel) apply(c memory.Commit, ops []registry.Op) {
	before := map[*jobModel]jobModel{}
	touch := func(segment string) *jobModel {
		j := g.job(segment)
		if _, ok := before[j]; !ok {
			old := *j
			old.claims = maps.Clone(j.claims)
			before[j] = old
		}
		return j
	}
	for _, op := range ops {
		if err := g.applyOp(op, touch); err != nil {
			g.model.fault("%s wrote %s at %s, which cannot be read: %v", c.Client, op.Key, clock(c.At), err)
		}
	}
	for j, old := range before {
		j.audit(c, &old)
	}
}

func (g *groupModel) job(segment string) *jobModel {
	j := g.jobs[segment]
	if j == nil {
		j = &jobModel{group: g, name: segment, claims: map[string]*record.Claims{}, epochs: map[int]epoch{}}
		g.jobs[segment] = j
	}
	return j
}

// applyOp applies one operation to the model. It ignores keys that do not concern jobs.
func (g *groupModel) applyOp(op registry.Op, touch func(segment string) *jobModel) (err error) {
	dir, name := op.Key.Dir(), op.Key.Name()
	gone := op.Kind == registry.OpDelete
	switch dir {
	case g.keys.Seat().Dir():
		if op.Key == g.keys.Seat() && op.Kind != registry.OpSet { // a Set leaves it with its owner
			g.leader = op.Session
		}
	case g.keys.Members():
		delete(g.members, name)
		if !gone {
			var m record.Member
			m, err = record.Decode[record.Member](op.Value)
			g.members[name] = m
			if m.Draining {
				g.model.drained[g.model.sessions[m.Session]] = true
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
			g.disabled = record.Exclusion{}
			if !gone {
				var c *record.GroupControl
				if c, err = record.DecodeGroupControl(op.Value); err == nil {
					g.disabled = c.Exclusion
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
			c, err = record.DecodeClaims(op.Value)
			j.claims[dir.Name()] = &c
		}
	}
	return err
}

// alive reports whether an incarnation has a session and its process has not crashed.
func (b *model) alive(incarnation string) bool {
	_, session := splitIncarnation(incarnation)
	machine, ok := b.sessions[session]
	return ok && !b.crashed[machine]
}

// absent reports whether the process on a machine should be in the fleet and is not.
func (b *model) absent(machine string) bool {
	for _, g := range b.groups {
		for _, m := range g.members {
			if at, ok := b.sessions[m.Session]; ok && at == machine {
				return false
			}
		}
	}
	return !b.crashed[machine] && !b.drained[machine]
}

// stored reports whether the registry has a definition of a job that is not older.
func (b *model) stored(job string, revision int) bool {
	return slices.ContainsFunc(b.named(job), func(j *jobModel) bool {
		return j.stored != nil && j.stored.Revision >= revision
	})
}

// splitIncarnation is the inverse of record.Incarnation.
func splitIncarnation(incarnation string) (instance string, s registry.SessionID) {
	i := strings.LastIndexByte(incarnation, '.')
	return incarnation[:max(i, 0)], registry.SessionID(incarnation[i+1:])
}

// offers reports whether an incarnation offers to own shards of j, and whether it may:
// operators may have disabled it.
func (j *jobModel) offers(incarnation string) (offers, may bool) {
	m, ok := j.group.members[incarnation]
	job := record.Job{Name: j.name}
	if j.stored != nil {
		job = *j.stored
	}
	offers = ok && j.group.model.alive(incarnation) && !m.Draining && m.Offers(job)
	disabled := j.group.disabled.Excludes(&m) || j.control != nil && j.control.Excludes(&m)
	return offers, offers && !disabled
}

// offered reports whether any incarnation offers to own shards of j, and whether any may.
func (j *jobModel) offered() (offers, may bool) {
	for incarnation := range j.group.members {
		o, m := j.offers(incarnation)
		offers, may = offers || o, may || m
	}
	return offers, may
}

// inFlight returns the recorded runs that may not have ended. A job that does not track ends
// has ended runs in its records, too.
func (j *jobModel) inFlight(c *record.Claims) record.Runs {
	out := c.Running
	for _, g := range c.Running {
		if j.group.model.returned == nil || j.epochs[g.Epoch].tracksRuns() {
			continue
		}
		for shard := range g.Shards.All() {
			if j.group.model.returned(j.runID(shard, g.Ref)) {
				out = out.Without(shardset.Of(shard))
			}
		}
	}
	return out
}

// runningShards returns the shards with a run on record.
func (j *jobModel) runningShards() (shards shardset.Set) {
	for _, c := range j.claims {
		shards = shards.Union(c.Running.Shards())
	}
	return shards
}

// atRest reports whether a run, by its Run.ID, is a daemon at rest.
func (b *model) atRest(id string) bool {
	for _, g := range b.groups {
		for _, j := range g.jobs {
			for incarnation, c := range j.claims {
				for _, r := range c.Running {
					for shard := range r.Shards.All() {
						if b.alive(incarnation) && j.runID(shard, r.Ref) == id {
							return j.isDaemonAtRest(shard, r.Epoch)
						}
					}
				}
			}
		}
	}
	return false
}

// isDaemonAtRest reports whether a run of a shard is a daemon that nothing ends: it counts as at rest.
func (j *jobModel) isDaemonAtRest(shard, epoch int) bool {
	return j.plan != nil && !j.plan.Paused && j.plan.Last().Number == epoch && j.epochs[epoch].always &&
		!j.plan.Frozen.Has(shard) && !j.plan.Disabled.Has(shard)
}

// busy returns the shards of a job that a living process runs according to its record.
func (b *model) busyShards(job string) shardset.Set {
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
func (b *model) running(job string) []string {
	var ids []string
	for _, j := range b.named(job) {
		for incarnation, c := range j.claims {
			if !b.alive(incarnation) {
				continue
			}
			for _, g := range c.Running {
				for shard := range g.Shards.All() {
					ids = append(ids, j.runID(shard, g.Ref))
				}
			}
		}
	}
	return ids
}

// runID returns executor.Run.ID.
func (j *jobModel) runID(shard int, r record.Ref) string {
	names := record.NewRunNames(j.id(), r.Fire.Time(), j.plan.RunOf(r), r.Attempt)
	id, _ := names.Of(shard)
	return id
}

// id identifies the job, and its creation if it is a defined one.
func (j *jobModel) id() record.JobID {
	id := record.JobID{Job: j.name}
	id.Namespace, id.Group = j.group.keys.Names()
	if j.plan != nil {
		id.Created = j.plan.Last().Job().Created
	}
	return id
}

// named returns the models of jobs of that name, at most one per group.
func (b *model) named(job string) []*jobModel {
	var out []*jobModel
	for _, g := range b.groups {
		if j, ok := g.jobs[record.Segment(job)]; ok {
			out = append(out, j)
		}
	}
	return out
}

// allJobs returns the models of all jobs of g, in the order of their segments.
func (g *groupModel) allJobs() []*jobModel {
	out := make([]*jobModel, 0, len(g.jobs))
	for _, segment := range slices.Sorted(maps.Keys(g.jobs)) {
		out = append(out, g.jobs[segment])
	}
	return out
}
