package coordinator

import (
	"time"

	"github.com/rota-dev/rota/internal/shardset"
)

// MaxRestartGrace bounds MemberOptions.RestartGrace, whatever a record says.
const MaxRestartGrace = time.Hour

// absence is that of a member whose shards may wait for its return. A leader counts it on
// its own clock, from when it first saw it: who comes after it counts anew.
type absence struct {
	gone  bool // the session has ended; until then the member drains
	since time.Time
}

// absences returns for how long this leader has seen members drain or gone that ask it to
// wait for their return.
func (l *leader) absences() map[string]time.Duration {
	was := l.absent
	l.absent = map[string]absence{}
	lasting := map[string]time.Duration{}
	for inc, m := range l.view.members {
		gone := !l.view.alive(inc)
		if m.RestartGrace <= 0 || !gone && !m.Draining {
			continue
		}
		a, known := was[inc]
		if !known || a.gone != gone {
			a = absence{gone, time.Now()}
		}
		l.absent[inc] = a
		lasting[inc] = time.Since(a.since)
	}
	return lasting
}

// awaitReturns finds out whose shards wait for an instance of the same name, and whose
// have one that is back. A drain is waited for as well, but not for ever: functions that
// do not return must not keep the shards that are idle.
func (v *view) awaitReturns() {
	v.awaited, v.heirs, v.patience = map[string]bool{}, map[string]string{}, 0
	if len(v.away) == 0 {
		return
	}
	present := map[string]string{} // incarnations, by name
	for inc, m := range v.members {
		if v.alive(inc) && !m.Draining {
			present[m.Name] = inc
		}
	}
	for inc, lasting := range v.away {
		m := v.members[inc]
		if heir, ok := present[m.Name]; ok {
			v.heirs[inc] = heir
			continue
		}
		left := min(time.Duration(m.RestartGrace), MaxRestartGrace) - lasting
		if left <= 0 || v.outside.Excludes(&m.Member) {
			continue
		}
		v.awaited[inc] = true
		if v.patience == 0 || left < v.patience {
			v.patience = left
		}
	}
}

// heirOf returns who is to keep what an incarnation has: itself, or the one that has come
// back for it.
func (v *view) heirOf(inc string) string {
	if heir, ok := v.heirs[inc]; ok {
		return heir
	}
	return inc
}

// waits reports whether what an incarnation has of a job waits for its return. Who may not
// own shards of the job is not waited for: that would keep them where nobody is to have them.
func (v *view) waits(segment, inc string) bool {
	return v.awaited[inc] && !v.bars(segment, inc)
}

// setAside takes out of a job that is to be dealt the shards that wait for a return. It
// returns the numbers of those that are left, by their new places; nil if that is all.
func (v *view) setAside(segment string, job *balanceJob) (numbers []int) {
	if len(v.awaited) == 0 {
		return nil
	}
	owners := make([]string, 0, len(job.owners))
	numbers = make([]int, 0, len(job.owners))
	for s, inc := range job.owners {
		if !v.waits(segment, inc) {
			numbers = append(numbers, s)
			owners = append(owners, inc)
		}
	}
	if len(owners) == len(job.owners) {
		return nil
	}
	job.owners = owners
	places := func(set shardset.Set) (places shardset.Set) {
		for place, s := range numbers {
			if set.Has(s) {
				places.Add(place)
			}
		}
		return places
	}
	for inc, set := range job.blocked {
		job.blocked[inc] = places(set)
	}
	if !job.frozen.IsZero() {
		job.frozen = places(job.frozen)
	}
	return numbers
}

// leaveAside gives those whose return is awaited what they have.
func (v *view) leaveAside(segment string, owners map[string]shardset.Set) {
	p := v.plans[segment]
	all := shardset.Range(0, p.Shards())
	for inc, set := range p.Owners {
		if set = set.Intersect(all); v.waits(segment, inc) && !set.IsZero() {
			owners[inc] = set
		}
	}
}
