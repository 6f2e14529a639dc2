package backend

import "time"

// Instant is an instant on two clocks: the monotonic clock, which some systems stop while the
// machine sleeps, and the wall clock, which may be set.
type Instant struct {
	at   time.Time
	wall time.Time // has no monotonic reading
}

// Now returns the current instant. The zero Instant is none.
func Now() Instant {
	t := time.Now()
	return Instant{at: t, wall: t.Round(0)}
}

// Since returns the time since earlier, by the clock that has advanced more. A wall clock that
// was set forward makes the result too large, which ends sessions early. A result that is too
// small would let a client use a session that the store has ended.
func (i Instant) Since(earlier Instant) time.Duration {
	return max(i.at.Sub(earlier.at), i.wall.Sub(earlier.wall))
}

// slept returns by how much the wall clock has advanced more than the monotonic clock since
// earlier.
func (i Instant) slept(earlier Instant) time.Duration {
	return max(0, i.wall.Sub(earlier.wall)-i.at.Sub(earlier.at))
}
