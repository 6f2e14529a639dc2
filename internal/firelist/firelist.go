// Package firelist has fires as lists of instants in ascending order.
package firelist

import (
	"sort"
	"time"
)

// Next returns the first of all fires after an instant, or the zero Time if there is none.
func Next(all []time.Time, after time.Time) time.Time {
	if i := through(all, after); i < len(all) {
		return all[i]
	}
	return time.Time{}
}

// Count returns the number of fires after one instant and not after another.
func Count(all []time.Time, after, last time.Time) int {
	return max(0, through(all, last)-through(all, after))
}

// through returns the number of fires that are not after t.
func through(all []time.Time, t time.Time) int {
	return sort.Search(len(all), func(i int) bool { return all[i].After(t) })
}

// Before returns fire if it is before until or until is zero, and the zero Time otherwise.
func Before(fire, until time.Time) time.Time {
	if until.IsZero() || fire.Before(until) {
		return fire
	}
	return time.Time{}
}
