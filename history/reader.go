package history

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// Reader answers questions about the history of one group of a namespace. Fires are as a Recorder has written them;
// runs are those that it kept, see Keep.
type Reader interface {
	// Last returns the last kept run of each shard of a job by its end, ordered by shard.
	Last(ctx context.Context, job string) ([]Run, error)
	// Fires returns the fires of a job from q.Since on, the latest first.
	Fires(ctx context.Context, q FiresQuery) ([]Fire, error)
	// Runs returns the kept runs of a fire, ordered by shard, trigger, attempt and instance. The trigger is 0 for a scheduled fire.
	Runs(ctx context.Context, job string, fire time.Time, trigger uint64) ([]Run, error)
	// RunsOfFire returns the kept runs that have a fire, also those of operators' retries and backfills, in the same order.
	RunsOfFire(ctx context.Context, job string, fire time.Time) ([]Run, error)
	// Failures returns the runs that failed or crashed and ended at since or later, the latest first. If q.Job is
	// empty, it returns those of all jobs.
	Failures(ctx context.Context, q RunsQuery) ([]Run, error)
	// Slowest returns the kept runs of a job whose fire was at q.Since or later, the longest first.
	Slowest(ctx context.Context, q RunsQuery) ([]Run, error)
}

// FiresQuery selects fires.
type FiresQuery struct {
	Job   string
	Since time.Time
	// ByInstance returns a Fire for each instance that ran shards of it, ordered by instance, instead of their sum.
	ByInstance bool
	// Covering selects the records of a fire, and those of fires that were skipped at once with it. Zero selects all.
	Covering time.Time
	// Limit is the most records to return. Zero means 1000.
	Limit int
}

// covers reports whether Covering selects a record.
func (q *FiresQuery) covers(f *Fire) bool {
	at := roundTime(q.Covering)
	return at.IsZero() || f.Fire.Equal(at) || f.Fire.After(at) && !f.SkippedFrom.IsZero() && !f.SkippedFrom.After(at)
}

// RunsQuery selects runs.
type RunsQuery struct {
	Job   string
	Since time.Time
	// Limit is the most records to return. Zero means 1000.
	Limit int
}

func limitOf(n int) int {
	if n <= 0 {
		return 1000
	}
	return n
}

// sortFires orders fires as Reader.Fires returns them.
func sortFires(fires []Fire) {
	slices.SortFunc(fires, func(a, b Fire) int {
		return cmp.Or(b.Fire.Compare(a.Fire), cmp.Compare(b.Trigger, a.Trigger), cmp.Compare(a.Instance, b.Instance))
	})
}

// lastByShard returns the last of the runs of each shard, ordered by shard.
func lastByShard(runs []Run) []Run {
	slices.SortFunc(runs, func(a, b Run) int {
		return cmp.Or(cmp.Compare(a.Shard, b.Shard), b.Ended.Compare(a.Ended), cmp.Compare(b.Fence, a.Fence), cmp.Compare(a.ID, b.ID))
	})
	return slices.CompactFunc(runs, func(a, b Run) bool { return a.Shard == b.Shard })
}

func sortByShard(runs []Run) {
	slices.SortFunc(runs, func(a, b Run) int {
		return cmp.Or(cmp.Compare(a.Shard, b.Shard), cmp.Compare(a.Trigger, b.Trigger), cmp.Compare(a.Attempt, b.Attempt), cmp.Compare(a.Instance, b.Instance), cmp.Compare(a.ID, b.ID))
	})
}
