package snapshot

import (
	"maps"
	"slices"

	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/group/planning"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

// IsLive reports whether a session is that of a live instance.
func (s *Snapshot) IsLive(session registry.SessionID) bool {
	_, live := s.Live[session]
	return live
}

// ReadLeader returns the leader's incarnation and term. Both are zero if there is no leader, or if its record cannot be
// read, which members log.
func (s *Snapshot) ReadLeader() (incarnation string, term uint64) {
	if s.Seat == nil || s.Leader.Leader == nil {
		return "", 0
	}
	return s.Leader.Incarnation, s.Leader.Rev.Seq
}

// Skewed returns how far skewed clocks are ahead, by incarnation.
func (s *Snapshot) Skewed() map[string]record.Duration {
	if s.Seat == nil {
		return nil
	}
	return s.Seat.Skewed
}

// Owners returns the shards of each owner of a job, by incarnation.
func (s *Snapshot) Owners(segment string) map[string]shardset.Set {
	if p := s.Plans[segment].Plan; p != nil {
		return p.Owners
	}
	return nil
}

// ClaimantsOf returns the members, and the owners of shards of a job, sorted.
func (s *Snapshot) ClaimantsOf(segment string) []string {
	all := map[string]bool{}
	for inc := range s.Members {
		all[inc] = true
	}
	for inc := range s.Owners(segment) {
		all[inc] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// LiveMembers returns the live members that do not drain, by incarnation.
func (s *Snapshot) LiveMembers() []*record.Member {
	var live []*record.Member
	for _, inc := range slices.Sorted(maps.Keys(s.Members)) {
		if m := s.Members[inc]; s.IsLive(m.Session) && !m.Draining {
			live = append(live, &m.Member)
		}
	}
	return live
}

// Definition returns the stored definition of a job, or else that of its plan, from which the leader restores it. Its Name
// is empty if there is neither.
func (s *Snapshot) Definition(segment string) planning.JobRecord {
	def := s.Jobs[segment]
	if p := s.Plans[segment].Plan; p != nil && def.Name == "" {
		def.Def, def.Job = p.Last().Def, p.Last().Job()
	}
	return def
}

// InForce returns the definition of the plan of a job, or else the stored one, or one of a name without either.
func (s *Snapshot) InForce(segment, name string) record.Job {
	if p := s.Plans[segment].Plan; p != nil {
		return p.Last().Job()
	}
	if j := s.Jobs[segment].Job; j.Name != "" {
		return j
	}
	return record.Job{Name: name}
}

// Progress returns the progress of a job's shards, by the plan and all claims. The job must have a plan.
func (s *Snapshot) Progress(segment string) (planning.JobProgress, due.Progress) {
	p := s.Plans[segment].Plan
	done := planning.JobProgress{Watermarks: p.Watermarks}
	var handedBack []due.Pending
	for _, inc := range slices.Sorted(maps.Keys(s.Claims[segment])) {
		claims := s.Claims[segment][inc].Claims
		done.AddClaims(p.Owners[inc], claims)
		handedBack = append(handedBack, due.HandedBack(&claims, p.Owners[inc]))
	}
	return done, due.NewProgress(done.Watermarks, done.Running, due.PendingOf(p, handedBack...))
}

// Compile returns the programs of a plan by epoch number, without those of definitions that compile does not support. A nil
// plan has none, and a nil compile supports none.
func Compile(p *record.Plan, compile due.Compiler) map[int]due.Program {
	programs := map[int]due.Program{}
	if p == nil || compile == nil {
		return programs
	}
	for i := range p.Epochs {
		if prog, err := compile(p.Epochs[i].Def); err == nil {
			programs[p.Epochs[i].Number] = prog
		}
	}
	return programs
}

// View returns the view of a leader that knows the records. A leader leaves out records that cannot be read.
func (s *Snapshot) View(compile due.Compiler) planning.View {
	v := planning.View{
		Keys: s.Keys, Live: map[registry.SessionID]bool{}, Members: maps.Clone(s.Members), Jobs: s.Jobs, Control: s.Control, Plans: s.Plans,
		UnreadablePlans: map[string]bool{}, UnreadableInputs: map[string]registry.Key{}, Compile: compile, Skewed: s.Skewed(),
	}
	for session := range s.Live {
		v.Live[session] = true
	}
	if s.Group.GroupControl != nil {
		v.GroupExclusion = s.Group.Exclusion
	}
	for _, key := range slices.Concat(s.Damaged(s.at.jobs), s.Damaged(s.at.controls)) {
		if _, ofJob := s.JobOf(key); ofJob {
			v.UnreadableInputs[key.Name()] = key
		}
	}
	for _, key := range s.Damaged(s.at.plans) {
		v.UnreadablePlans[key.Name()] = true
	}
	return v
}
