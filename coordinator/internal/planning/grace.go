package planning

import (
	"time"

	"github.com/rota-dev/rota/coordinator/internal/balance"
	"github.com/rota-dev/rota/internal/shardset"
)

// MaxRestartGrace bounds MemberOptions.RestartGrace, whatever a record says.
const MaxRestartGrace = time.Hour

// awaitReturns finds out whose shards wait for an instance of the same name, and whose
// have one that is back. A drain is waited for as well, but not for ever: functions that
// do not return must not keep the shards that are idle.
func (v *View) awaitReturns() {
	v.awaited, v.returned, v.GraceEnds = map[string]bool{}, map[string]string{}, 0
	if len(v.Absences) == 0 {
		return
	}
	present := map[string]string{} // incarnations, by name
	for inc, m := range v.Members {
		if v.Alive(inc) && !m.Draining {
			present[m.Name] = inc
		}
	}
	for inc, lasting := range v.Absences {
		m := v.Members[inc]
		if heir, ok := present[m.Name]; ok {
			v.returned[inc] = heir
			continue
		}
		left := min(time.Duration(m.RestartGrace), MaxRestartGrace) - lasting
		if left <= 0 || v.GroupExclusion.Excludes(&m.Member) {
			continue
		}
		v.awaited[inc] = true
		if v.GraceEnds == 0 || left < v.GraceEnds {
			v.GraceEnds = left
		}
	}
}

// heirOf returns who is to keep what an incarnation has: itself, or the one that has come
// back for it.
func (v *View) heirOf(inc string) string {
	if heir, ok := v.returned[inc]; ok {
		return heir
	}
	return inc
}

// waits reports whether what an incarnation has of a job waits for its return. Who may not
// own shards of the job is not waited for: that would keep them where nobody is to have them.
func (v *View) waits(segment, inc string) bool {
	return v.awaited[inc] && !v.bars(segment, inc)
}

// setAside takes out of a job that is to be dealt the shards that wait for a return. It
// returns the numbers of those that are left, by their new places; nil if that is all.
func (v *View) setAside(segment string, job *balance.Job) (numbers []int) {
	if len(v.awaited) == 0 {
		return nil
	}
	owners := make([]string, 0, len(job.Owners))
	numbers = make([]int, 0, len(job.Owners))
	for s, inc := range job.Owners {
		if !v.waits(segment, inc) {
			numbers = append(numbers, s)
			owners = append(owners, inc)
		}
	}
	if len(owners) == len(job.Owners) {
		return nil
	}
	job.Owners = owners
	places := func(set shardset.Set) (places shardset.Set) {
		for place, s := range numbers {
			if set.Has(s) {
				places.Add(place)
			}
		}
		return places
	}
	for inc, set := range job.Blocked {
		job.Blocked[inc] = places(set)
	}
	if !job.Frozen.IsZero() {
		job.Frozen = places(job.Frozen)
	}
	return numbers
}

// leaveAside gives those whose return is awaited what they have.
func (v *View) leaveAside(segment string, owners map[string]shardset.Set) {
	p := v.Plans[segment]
	all := shardset.Range(0, p.Shards())
	for inc, set := range p.Owners {
		if set = set.Intersect(all); v.waits(segment, inc) && !set.IsZero() {
			owners[inc] = set
		}
	}
}
