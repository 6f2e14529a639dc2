package remote

import "time"

// Instant is a moment on two clocks: the monotonic one, which on some systems stands
// still while the machine sleeps, and the wall clock, which may be set.
type Instant struct {
	at   time.Time
	wall time.Time // has no monotonic reading
}

// Now returns the present moment.
func Now() Instant {
	t := time.Now()
	return Instant{at: t, wall: t.Round(0)}
}

// Since returns how long ago earlier was: what either clock says, if that is more. A wall
// clock that was set forward makes it too much, which ends sessions before their time. Too
// little would let them live on after it.
func (i Instant) Since(earlier Instant) time.Duration {
	return max(i.at.Sub(earlier.at), i.wall.Sub(earlier.wall))
}

// slept returns by how much the wall clock has run ahead since earlier.
func (i Instant) slept(earlier Instant) time.Duration {
	return max(0, i.wall.Sub(earlier.wall)-i.at.Sub(earlier.at))
}
