package history

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"
)

// Reader returns a Reader of a group. An empty group means "default".
func (s *SQLStore) Reader(namespace, group string) Reader {
	return &sqlReader{s, cleanKey(namespace, maxNamespace), cleanKey(cmp.Or(group, "default"), maxGroup)}
}

type sqlReader struct {
	*SQLStore
	namespace, group string
}

// inGroup is the condition of each query, with the arguments namespace and group.
const inGroup = " WHERE namespace = ? AND grp = ?"

func (r *sqlReader) since(t time.Time) any {
	if t = roundTime(t); t.IsZero() {
		t = firstTime
	}
	return r.dialect.timeArgument(t)
}

// selectRuns returns the runs of the group for which a condition is true, in an order.
func (r *sqlReader) selectRuns(ctx context.Context, condition string, args ...any) ([]Run, error) {
	text := "SELECT " + strings.Join(runColumns[:len(runColumns)-2], ", ") + " FROM rota_run" + inGroup + condition
	return queryRows(ctx, r.SQLStore, text, append([]any{r.namespace, r.group}, args...), scanRun)
}

func scanRun(d Dialect, rows *sql.Rows) (run Run, err error) {
	var trigger, fence int64
	var outcome string
	var exit sql.NullInt64
	err = rows.Scan(&run.Namespace, &run.Group, &run.Job, timeColumn{d, &run.Fire}, &run.ID, &run.Instance, &trigger, &run.Shard, &run.Shards,
		&run.Attempt, &run.Reason, &fence, timeColumn{d, &run.Started}, timeColumn{d, &run.Ended}, &outcome, &run.Error, &exit, &run.Output, &run.TraceID,
		&run.ItemsFetched, &run.ItemsProcessed, &run.Kind)
	run.Trigger, run.Fence, run.Outcome = uint64(trigger), uint64(fence), Outcome(outcome)
	if exit.Valid {
		code := int(exit.Int64)
		run.ExitCode = &code
	}
	return run, err
}

func (r *sqlReader) Last(ctx context.Context, job string) ([]Run, error) {
	job = cleanKey(job, maxJob)
	// The index has both columns of the inner query. Runs of a shard that ended at the same time are all selected.
	runs, err := r.selectRuns(ctx, ` AND job = ? AND (shard, ended_at) IN (
		SELECT shard, max(ended_at) FROM rota_run`+inGroup+` AND job = ? GROUP BY shard)`, job, r.namespace, r.group, job)
	return lastByShard(runs), err
}

func (r *sqlReader) Fires(ctx context.Context, q FiresQuery) ([]Fire, error) {
	text, args := r.selectFires(q)
	return queryRows(ctx, r.SQLStore, text, args, scanFire)
}

// fireSums are the columns of scanFire that sum up the rows of a fire.
const fireSums = `max(shards), sum(ok), sum(failed), sum(unfinished), sum(crashed), sum(skipped), min(skipped_from), sum(repeated),
	min(first_start), max(last_end), max(max_late_us), max(max_us), sum(sum_us),
	max(ended_at), max(failed_shards), max(skipped_shards),
	sum(skipped_misfire), sum(skipped_disabled), sum(skipped_unoffered), sum(skipped_expired), sum(skipped_overlap), sum(skipped_upstream),
	sum(items_fetched), sum(items_processed)`

