package schedule

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"time"

	"github.com/rota-dev/rota/internal/scheduletext"
	"github.com/rota-dev/rota/internal/texthash"
)

// Spread returns s with the starts of its runs distributed over d, from 1 ms to 24 h: the run of a
// shard begins at Offset after its fire, so the shards of many jobs do not begin together.
// Run.FireTime remains the instant of the fire. Two fires of s must not be closer to each other than d.
//
// Fires are claimed on time; a claimed run waits in its instance, without a worker, until its
// instant. That applies to each attempt of a fire: a run that was claimed later than its instant
// begins at once, as does a re-run of an attempt that had begun. Runs of triggers do not wait.
//
// A shard whose run waits counts as running, so a later fire waits, and is subject to
// Job.OnMisfire. If the shard is to move or is disabled, the job is paused, or the instance drains,
// the waiting run is handed back, and its next attempt begins at the same instant on the shard's
// owner; after a pause, perhaps later. Jobs with CountAsFailed or TrackClaims hand nothing back:
// their shards move after the run, and a drain begins their waiting runs at once.
func (s Schedule) Spread(d time.Duration) Schedule { return s.with("spread", scheduletext.Duration(d)) }

// Offset returns how long after a fire the run of a shard of a job begins: from 0 to the duration of
// Spread, which is excluded. It is 0 if s has no Spread. The result depends only on the job's name, the
// shard and that duration: it is the same on all instances and in all versions.
func (s Schedule) Offset(job string, shard int) time.Duration {
	t, err := s.Timetable()
	if err != nil {
		return 0
	}
	return t.Offset(job, shard)
}

// spreadOffset returns the offset of a shard's runs, from 0 to d, which is excluded. Every instance
// must compute the same, so the function never changes.
func spreadOffset(job string, shard int, d time.Duration) time.Duration {
	offset, _ := bits.Mul64(texthash.Sum(job+"/"+strconv.Itoa(shard)), uint64(d))
	return time.Duration(offset)
}

// spread returns the duration of Spread, 0 if there is none.
func (all modifiers) spread() (time.Duration, error) {
	text, ok := all.find("spread")
	if !ok {
		return 0, nil
	}
	return time.ParseDuration(text)
}

func checkSpread(kind []string, all modifiers) error {
	if _, ok := all.find("spread"); !ok {
		return nil
	}
	d, err := all.spread()
	switch {
	case err != nil:
		return err
	case d < minSpread || d > maxSpread:
		return fmt.Errorf("the spread is not from %s to %s", scheduletext.Duration(minSpread), scheduletext.Duration(maxSpread))
	}
	if kind[0] == "fixed" || kind[0] == alwaysText {
		return errors.New("runs that count from the ends of runs cannot be spread")
	}
	return nil
}

// checkGaps returns an error if two fires of f are closer to each other than the spread. A shard whose run waits is
// busy, so the fires in that time would be missed.
func checkGaps(f fireSet, spread time.Duration) error {
	var gap time.Duration
	switch f := f.(type) {
	case interval:
		gap = time.Duration(f)
	case instants:
		gap = f.shortestGap()
	case *crontab:
		gap = f.pattern.shortestGap()
	}
	if gap < spread {
		return fmt.Errorf("the spread is longer than %s, the shortest time between two fires", scheduletext.Duration(gap))
	}
	return nil
}
