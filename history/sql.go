package history

import (
	"context"
	"database/sql"
	"math/bits"
	"strings"

	"github.com/rota-dev/rota/internal/mutex"
)

// SQLStore stores history in a database. It is a Sink with retention, and safe for concurrent use. Several processes
// may share the tables, also for several namespaces.
type SQLStore struct {
	db      *sql.DB
	dialect Dialect
	o       SQLOptions

	mu      mutex.Mutex
	steps   []trimStep // of the present round of Trim
	rows    rowCounts  // of rota_run and rota_fire_part
	logRows rowCounts  // of rota_log
}

// SQL returns a store in the tables that Migrate creates. The database and its driver are the caller's, and so is
// closing it. The database may be away at any time.
//
// A *sql.DB for MySQL needs no parameters; with SQLite, set a busy timeout.
func SQL(db *sql.DB, d Dialect, o SQLOptions) (*SQLStore, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	return &SQLStore{db: db, dialect: d, o: o.withDefaults()}, nil
}

// The columns of the tables, in the order in which rows are written and read.
var (
	fireColumns = []string{
		"namespace", "grp", "job", "fire", "trigger_no", "instance", "part", "shards", "ok", "failed", "unfinished", "crashed", "skipped",
		"skipped_from", "repeated", "first_start", "last_end", "max_late_us", "max_us", "sum_us", "ended_at", "failed_shards", "skipped_shards",
		"skipped_misfire", "skipped_disabled", "skipped_unoffered", "skipped_expired", "skipped_overlap", "skipped_upstream", "items_fetched", "items_processed",
	}
	runColumns = []string{
		"namespace", "grp", "job", "fire", "run_id", "instance", "trigger_no", "shard", "shards", "attempt", "reason", "fence", "started_at",
		"ended_at", "outcome", "error", "exit_code", "output_tail", "trace_id", "items_fetched", "items_processed", "kind", "took_us", "failure",
	}
)

func (s *SQLStore) fireArguments(args []any, f *Fire) []any {
	t := s.dialect.timeArgument
	return append(args, f.Namespace, f.Group, f.Job, t(f.Fire), int64(f.Trigger), f.Instance, int64(f.Part), f.Shards, f.OK, f.Failed, f.Unfinished, f.Crashed,
		f.Skipped, t(f.SkippedFrom), f.Repeated, t(f.FirstStart), t(f.LastEnd), f.MaxLate.Microseconds(), f.MaxDuration.Microseconds(), f.SumDuration.Microseconds(),
		t(f.Ended), f.FailedShards, f.SkippedShards, f.SkippedBy.Misfire, f.SkippedBy.Disabled, f.SkippedBy.Unoffered, f.SkippedBy.Expired, f.SkippedBy.Overlap,
		f.SkippedBy.Upstream, f.ItemsFetched, f.ItemsProcessed)
}

func (s *SQLStore) runArguments(args []any, r *Run) []any {
	t := s.dialect.timeArgument
	exit := sql.NullInt64{}
	if r.ExitCode != nil {
		exit = sql.NullInt64{Int64: int64(fitInt32(*r.ExitCode)), Valid: true}
	}
	return append(args, r.Namespace, r.Group, r.Job, t(r.Fire), r.ID, r.Instance, int64(r.Trigger), r.Shard, r.Shards, r.Attempt, r.Reason, int64(r.Fence),
		t(r.Started), t(r.Ended), string(r.Outcome), r.Error, exit, r.Output, r.TraceID, r.ItemsFetched, r.ItemsProcessed, r.Kind, r.Duration().Microseconds(), r.Outcome.IsFailure())
}

// Write is described in Sink. It inserts the batch in one transaction. Rows that exist remain as they are, apart from the runs
// that only a leader has recorded.
func (s *SQLStore) Write(ctx context.Context, b Batch) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := insertRows(ctx, tx, s.dialect, "rota_fire_part", fireColumns, s.dialect.onConflict(), b.Fires, s.fireArguments); err != nil {
		return err
	}
	if err := insertRows(ctx, tx, s.dialect, "rota_run", runColumns, s.dialect.replaceCrashed(), distinctRuns(b.Runs), s.runArguments); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	s.countRows(b)
	s.markCrashedLogs(ctx, b.Runs)
	return nil
}

// distinctRuns returns one run of each key: PostgreSQL cannot replace a row that the same statement has inserted.
func distinctRuns(runs []Run) []Run {
	at := make(map[runKey]int, len(runs))
	distinct := make([]Run, 0, len(runs))
	for i := range runs {
		r, key := &runs[i], runKeyOf(&runs[i])
		before, found := at[key]
		switch {
		case !found:
			at[key] = len(distinct)
			distinct = append(distinct, *r)
		case r.replaces(&distinct[before]):
			distinct[before] = *r
		}
	}
	return distinct
}

// insertRows inserts rows with statements of 1, 2, 4 .. 256 rows, so that a driver that caches statements has few.
func insertRows[T any](ctx context.Context, tx *sql.Tx, d Dialect, table string, columns []string, onConflict string, rows []T, arguments func([]any, *T) []any) error {
	for len(rows) > 0 {
		n := min(1<<(bits.Len(uint(len(rows)))-1), 256)
		args := make([]any, 0, n*len(columns))
		for i := range rows[:n] {
			args = arguments(args, &rows[i])
		}
		if _, err := tx.ExecContext(ctx, insertStatement(d, table, columns, n)+onConflict, args...); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// insertStatement returns the statement that inserts n rows.
func insertStatement(d Dialect, table string, columns []string, n int) string {
	row := "(?" + strings.Repeat(",?", len(columns)-1) + ")"
	text := "INSERT INTO " + table + " (" + strings.Join(columns, ", ") + ") VALUES " + row + strings.Repeat(","+row, n-1)
	return d.statement(text)
}