// selectFires returns the query for fires.
func (r *sqlReader) selectFires(q FiresQuery) (text string, args []any) {
	condition := inGroup + " AND job = ? AND fire >= ?"
	args = []any{r.namespace, r.group, cleanKey(q.Job, maxJob), r.since(q.Since)}
	if !q.Until.IsZero() {
		condition, args = condition+" AND fire <= ?", append(args, r.dialect.timeArgument(roundTime(q.Until)))
	}
	if q.Trigger != 0 {
		condition, args = condition+" AND trigger_no = ?", append(args, int64(min(q.Trigger, math.MaxInt64)))
	}
	if !q.Covering.IsZero() {
		at := r.dialect.timeArgument(roundTime(q.Covering))
		condition, args = condition+" AND (fire = ? OR fire >= ? AND skipped_from <= ?)", append(args, at, at, at)
	}
	args = append(args, limitOf(q.Limit))
	if q.ByInstance || !q.Covering.IsZero() {
		instance, key, order := "''", "namespace, grp, job, fire, trigger_no", " ORDER BY fire DESC, trigger_no DESC"
		if q.ByInstance {
			instance, key, order = "instance", key+", instance", order+", instance"
		}
		return "SELECT namespace, grp, job, fire, trigger_no, " + instance + ", " + fireSums + " FROM rota_fire_part" + condition + " GROUP BY " + key + order + " LIMIT ?", args
	}
	// The inner query walks the end of the primary key. Without it, MySQL and SQLite sum up all fires before they sort and limit them.
	return "SELECT namespace, grp, job, fire, trigger_no, '', " + fireSums + ` FROM (
		SELECT DISTINCT namespace AS of_namespace, grp AS of_grp, job AS of_job, fire AS of_fire, trigger_no AS of_trigger FROM rota_fire_part` + r.dialect.useIndex("PRIMARY") + condition + `
		ORDER BY fire DESC, trigger_no DESC LIMIT ?) AS latest
		JOIN rota_fire_part ON namespace = of_namespace AND grp = of_grp AND job = of_job AND fire = of_fire AND trigger_no = of_trigger
		GROUP BY namespace, grp, job, fire, trigger_no ORDER BY fire DESC, trigger_no DESC`, args
}

// LatestFires reads the fires of up to 64 jobs by one statement. There are statements for 1, 2, 4 .. 64, so that a driver that caches
// statements has few.
func (r *sqlReader) LatestFires(ctx context.Context, jobs []string, n int) (map[string][]Fire, error) {
	latest := map[string][]Fire{}
	jobs = slices.Compact(slices.Sorted(slices.Values(jobs)))
	for len(jobs) > 0 {
		some := min(1<<(bits.Len(uint(len(jobs)))-1), 64)
		var texts []string
		var args []any
		names := map[string]string{} // as they were passed, by the names in the table
		for i, job := range jobs[:some] {
			text, jobArgs := r.selectFires(FiresQuery{Job: job, Limit: n})
			texts = append(texts, fmt.Sprintf("SELECT * FROM (%s) AS job%d", text, i))
			args = append(args, jobArgs...)
			names[cleanKey(job, maxJob)] = job
		}
		fires, err := queryRows(ctx, r.SQLStore, strings.Join(texts, " UNION ALL "), args, scanFire)
		if err != nil {
			return nil, err
		}
		sortFires(fires) // databases promise no order
		for i := range fires {
			job := names[fires[i].Job]
			latest[job] = append(latest[job], fires[i])
		}
		jobs = jobs[some:]
	}
	return latest, nil
}

func scanFire(d Dialect, rows *sql.Rows) (f Fire, err error) {
	var trigger, late, longest, sum int64
	err = rows.Scan(&f.Namespace, &f.Group, &f.Job, timeColumn{d, &f.Fire}, &trigger, &f.Instance, &f.Shards, &f.OK, &f.Failed, &f.Unfinished, &f.Crashed,
		&f.Skipped, timeColumn{d, &f.SkippedFrom}, &f.Repeated, timeColumn{d, &f.FirstStart}, timeColumn{d, &f.LastEnd}, &late, &longest, &sum,
		timeColumn{d, &f.Ended}, &f.FailedShards, &f.SkippedShards, &f.SkippedBy.Misfire, &f.SkippedBy.Disabled, &f.SkippedBy.Unoffered, &f.SkippedBy.Expired,
		&f.SkippedBy.Overlap, &f.SkippedBy.Upstream, &f.ItemsFetched, &f.ItemsProcessed)
	f.Trigger = uint64(trigger)
	f.MaxLate, f.MaxDuration, f.SumDuration = microseconds(late), microseconds(longest), microseconds(sum)
	return f, err
}

func microseconds(n int64) time.Duration {
	return time.Duration(min(n, math.MaxInt64/int64(time.Microsecond))) * time.Microsecond
}

