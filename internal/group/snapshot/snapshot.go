package snapshot

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/rota-dev/rota/internal/group/planning"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// Snapshot is the decoded records. Its maps are to be read only; Put and the like change them.
type Snapshot struct {
	Keys    record.Keys
	Meta    *record.Meta // nil: there is none, or it cannot be read
	Seat    *record.Seat // nil: the group has no leader. One that cannot be read is there, and zero
	Leader  LeaderRecord
	Group   planning.GroupRecord                        // without a GroupControl: there is none, or it cannot be read
	Members map[string]planning.MemberRecord            // by incarnation
	Live    map[registry.SessionID]record.Instance      // sessions of live instances. A record that cannot be read is zero
	Jobs    map[string]planning.JobRecord               // by segment
	Control map[string]planning.ControlRecord           // by segment
	Plans   map[string]planning.PlanRecord              // by segment
	Claims  map[string]map[string]planning.ClaimsRecord // by segment and incarnation
	Slots   map[string]record.Slots                     // by pool
	Demands map[string]record.Demand                    // for slots, by incarnation

	// Unreadable are the records that cannot be read, and why. The error of a value that another program wrote is an
	// ErrForeign.
	Unreadable map[registry.Key]error

	at       places
	sessions map[registry.Key]registry.SessionID // the owners of the keys of instances
	demandOf map[registry.Key]string             // the incarnations of Demands
	owners   map[string]int                      // how many plans have an incarnation as an owner
	pooled   int                                 // how many plans have a pool
}

// LeaderRecord is the record of the leader and its revision. Leader is nil if there is none, or if it cannot be read.
type LeaderRecord struct {
	Rev registry.Rev
	*record.Leader
}

// places are keys and directories of a group. They are kept, for each entry is compared with them.
type places struct {
	meta, seat, leader, group                                         registry.Key
	election, members, instances, jobs, controls, plans, claims, ends registry.Key // directories
	demands, slots                                                    registry.Key // directories
}

// New returns an empty snapshot.
func New(keys record.Keys) *Snapshot {
	return &Snapshot{
		Keys: keys, Members: map[string]planning.MemberRecord{}, Live: map[registry.SessionID]record.Instance{},
		Jobs: map[string]planning.JobRecord{}, Control: map[string]planning.ControlRecord{}, Plans: map[string]planning.PlanRecord{},
		Claims: map[string]map[string]planning.ClaimsRecord{}, Slots: map[string]record.Slots{}, Demands: map[string]record.Demand{}, Unreadable: map[registry.Key]error{},
		at: places{
			keys.Meta(), keys.Seat(), keys.Leader(), keys.GroupControl(),
			keys.Election(), keys.Members(), keys.Instances(), keys.Jobs(), keys.Controls(), keys.Plans(), keys.ClaimsOf("x").Dir(), keys.Ends(),
			keys.Demands(), keys.Pools(),
		},
		sessions: map[registry.Key]registry.SessionID{}, demandOf: map[registry.Key]string{}, owners: map[string]int{},
	}
}

// Directories returns the directories of the group but those of claims and of pools, in the order to read them: a plan before the claims
// of its owners, and a member before its session, so that a member that is just joining does not appear to have expired.
func (s *Snapshot) Directories() []registry.Key {
	d := &s.at
	return []registry.Key{d.jobs, d.controls, d.plans, d.election, d.members, d.instances}
}

// PoolDirectories returns the directories that matter once HasPool, in the order to read them: with a demand that is older than the grant,
// an incarnation has too many slots rather than too few.
func (s *Snapshot) PoolDirectories() []registry.Key {
	return []registry.Key{s.at.demands, s.at.slots}
}

// PutAll calls Put for each entry.
func (s *Snapshot) PutAll(entries []registry.Entry) {
	for _, e := range entries {
		s.Put(e)
	}
}

// Put adds an entry, or replaces the one at its key. It ignores keys that a snapshot does not hold.
func (s *Snapshot) Put(e registry.Entry) {
	s.Remove(e.Key)
	decode := s.decodeOfGroup
	if _, ofJob := s.JobOf(e.Key); ofJob {
		decode = s.decodeOfJob
	}
	if err := decode(e); err != nil {
		s.Unreadable[e.Key] = err
	}
}

