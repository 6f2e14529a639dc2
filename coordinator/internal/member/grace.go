package member

import (
	"time"
)

// absence is that of a member whose shards may wait for its return. A leader counts it on
// its own clock, from when it first saw it: who comes after it counts anew.
type absence struct {
	expired bool // the session has ended; until then the member drains
	since   time.Time
}

// measureAbsences returns for how long this leader has seen members drain or gone that ask it to
// wait for their return.
func (l *Leader) measureAbsences() map[string]time.Duration {
	was := l.absences
	l.absences = map[string]absence{}
	lasting := map[string]time.Duration{}
	for inc, m := range l.View.Members {
		gone := !l.View.Alive(inc)
		if m.RestartGrace <= 0 || !gone && !m.Draining {
			continue
		}
		a, known := was[inc]
		if !known || a.expired != gone {
			a = absence{gone, time.Now()}
		}
		l.absences[inc] = a
		lasting[inc] = time.Since(a.since)
	}
	return lasting
}
