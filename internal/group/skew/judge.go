package skew

import (
	"maps"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/record"
)

// FindSkewed returns the members whose clocks are further than limit from the median of all, and how
// far each is ahead of it. ahead holds all clocks, before those that were skewed until now.
//
// The median is the clock of a member, so at least one member is never skewed. Of two clocks in the
// middle it is the one behind, since late fires do less harm than early ones. Of two clocks neither can
// be proven wrong; if exactly one was skewed before, the other stays the reference.
func FindSkewed(ahead, before map[string]record.Duration, limit time.Duration) map[string]record.Duration {
	reference := map[string]record.Duration{}
	for inc, d := range ahead {
		if _, skewed := before[inc]; !skewed {
			reference[inc] = d
		}
	}
	if len(ahead) > 2 {
		reference = ahead
	} else if len(ahead) == len(reference) || len(reference) == 0 {
		return nil
	}
	sorted := slices.Sorted(maps.Values(reference))
	median := sorted[(len(sorted)-1)/2]
	skewed := map[string]record.Duration{}
	for inc, d := range ahead {
		if d -= median; time.Duration(d).Abs() > limit {
			skewed[inc] = d
		}
	}
	return skewed
}

// AheadOf returns by how much at least the local clock is ahead of another one; negative if it is
// behind. The other clock showed at while the local one went from before to after.
func AheadOf(at, before, after time.Time) time.Duration {
	switch {
	case before.After(at):
		return before.Sub(at)
	case after.Before(at):
		return after.Sub(at)
	}
	return 0
}

// JumpDetector detects that the local clock was set, by comparing it with monotonic time.
type JumpDetector struct {
	Limit         time.Duration // 0: detect nothing
	before, after time.Time     // monotonic instants around the last reading that was kept
	clock         time.Time     // that reading
}

// Jumped reports whether the clock, read between the monotonic instants before and after, was set by
// more than the limit since the reading it is compared with. The two instants bound the time of the
// reading, so a process that was suspended around it does not look like a jump.
func (j *JumpDetector) Jumped(before, clock, after time.Time) bool {
	if j.Limit == 0 {
		return false
	}
	clock = clock.Round(0)
	first, advanced := j.clock.IsZero(), clock.Sub(j.clock)
	jumped := !first && (advanced > after.Sub(j.before)+j.Limit || advanced < before.Sub(j.after)-j.Limit)
	if jumped || first {
		j.before, j.clock, j.after = before, clock, after
	}
	return jumped
}
