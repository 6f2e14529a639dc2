package leader

import (
	"time"
)

// absence is the absence of a member whose shards wait for its return. A leader measures it on its
// own clock, from its first observation, so the next leader starts again from zero.
type absence struct {
	expired bool // false: the member drains
	since   time.Time
}

// measureAbsences returns how long members with a restart grace have been draining or expired.
func (l *Leader) measureAbsences() map[string]time.Duration {
	before := l.absences
	l.absences = map[string]absence{}
	durations := map[string]time.Duration{}
	for inc := range l.View.Members {
		if !l.View.MayAwait(inc) {
			continue
		}
		expired := !l.View.Alive(inc)
		a, known := before[inc]
		if !known || a.expired != expired {
			a = absence{expired, time.Now()}
		}
		l.absences[inc] = a
		durations[inc] = time.Since(a.since)
	}
	return durations
}