func (r *sqlReader) Runs(ctx context.Context, job string, fire time.Time, trigger uint64) ([]Run, error) {
	runs, err := r.selectRuns(ctx, " AND job = ? AND fire = ? AND trigger_no = ?",
		cleanKey(job, maxJob), r.dialect.timeArgument(roundTime(fire)), int64(min(trigger, math.MaxInt64)))
	sortByShard(runs)
	return runs, err
}

func (r *sqlReader) RunsOfFire(ctx context.Context, job string, fire time.Time) ([]Run, error) {
	runs, err := r.selectRuns(ctx, " AND job = ? AND fire = ?", cleanKey(job, maxJob), r.dialect.timeArgument(roundTime(fire)))
	sortByShard(runs)
	return runs, err
}

// RunsOfShards reads the runs of up to 64 shards by one statement, as LatestFires those of jobs.
func (r *sqlReader) RunsOfShards(ctx context.Context, job string, fire time.Time, shards []int) (runs []Run, err error) {
	shards = slices.Compact(slices.Sorted(slices.Values(shards)))
	for len(shards) > 0 {
		n := min(1<<(bits.Len(uint(len(shards)))-1), 64)
		args := []any{cleanKey(job, maxJob), r.dialect.timeArgument(roundTime(fire))}
		for _, shard := range shards[:n] {
			args = append(args, fitInt32(shard))
		}
		some, err := r.selectRuns(ctx, " AND job = ? AND fire = ? AND shard IN (?"+strings.Repeat(",?", n-1)+")", args...)
		if err != nil {
			return nil, err
		}
		runs, shards = append(runs, some...), shards[n:]
	}
	sortByShard(runs)
	return runs, nil
}

func (r *sqlReader) Cells(ctx context.Context, q CellsQuery) ([]Cell, error) {
	q = q.normalized()
	// A shard is counted once for a fire, by its last run.
	text := "SELECT fire, trigger_no, first_shard, last_run, count(*) FROM (SELECT fire, trigger_no, shard - (shard - ?) % ? AS first_shard, max(" + r.dialect.lastRun() + `) AS last_run
		FROM rota_run` + r.dialect.useIndex("rota_run_cell") + inGroup + ` AND job = ? AND fire >= ? AND fire <= ? AND shard >= ? AND shard < ?
		GROUP BY fire, trigger_no, shard) AS last_runs GROUP BY fire, trigger_no, first_shard, last_run`
	cells, err := queryRows(ctx, r.SQLStore, text, []any{
		q.FirstShard, q.Width, r.namespace, r.group, q.Job, r.since(q.Since), r.since(q.Until), q.FirstShard, q.EndShard,
	}, func(d Dialect, rows *sql.Rows) (c Cell, err error) {
		var trigger, last int64
		err = rows.Scan(timeColumn{d, &c.Fire}, &trigger, &c.FirstShard, &last, &c.Shards)
		c.Trigger = uint64(trigger)
		c.setLastRun(last)
		return c, err
	})
	sortCells(cells)
	return cells, err
}

func (r *sqlReader) Failures(ctx context.Context, q RunsQuery) ([]Run, error) {
	condition, args := " AND failure = ? AND ended_at >= ?", []any{true, r.since(q.Since)}
	if q.Job != "" {
		condition, args = condition+" AND job = ?", append(args, cleanKey(q.Job, maxJob))
	}
	return r.selectRuns(ctx, condition+" ORDER BY ended_at DESC, run_id LIMIT ?", append(args, limitOf(q.Limit))...)
}

func (r *sqlReader) Slowest(ctx context.Context, q RunsQuery) ([]Run, error) {
	return r.selectRuns(ctx, " AND job = ? AND fire >= ? ORDER BY took_us DESC, fire, run_id LIMIT ?",
		cleanKey(q.Job, maxJob), r.since(q.Since), limitOf(q.Limit))
}

// queryRows returns the rows of a query.
func queryRows[T any](ctx context.Context, s *SQLStore, text string, args []any, scan func(Dialect, *sql.Rows) (T, error)) ([]T, error) {
	rows, err := s.db.QueryContext(ctx, s.dialect.statement(text), args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var found []T
	for rows.Next() {
		v, err := scan(s.dialect, rows)
		if err != nil {
			return nil, err
		}
		found = append(found, v)
	}
	return found, rows.Err()
}
