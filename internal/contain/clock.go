package contain

import "time"

// Clock returns a clock that returns time.Now() where clock panics or calls runtime.Goexit, and time.Now if clock
// is nil.
func Clock(clock func() time.Time) func() time.Time {
	if clock == nil {
		return time.Now
	}
	return func() time.Time {
		var now time.Time
		if CallApart("Clock", func() error { now = clock(); return nil }) != nil {
			return time.Now()
		}
		return now
	}
}
