package history

import (
	"cmp"
	"context"
	"database/sql"
	"strings"
	"time"
)

// SQLOptions are the settings of a SQLStore. The zero value of each field is a default.
type SQLOptions struct {
	// Retention is how long runs and fires are kept. Zero means 30 days. A negative value keeps them for good.
	Retention time.Duration
	// RowsPerJob is how many rows of a job each of the two tables keeps, about: the oldest fires are deleted. Zero
	// means 50,000. A negative value keeps all within Retention.
	RowsPerJob int
	// LogRetention is how long logs are kept. Zero means 7 days. A negative value keeps them for good, within the other bounds.
	LogRetention time.Duration
	// LogFires is for how many fires of a job the logs of runs are kept that did not fail: those of the latest fires, and of the
	// last hour. Zero means 20. A negative value keeps them as long as those of runs that failed.
	LogFires int
	// LogBytesPerJob bounds the logs of the runs of a job that failed, and as much those of its other runs, about, in bytes with 128 for
	// each row. Zero means 64 MiB. A negative value means no bound.
	LogBytesPerJob int64
	// LogBytes bounds the logs of a group, about. Zero means 4 GiB. A negative value means no bound.
	LogBytes int64
}

const (
	defaultRetention  = 30 * 24 * time.Hour
	defaultRowsPerJob = 50_000

	defaultLogRetention   = 7 * 24 * time.Hour
	defaultLogFires       = 20
	defaultLogBytesPerJob = 64 << 20
	defaultLogBytes       = 4 << 30
	// successLogs is the least age at which a log expires, within the other bounds, whatever the number of fires: the shards of a
	// fixed delay have fires of their own.
	successLogs = time.Hour
	// deleteMost is how many rows a statement deletes, at most.
	deleteMost = 1000
	// The rows of a job are counted in a round of Trim if this store has written checkRows of them since the last
	// time, or some and checkEvery has passed. A fleet of many processes then counts seldom.
	checkRows  = 1000
	checkEvery = time.Hour
)

func (o SQLOptions) withDefaults() SQLOptions {
	o.Retention, o.RowsPerJob = cmp.Or(o.Retention, defaultRetention), cmp.Or(o.RowsPerJob, defaultRowsPerJob)
	o.LogRetention, o.LogFires = cmp.Or(o.LogRetention, defaultLogRetention), cmp.Or(o.LogFires, defaultLogFires)
	o.LogBytesPerJob, o.LogBytes = cmp.Or(o.LogBytesPerJob, defaultLogBytesPerJob), cmp.Or(o.LogBytes, defaultLogBytes)
	return o
}

// jobKey names a job; without the job, a group.
type jobKey struct{ namespace, group, job string }

// rowCounts counts the rows that a store has written.
type rowCounts struct {
	jobs   map[jobKey]*jobRows
	groups map[jobKey]bool
}

// jobRows counts the rows that a store has written for a job.
type jobRows struct {
	since   int       // since the last check
	checked time.Time // the last check
}

// add counts a row of a job.
func (c *rowCounts) add(key jobKey) {
	rows := c.jobs[key]
	if rows == nil {
		if rows = (&jobRows{}); c.jobs == nil {
			c.jobs, c.groups = map[jobKey]*jobRows{}, map[jobKey]bool{}
		}
		c.jobs[key] = rows
		c.groups[jobKey{namespace: key.namespace, group: key.group}] = true
	}
	rows.since++
}

// nextChecks returns the jobs whose rows are to be checked now. It forgets the jobs of which nothing has been written for
// long: there may be any number of defined jobs over time.
func (c *rowCounts) nextChecks(now time.Time) (due []jobKey) {
	for key, rows := range c.jobs {
		switch recent := now.Sub(rows.checked) < checkEvery; {
		case rows.since == 0 && !recent:
			delete(c.jobs, key)
		case rows.since > 0 && (!recent || rows.since >= checkRows):
			rows.since, rows.checked = 0, now
			due = append(due, key)
		}
	}
	return due
}

// countRows counts the rows of a written batch by job.
func (s *SQLStore) countRows(b Batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range b.Fires {
		s.rows.add(jobKey{b.Fires[i].Namespace, b.Fires[i].Group, b.Fires[i].Job})
	}
	for i := range b.Runs {
		s.rows.add(jobKey{b.Runs[i].Namespace, b.Runs[i].Group, b.Runs[i].Job})
	}
}

// trimStep deletes the rows of a table that are before a time. It is repeated until it deletes few.
type trimStep struct {
	table, index string
	equal        []string // columns of the index, with their values
	args         []any
	column       string // the next column of the index, with the time
	before       any    // the time
	// keep, if not zero, is how many rows to keep, the latest ones. Before is then found at the first call.
	keep int
	// keepBytes, if not zero, is how many bytes of the latest rows to keep, and fires, if not zero, the rows of how many fires,
	// and those after notAfter.
	keepBytes int64
	fires     int
	notAfter  time.Time
}

