package schedule

import (
	"fmt"
	"math"
	"time"

	"github.com/rota-dev/rota/internal/firelist"
)

// fireSet is the fires of a schedule: a set of instants, ordered, the same in every
// process. Its methods may be called from many goroutines.
type fireSet interface {
	// next returns the first fire after an instant, in UTC, or the zero Time if there is
	// none.
	next(after time.Time) time.Time
	// count returns the number of fires after one instant and not after another. Its cost
	// does not depend on that number.
	count(after, through time.Time) int
}

// never is the fires of OnTrigger.
type never struct{}

func (never) next(time.Time) time.Time       { return time.Time{} }
func (never) count(time.Time, time.Time) int { return 0 }

// interval is the fires of Every: the multiples of its nanoseconds since the Unix
// epoch, as far as 64 bits hold them, which is from 1677 to 2262.
type interval int64

func newInterval(text string) (fireSet, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return nil, err
	}
	if d < minInterval {
		return nil, fmt.Errorf("the interval is below %v", minInterval)
	}
	return interval(d), nil
}

func (d interval) next(after time.Time) time.Time {
	n := d.through(after)
	if n >= math.MaxInt64/int64(d) {
		return time.Time{}
	}
	return time.Unix(0, (n+1)*int64(d)).UTC()
}

func (d interval) count(after, through time.Time) int {
	return int(min(max(0, d.through(through)-d.through(after)), math.MaxInt))
}

var (
	minNano = time.Unix(0, math.MinInt64)
	maxNano = time.Unix(0, math.MaxInt64)
)

// through returns the number of the last multiple that is not after t.
func (d interval) through(t time.Time) int64 {
	switch {
	case t.Before(minNano):
		return math.MinInt64/int64(d) - 1
	case t.After(maxNano):
		return math.MaxInt64 / int64(d)
	}
	return floorDiv(t.UnixNano(), int64(d))
}

// floorDiv returns a/b rounded down, for a positive b.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// instants is the fires of At: in ascending order, without duplicates.
type instants []time.Time

func newInstants(text string) (fireSet, error) {
	all, err := parseInstants(text)
	return instants(all), err
}

func (all instants) next(after time.Time) time.Time { return firelist.Next(all, after) }

func (all instants) count(after, through time.Time) int { return firelist.Count(all, after, through) }

// shortestGap returns the shortest time between two instants, or the longest Duration if there is only one.
func (all instants) shortestGap() time.Duration {
	gap := time.Duration(math.MaxInt64)
	for i := range len(all) - 1 {
		gap = min(gap, all[i+1].Sub(all[i]))
	}
	return gap
}

// bounded is a fireSet without its fires before from, and without those at until and later.
type bounded struct {
	fireSet
	from, until time.Time // zero: no bound
}

func (b *bounded) next(after time.Time) time.Time {
	return firelist.Before(b.fireSet.next(b.notBeforeFrom(after)), b.until)
}

func (b *bounded) count(after, through time.Time) int {
	if !b.until.IsZero() && !through.Before(b.until) {
		through = b.until.Add(-1)
	}
	if after = b.notBeforeFrom(after); after.After(through) {
		return 0
	}
	return b.fireSet.count(after, through)
}

// notBeforeFrom returns after, or the instant just before the first bound if that is later.
func (b *bounded) notBeforeFrom(after time.Time) time.Time {
	if before := b.from.Add(-1); after.Before(before) {
		return before
	}
	return after
}

// unbounded returns f without its bounds.
func unbounded(f fireSet) fireSet {
	if b, ok := f.(*bounded); ok {
		return b.fireSet
	}
	return f
}
