package history

import (
	"context"
	"database/sql"
	"strings"
	"time"
)

// logColumns are the columns of rota_log, in the order in which rows are written and read.
var logColumns = []string{
	"namespace", "grp", "job", "fire", "run_id", "instance", "fence", "piece", "trigger_no", "shard", "attempt", "line_no", "byte_no", "line_count",
	"head_pieces", "from_piece", "outcome", "written_at", "content", "failure", "bytes",
}

func (s *SQLStore) logArguments(args []any, p *Log) []any {
	t := s.dialect.timeArgument
	return append(args, p.Namespace, p.Group, p.Job, t(p.Fire), p.Run, p.Instance, int64(p.Fence), p.Piece, int64(p.Trigger), p.Shard, p.Attempt, p.Line, p.Byte,
		p.Lines, p.Head, p.From, string(p.Outcome), t(p.Written), p.Text, p.failed(), len(p.Text)+logPieceCost)
}

// failed reports whether the piece is the last one of a run that failed.
func (p *Log) failed() bool { return p.Outcome != "" && p.Outcome.IsFailure() }

// WriteLogs is described in LogSink. It inserts the pieces in one transaction, deletes those that they say do not belong to their logs
// any more, and marks all pieces of a run that has failed, which are kept longer than those of others.
func (s *SQLStore) WriteLogs(ctx context.Context, pieces []Log) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := insertRows(ctx, tx, s.dialect, "rota_log", logColumns, s.dialect.onConflict(), pieces, s.logArguments); err != nil {
		return err
	}
	if err := s.changeLogs(ctx, tx, pieces); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	s.countLogs(pieces)
	return nil
}

// changeLogs deletes and marks earlier pieces of the runs.
func (s *SQLStore) changeLogs(ctx context.Context, tx *sql.Tx, pieces []Log) error {
	const ofRun = " WHERE namespace = ? AND grp = ? AND job = ? AND fire = ? AND run_id = ? AND instance = ? AND fence = ?"
	last := map[logKey]*Log{} // with the highest From
	var order []logKey
	for i := range pieces {
		p := &pieces[i]
		key := logKeyOf(p)
		if before := last[key]; before == nil {
			order = append(order, key)
			last[key] = p
		} else if p.From >= before.From {
			last[key] = p
		}
	}
	for _, key := range order {
		p := last[key]
		args := []any{p.Namespace, p.Group, p.Job, s.dialect.timeArgument(p.Fire), p.Run, p.Instance, int64(p.Fence)}
		if p.From > p.Head {
			text := s.dialect.statement("DELETE FROM rota_log" + ofRun + " AND piece >= ? AND piece < ?")
			if _, err := tx.ExecContext(ctx, text, append(args[:len(args):len(args)], p.Head, p.From)...); err != nil {
				return err
			}
		}
		if p.failed() && p.Piece > 0 {
			text := s.dialect.statement("UPDATE rota_log SET failure = ?" + ofRun)
			if _, err := tx.ExecContext(ctx, text, append([]any{true}, args...)...); err != nil {
				return err
			}
		}
	}
	return nil
}

// markCrashedLogs marks the logs of runs that crashed, as their owners cannot. The records are stored already, and the table
// may be missing, so an error is ignored: the logs are then kept as long as those of other runs.
func (s *SQLStore) markCrashedLogs(ctx context.Context, runs []Run) {
	type fire struct {
		jobKey
		at time.Time
	}
	crashed := map[fire][]any{}
	for i := range runs {
		if r := &runs[i]; r.Outcome == Crashed {
			of := fire{jobKey{r.Namespace, r.Group, r.Job}, r.Fire}
			crashed[of] = append(crashed[of], r.ID)
		}
	}
	for of, ids := range crashed {
		text := "UPDATE rota_log SET failure = ? WHERE namespace = ? AND grp = ? AND job = ? AND fire = ? AND run_id IN (?" + strings.Repeat(",?", len(ids)-1) + ")"
		args := append([]any{true, of.namespace, of.group, of.job, s.dialect.timeArgument(of.at)}, ids...)
		_, _ = s.db.ExecContext(ctx, s.dialect.statement(text), args...)
	}
}

// Logs is described in LogReader.
func (r *sqlReader) Logs(ctx context.Context, q LogQuery) ([]Log, error) {
	q = q.normalize()
	condition, args := " AND job = ?", []any{r.namespace, r.group, q.Job}
	add := func(text string, values ...any) { condition, args = condition+text, append(args, values...) }
	if !q.Fire.IsZero() {
		add(" AND fire = ?", r.dialect.timeArgument(q.Fire))
	}
	if q.Latest {
		add(" AND fire = (SELECT max(fire) FROM rota_log"+inGroup+" AND job = ?)", r.namespace, r.group, q.Job)
	}
	if q.Trigger != 0 {
		add(" AND trigger_no = ?", int64(q.Trigger))
	}
	if q.Run != "" {
		add(" AND run_id = ?", q.Run)
	}
	if !q.Since.IsZero() {
		add(" AND written_at >= ?", r.dialect.timeArgument(q.Since))
	}
	if q.Shards != nil {
		if len(q.Shards) == 0 {
			return nil, nil
		}
		var shards []any
		for _, shard := range q.Shards {
			shards = append(shards, shard)
		}
		add(" AND shard IN (?"+strings.Repeat(",?", len(shards)-1)+")", shards...)
	}
	text := "SELECT " + strings.Join(logColumns[:len(logColumns)-2], ", ") + " FROM rota_log" + inGroup + condition +
		" ORDER BY written_at, run_id, instance, fence, piece LIMIT ?"
	return queryRows(ctx, r.SQLStore, text, append(args, q.Limit), scanLog)
}