// PutForeign notes that reading a key failed with an ErrForeign. Lists and watches leave such a value out.
func (s *Snapshot) PutForeign(key registry.Key, err error) {
	s.Remove(key)
	s.Unreadable[key] = err
}

// decodeOfGroup decodes and adds a record that belongs to no job.
func (s *Snapshot) decodeOfGroup(e registry.Entry) error {
	switch dir := e.Key.Dir(); {
	case e.Key == s.at.meta:
		m, err := record.DecodeMeta(e.Value)
		if err != nil {
			return err
		}
		s.Meta = &m
	case e.Key == s.at.seat:
		seat, err := record.Decode[record.Seat](e.Value)
		s.Seat = &seat
		return err
	case e.Key == s.at.leader:
		l, err := record.Decode[record.Leader](e.Value)
		if err != nil {
			return err
		}
		s.Leader = LeaderRecord{e.Modified, &l}
	case e.Key == s.at.group:
		c, err := record.DecodeGroupControl(e.Value)
		if err != nil {
			return err
		}
		s.Group = planning.GroupRecord{Rev: e.Modified, GroupControl: c}
	case dir == s.at.members:
		m, err := record.DecodeMemberEntry(e)
		if err != nil {
			return err
		}
		s.Members[e.Key.Name()] = planning.MemberRecord{Rev: e.Modified, Member: m}
	case dir == s.at.instances:
		i, err := record.Decode[record.Instance](e.Value)
		if err != nil {
			i = record.Instance{}
		}
		s.Live[e.Owner], s.sessions[e.Key] = i, e.Owner
		return err
	case dir == s.at.slots:
		slots, err := record.DecodeSlotsEntry(e)
		if err != nil {
			return err
		}
		s.Slots[slots.Pool] = slots
	case dir == s.at.demands:
		d, err := s.Keys.DecodeDemandEntry(e)
		if err != nil {
			return err
		}
		s.Demands[d.Incarnation], s.demandOf[e.Key] = d, d.Incarnation
	case dir == s.at.ends: // only whether they can be read is of interest
		_, err := record.DecodeEnds(e.Value)
		return err
	}
	return nil
}

// decodeOfJob decodes and adds a record of a job.
func (s *Snapshot) decodeOfJob(e registry.Entry) error {
	segment := e.Key.Name()
	switch dir := e.Key.Dir(); dir {
	case s.at.jobs:
		text, job, err := record.DecodeDefinition(e.Value)
		if err == nil {
			err = record.CheckJobOf(e.Key, job.Name)
		}
		if err != nil {
			return err
		}
		s.Jobs[segment] = planning.JobRecord{Rev: e.Modified, Def: text, Job: job}
	case s.at.controls:
		c, err := record.DecodeOf(e, record.DecodeControl)
		if err != nil {
			return err
		}
		s.Control[segment] = planning.ControlRecord{Rev: e.Modified, Control: c}
	case s.at.plans:
		p, err := record.DecodePlanEntry(e)
		if err != nil {
			return err
		}
		s.Plans[segment] = planning.PlanRecord{Rev: e.Modified, Plan: p}
		s.countPlan(p, 1)
	default: // claims
		c, err := record.DecodeOf(e, record.DecodeClaims)
		if err != nil {
			return err
		}
		if s.Claims[segment] == nil {
			s.Claims[segment] = map[string]planning.ClaimsRecord{}
		}
		s.Claims[segment][dir.Name()] = planning.ClaimsRecord{Rev: e.Modified, Claims: c}
	}
	return nil
}

// Remove removes the record at a key.
func (s *Snapshot) Remove(key registry.Key) {
	delete(s.Unreadable, key)
	name := key.Name()
	switch dir := key.Dir(); {
	case key == s.at.meta:
		s.Meta = nil
	case key == s.at.seat:
		s.Seat = nil
	case key == s.at.leader:
		s.Leader = LeaderRecord{}
	case key == s.at.group:
		s.Group = planning.GroupRecord{}
	case dir == s.at.members:
		delete(s.Members, name)
	case dir == s.at.instances:
		delete(s.Live, s.sessions[key])
		delete(s.sessions, key)
	case dir == s.at.slots:
		delete(s.Slots, name)
	case dir == s.at.demands:
		delete(s.Demands, s.demandOf[key])
		delete(s.demandOf, key)
	case dir == s.at.jobs:
		delete(s.Jobs, name)
	case dir == s.at.controls:
		delete(s.Control, name)
	case dir == s.at.plans:
		s.countPlan(s.Plans[name].Plan, -1)
		delete(s.Plans, name)
	case dir.Dir() == s.at.claims:
		if delete(s.Claims[name], dir.Name()); len(s.Claims[name]) == 0 {
			delete(s.Claims, name)
		}
	}
}

