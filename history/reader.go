package history

import (
	"cmp"
	"context"
	"math"
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
	// LatestFires returns the last n fires of each of the jobs, by job, the latest first. A job without fires has no entry.
	LatestFires(ctx context.Context, jobs []string, n int) (map[string][]Fire, error)
	// Runs returns the kept runs of a fire, ordered by shard, trigger, attempt and instance. The trigger is 0 for a scheduled fire.
	Runs(ctx context.Context, job string, fire time.Time, trigger uint64) ([]Run, error)
	// RunsOfFire returns the kept runs that have a fire, also those of operators' retries and backfills, in the same order.
	RunsOfFire(ctx context.Context, job string, fire time.Time) ([]Run, error)
	// RunsOfShards returns those runs of RunsOfFire that are of the given shards.
	RunsOfShards(ctx context.Context, job string, fire time.Time, shards []int) ([]Run, error)
	// Cells counts the shards of a job by how their last kept run for a fire ended, for ranges of shards. Cells are ordered by
	// fire, trigger, shard, attempt and outcome. A shard without a kept run for a fire is in no cell of it.
	Cells(ctx context.Context, q CellsQuery) ([]Cell, error)
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
	// Until is the last instant of the fires. Zero means that there is no bound.
	Until time.Time
	// Trigger selects the fires of the trigger of that number. Zero selects all fires, also those of triggers.
	Trigger uint64
	// ByInstance returns a Fire for each instance that ran shards of it, ordered by instance, instead of their sum.
	ByInstance bool
	// Covering selects the records of a fire, and those of fires that were skipped at once with it. Zero selects all.
	Covering time.Time
	// Limit is the most records to return. Zero means 1000.
	Limit int
}

// selects reports whether Since, Until, Trigger and Covering select a record.
func (q *FiresQuery) selects(f *Fire) bool {
	since, until, at := roundTime(q.Since), roundTime(q.Until), roundTime(q.Covering)
	if f.Fire.Before(since) || !until.IsZero() && f.Fire.After(until) || q.Trigger != 0 && f.Trigger != min(q.Trigger, math.MaxInt64) {
		return false
	}
	return at.IsZero() || f.Fire.Equal(at) || f.Fire.After(at) && !f.SkippedFrom.IsZero() && !f.SkippedFrom.After(at)
}

// RunsQuery selects runs.
type RunsQuery struct {
	Job   string
	Since time.Time
	// Limit is the most records to return. Zero means 1000.
	Limit int
}

// CellsQuery selects the fires and the shards of cells.
type CellsQuery struct {
	Job string
	// Since and Until are the instants of the first and the last fire.
	Since, Until time.Time
	// FirstShard and EndShard bound the shards: EndShard is one more than the last.
	FirstShard, EndShard int
	// Width is the number of shards in a range; the last range may have fewer. Zero means 1.
	Width int
}

// normalized returns the query with the values that databases have.
func (q CellsQuery) normalized() CellsQuery {
	q.Job, q.Since, q.Until = cleanKey(q.Job, maxJob), roundTime(q.Since), roundTime(q.Until)
	q.FirstShard, q.EndShard, q.Width = fitInt32(q.FirstShard), fitInt32(q.EndShard), max(1, fitInt32(q.Width))
	return q
}

// Cell counts the shards of a range of which the last kept run for a fire ended in one way.
type Cell struct {
	Fire    time.Time
	Trigger uint64 // zero for a scheduled fire
	// FirstShard is the first shard of the range, whether or not it is among those counted.
	FirstShard int
	// Attempt and Outcome are those of the last kept run: that of the highest attempt. An outcome that this version does not
	// know is Failed.
	Attempt int
	Outcome Outcome
	Shards  int // how many shards it counts
}

// cellOutcomes are the outcomes of cells. Of two runs with one attempt, the outcome that is later in the list counts.
var cellOutcomes = [...]Outcome{Succeeded, HandedBack, Abandoned, LostSession, Crashed, Cancelled, TimedOut, Panicked, Failed}

// cellOutcomeBase is what attempts are multiplied by, so that the greatest sum with an index of cellOutcomes is that of the last run.
const cellOutcomeBase = 16

// lastRunOf returns a number that is greatest for the last run of a shard.
func lastRunOf(r *Run) int64 {
	i := slices.Index(cellOutcomes[:], r.Outcome)
	if i < 0 {
		i = len(cellOutcomes) - 1
	}
	return int64(fitInt32(r.Attempt))*cellOutcomeBase + int64(i)
}

// setLastRun sets the attempt and the outcome from a number of lastRunOf.
func (c *Cell) setLastRun(n int64) {
	i := int(n & (cellOutcomeBase - 1)) // as the mathematical remainder: an attempt may be negative
	c.Attempt, c.Outcome = int((n-int64(i))/cellOutcomeBase), cellOutcomes[min(i, len(cellOutcomes)-1)]
}

func sortCells(cells []Cell) {
	slices.SortFunc(cells, func(a, b Cell) int {
		return cmp.Or(a.Fire.Compare(b.Fire), cmp.Compare(a.Trigger, b.Trigger), cmp.Compare(a.FirstShard, b.FirstShard), cmp.Compare(a.Attempt, b.Attempt), cmp.Compare(a.Outcome, b.Outcome))
	})
}

func limitOf(n int) int {
	if n <= 0 {
		return 1000
	}
	return n
}

// sortFires orders fires as Reader.Fires returns them.
func sortFires(fires []Fire) {
	slices.SortFunc(fires, func(a, b Fire) int { return compareFires(&a, &b) })
}

// compareFires orders the latest fire first.
func compareFires(a, b *Fire) int {
	return cmp.Or(b.Fire.Compare(a.Fire), cmp.Compare(b.Trigger, a.Trigger), cmp.Compare(a.Instance, b.Instance))
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