func scanLog(d Dialect, rows *sql.Rows) (p Log, err error) {
	var fence, trigger int64
	var outcome string
	err = rows.Scan(&p.Namespace, &p.Group, &p.Job, timeColumn{d, &p.Fire}, &p.Run, &p.Instance, &fence, &p.Piece, &trigger, &p.Shard, &p.Attempt, &p.Line,
		&p.Byte, &p.Lines, &p.Head, &p.From, &outcome, timeColumn{d, &p.Written}, &p.Text)
	p.Fence, p.Trigger, p.Outcome = uint64(fence), uint64(trigger), Outcome(outcome)
	return p, err
}

// countLogs counts written pieces by job.
func (s *SQLStore) countLogs(pieces []Log) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range pieces {
		s.logRows.add(jobKey{pieces[i].Namespace, pieces[i].Group, pieces[i].Job})
	}
}

// planLogTrim returns the steps of a round for logs.
func (s *SQLStore) planLogTrim(now time.Time) []trimStep {
	var steps []trimStep
	for _, key := range s.logRows.nextChecks(now) {
		for _, failure := range []bool{false, true} {
			step := trimStep{
				table: "rota_log", index: "rota_log_failure", equal: []string{"namespace", "grp", "job", "failure"}, args: []any{key.namespace, key.group, key.job, failure},
				column: "fire",
			}
			if s.o.LogFires > 0 && !failure {
				fires := step
				fires.fires, fires.notAfter = s.o.LogFires, now.Add(-successLogs)
				steps = append(steps, fires)
			}
			if s.o.LogBytesPerJob > 0 {
				step.keepBytes = s.o.LogBytesPerJob
				steps = append(steps, step)
			}
		}
	}
	for g := range s.logRows.groups {
		step := trimStep{table: "rota_log", index: "rota_log_age", equal: []string{"namespace", "grp"}, args: []any{g.namespace, g.group}, column: "written_at"}
		if s.o.LogBytes > 0 {
			size := step
			size.keepBytes = s.o.LogBytes
			steps = append(steps, size)
		}
		if s.o.LogRetention > 0 {
			step.before = s.dialect.timeArgument(now.Add(-s.o.LogRetention))
			steps = append(steps, step)
		}
	}
	return steps
}

// findBound returns the time before which a step deletes rows, false if it deletes none.
func (s *SQLStore) findBound(ctx context.Context, step *trimStep) (any, bool, error) {
	switch {
	case step.fires > 0:
		return s.oldestFire(ctx, step)
	case step.keepBytes > 0:
		keep, ok, err := s.rowsOfBytes(ctx, step)
		if err != nil || !ok {
			return nil, false, err
		}
		step.keep = keep
	}
	return s.oldestToKeep(ctx, step)
}

// rowsOfBytes returns how many of the latest rows are within the bound of a step if all are of the mean size, false if all are.
func (s *SQLStore) rowsOfBytes(ctx context.Context, step *trimStep) (int, bool, error) {
	var rows, bytes sql.NullInt64
	text := s.dialect.statement("SELECT count(*), sum(bytes)" + step.from(s.dialect))
	if err := s.db.QueryRowContext(ctx, text, step.args...).Scan(&rows, &bytes); err != nil || bytes.Int64 <= step.keepBytes {
		return 0, false, err
	}
	return max(1, int(float64(rows.Int64)*float64(step.keepBytes)/float64(bytes.Int64))), true, nil
}

// oldestFire returns the instant of the last fire that a step keeps.
func (s *SQLStore) oldestFire(ctx context.Context, step *trimStep) (any, bool, error) {
	text := "SELECT max(fire)" + step.from(s.dialect)
	bound, ok := time.Time{}, false
	for range step.fires {
		args := step.args[:len(step.args):len(step.args)]
		before := text
		if ok {
			before, args = text+" AND fire < ?", append(args, s.dialect.timeArgument(bound))
		}
		found, err := queryRows(ctx, s, before, args, scanTime)
		if err != nil || len(found) == 0 || found[0].IsZero() {
			return nil, false, err // there are no more fires
		}
		bound, ok = found[0], true
	}
	if step.notAfter.Before(bound) {
		bound = step.notAfter
	}
	return s.dialect.timeArgument(bound), true, nil
}