func (s *Snapshot) countPlan(p *record.Plan, sign int) {
	if p == nil {
		return
	}
	if p.HasPool() {
		s.pooled += sign
	}
	for inc := range p.Owners {
		if s.owners[inc] += sign; s.owners[inc] == 0 {
			delete(s.owners, inc)
		}
	}
}

// JobOf returns the segment of the job that a record belongs to. It returns false for records of no job.
func (s *Snapshot) JobOf(key registry.Key) (segment string, ok bool) {
	switch dir := key.Dir(); {
	case dir == s.at.jobs, dir == s.at.plans, dir.Dir() == s.at.claims, dir == s.at.controls && key != s.at.group:
		return key.Name(), true
	}
	return "", false
}

// Segments returns the segments of all jobs with a record, readable or not, perhaps more than once.
func (s *Snapshot) Segments() iter.Seq[string] {
	return func(yield func(string) bool) {
		for key := range s.Unreadable {
			if segment, ofJob := s.JobOf(key); ofJob && !yield(segment) {
				return
			}
		}
		for _, segments := range []iter.Seq[string]{maps.Keys(s.Jobs), maps.Keys(s.Control), maps.Keys(s.Plans), maps.Keys(s.Claims)} {
			for segment := range segments {
				if !yield(segment) {
					return
				}
			}
		}
	}
}

// Has reports whether there is a record at a key, readable or not. It knows no claims and no copies of them.
func (s *Snapshot) Has(key registry.Key) (found bool) {
	if _, damaged := s.Unreadable[key]; damaged {
		return true
	}
	name := key.Name()
	switch dir := key.Dir(); {
	case key == s.at.meta:
		return s.Meta != nil
	case key == s.at.seat:
		return s.Seat != nil
	case key == s.at.leader:
		return s.Leader.Leader != nil
	case key == s.at.group:
		return s.Group.GroupControl != nil
	case dir == s.at.members:
		_, found = s.Members[name]
	case dir == s.at.instances:
		_, found = s.sessions[key]
	case dir == s.at.slots:
		_, found = s.Slots[name]
	case dir == s.at.demands:
		_, found = s.demandOf[key]
	case dir == s.at.jobs:
		_, found = s.Jobs[name]
	case dir == s.at.controls:
		_, found = s.Control[name]
	case dir == s.at.plans:
		_, found = s.Plans[name]
	}
	return found
}

// Check returns the reason why the first of keys that cannot be read cannot.
func (s *Snapshot) Check(keys ...registry.Key) error {
	for _, key := range keys {
		switch err := s.Unreadable[key]; {
		case errors.Is(err, registry.ErrForeign):
			return err // it names the key
		case err != nil:
			return fmt.Errorf("read %s: %w", key, err)
		}
	}
	return nil
}

// Damaged returns the keys of unreadable records under a directory, sorted, without those that another program wrote.
func (s *Snapshot) Damaged(under registry.Key) (keys []registry.Key) {
	for key, err := range s.Unreadable {
		if dir := key.Dir(); (dir == under || dir.Dir() == under) && !errors.Is(err, registry.ErrForeign) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// Foreign returns the keys of PutForeign, sorted.
func (s *Snapshot) Foreign() (keys []registry.Key) {
	for key, err := range s.Unreadable {
		if errors.Is(err, registry.ErrForeign) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// CheckForeign returns the error of the first of Foreign.
func (s *Snapshot) CheckForeign() error { return s.Check(s.Foreign()...) }

// Incarnations returns the incarnations that may have claims, sorted: members, also those whose records cannot be read, and
// owners of shards. The store cannot list the incarnations that have some.
func (s *Snapshot) Incarnations() []string {
	all := map[string]bool{}
	for inc := range s.Members {
		all[inc] = true
	}
	for _, key := range s.Damaged(s.at.members) {
		all[key.Name()] = true
	}
	for inc := range s.owners {
		all[inc] = true
	}
	return slices.Sorted(maps.Keys(all))
}