// Trim deletes some rows that are too old or too many. It is described in Trimmer. Only groups and jobs for which
// this store has written are trimmed.
func (s *SQLStore) Trim(ctx context.Context, now time.Time) (more bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.steps) == 0 {
		s.steps = append(s.planTrim(now), s.planLogTrim(now)...)
	}
	if len(s.steps) == 0 {
		return false, nil
	}
	deleted, err := s.delete(ctx, &s.steps[0])
	if err != nil || deleted < deleteMost {
		s.steps = s.steps[1:]
	}
	return len(s.steps) > 0, err
}

// planTrim returns the steps of a round.
func (s *SQLStore) planTrim(now time.Time) []trimStep {
	var steps []trimStep
	for _, key := range s.rows.nextChecks(now) {
		if s.o.RowsPerJob < 0 {
			continue
		}
		for _, table := range []string{"rota_run", "rota_fire_part"} {
			steps = append(steps, trimStep{
				table: table, index: "PRIMARY", equal: []string{"namespace", "grp", "job"}, args: []any{key.namespace, key.group, key.job},
				column: "fire", keep: s.o.RowsPerJob,
			})
		}
	}
	if s.o.Retention < 0 {
		return steps
	}
	oldest := s.dialect.timeArgument(now.Add(-s.o.Retention))
	for g := range s.rows.groups {
		steps = append(steps, trimStep{
			table: "rota_fire_part", index: "rota_fire_part_age", equal: []string{"namespace", "grp"}, args: []any{g.namespace, g.group},
			column: "fire", before: oldest,
		})
		for _, failure := range []bool{false, true} {
			steps = append(steps, trimStep{
				table: "rota_run", index: "rota_run_failure", equal: []string{"namespace", "grp", "failure"}, args: []any{g.namespace, g.group, failure},
				column: "ended_at", before: oldest,
			})
		}
	}
	return steps
}

// delete deletes up to deleteMost rows of a step, and returns their number.
func (s *SQLStore) delete(ctx context.Context, step *trimStep) (int64, error) {
	if step.before == nil {
		keep, ok, err := s.findBound(ctx, step)
		if err != nil || !ok {
			return 0, err
		}
		step.before = keep
	}
	args := append(step.args[:len(step.args):len(step.args)], step.before, deleteMost)
	result, err := s.db.ExecContext(ctx, s.dialect.deleteStatement(step), args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// oldestToKeep returns the time of the last row that is within the limit of a step.
func (s *SQLStore) oldestToKeep(ctx context.Context, step *trimStep) (any, bool, error) {
	text := "SELECT " + step.column + step.from(s.dialect) + " ORDER BY " + step.column + " DESC LIMIT 1 OFFSET ?"
	args := append(step.args[:len(step.args):len(step.args)], step.keep-1)
	times, err := queryRows(ctx, s, text, args, scanTime)
	if err != nil || len(times) == 0 {
		return nil, false, err
	}
	return s.dialect.timeArgument(times[0]), true, nil
}

func scanTime(d Dialect, rows *sql.Rows) (t time.Time, err error) {
	err = rows.Scan(timeColumn{d, &t})
	return t, err
}

// from returns the table and the condition on the first columns of the index.
func (t *trimStep) from(d Dialect) string {
	return " FROM " + t.table + d.useIndex(t.index) + " WHERE " + strings.Join(t.equal, " = ? AND ") + " = ?"
}

// deleteStatement returns the statement that deletes the first rows in the order of the index. Its last argument is
// their number.
func (d Dialect) deleteStatement(step *trimStep) string {
	first := func(columns string) string {
		return "SELECT " + columns + step.from(d) + " AND " + step.column + " < ? ORDER BY " + step.column + " LIMIT ?"
	}
	switch d {
	case MySQL: // has no addresses of rows, and no hints for a simple DELETE
		key := primaryKeys[step.table]
		var equal []string
		for _, column := range key {
			equal = append(equal, "t."+column+" = old."+column)
		}
		return "DELETE t FROM (" + first(strings.Join(key, ", ")) + ") AS old STRAIGHT_JOIN " + step.table + " AS t FORCE INDEX (PRIMARY) ON " + strings.Join(equal, " AND ")
	case Postgres:
		// An array makes it a scan of row addresses; a subquery may become a scan of the table.
		return d.statement("DELETE FROM " + step.table + " WHERE ctid = ANY (ARRAY(" + first("ctid") + "))")
	}
	return "DELETE FROM " + step.table + " WHERE rowid IN (" + first("rowid") + ")"
}

// primaryKeys are the primary keys of the tables.
var primaryKeys = map[string][]string{
	"rota_run":       {"namespace", "grp", "job", "fire", "run_id", "instance"},
	"rota_fire_part": {"namespace", "grp", "job", "fire", "trigger_no", "instance", "part"},
	"rota_log":       {"namespace", "grp", "job", "fire", "run_id", "instance", "fence", "piece"},
}
