package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/backend"
)

// Run is the run of a handler: an *executor.Run.
type Run interface {
	EndIn(ctx context.Context, tx any, checkpoint []byte) error
}

// CompleteTx records in tx that the work of run is done, so that it is done exactly once: with the commit of tx, the run has succeeded,
// also if this process ends at once. Call it last, commit, and return nil:
//
//	tx, err := pool.Begin(ctx)
//	if err != nil {
//		return err
//	}
//	defer tx.Rollback(ctx)
//	... // write with tx
//	if err := postgres.CompleteTx(ctx, tx, run); err != nil {
//		return err
//	}
//	return tx.Commit(ctx)
//
// tx is a pgx.Tx or a *sql.Tx of any driver for PostgreSQL, of any isolation level, on the database of the registry of the executor. Its role
// needs the rights that docs/stores.md lists.
//
// CompleteTx makes tx fail, so that it cannot be committed, with
//
//   - registry.ErrFenced, if a later run of the shard has ended by CompleteTx, or a later attempt has begun. It also wraps executor.ErrRunOver;
//   - registry.ErrRunEnded, if an earlier run has done the same work;
//   - executor.ErrRunOver, if the run has ended;
//   - an error, if tx is on another database, or has a level above READ COMMITTED and another transaction came first (SQLSTATE 40001).
//
// The handler may return the error: the executor asks whether the work is on record, and if it is, the run has succeeded. It does so too if the answer
// to a commit was lost. If the handler returns nil, and tx was not committed, the run fails.
//
// Before another attempt begins, the executor waits for an open tx of the one before, and asks. If the work is on record, the handler is not called.
//
// Run.Key is the name of the work. For a Run that is a literal, CompleteTx only checks the type of tx.
func CompleteTx(ctx context.Context, tx any, run Run) error {
	return completeTx(ctx, tx, run, nil)
}

// CompleteTxWithCheckpoint is CompleteTx with data that Run.Resume returns in later runs of the shard. It is stored in place of the data of Run.Checkpoint.
func CompleteTxWithCheckpoint(ctx context.Context, tx any, run Run, data []byte) error {
	if data == nil {
		data = []byte{}
	}
	return completeTx(ctx, tx, run, data)
}

func completeTx(ctx context.Context, tx any, run Run, checkpoint []byte) error {
	if _, err := asQuerier(tx); err != nil {
		return fmt.Errorf("complete: %w", err)
	}
	return run.EndIn(ctx, tx, checkpoint)
}

// querier executes a statement that returns no row, in a transaction.
type querier func(ctx context.Context, sql string, args ...any) error

func asQuerier(tx any) (querier, error) {
	switch tx := tx.(type) {
	case pgx.Tx:
		return func(ctx context.Context, sql string, args ...any) error {
			_, err := tx.Exec(ctx, sql, args...)
			return err
		}, nil
	case *sql.Tx:
		return func(ctx context.Context, sql string, args ...any) error {
			_, err := tx.ExecContext(ctx, sql, args...)
			return err
		}, nil
	}
	return nil, fmt.Errorf("%T is neither a pgx.Tx nor a *sql.Tx", tx)
}

var _ registry.Completer = (*Client)(nil)

// CompleteRun implements registry.Completer. See CompleteTx.
func (c *Client) CompleteRun(ctx context.Context, tx any, end registry.RunEnd) error {
	do, err := asQuerier(tx)
	if err == nil && c.options.ReadOnly {
		err = registry.ErrReadOnly
	}
	if err == nil {
		var checkpoint any // a nil []byte is an empty value for some drivers
		if end.Checkpoint != nil {
			checkpoint = end.Checkpoint
		}
		err = do(ctx, "SELECT "+c.options.Schema+".complete_run($1::uuid, $2::text, $3::text, $4::bigint, $5::bytea)",
			c.id, end.Shard, end.Work, int64(end.Fence), checkpoint)
	}
	if err != nil {
		return fmt.Errorf("complete %s: %w", end.Work, translateComplete(err))
	}
	return nil
}

// The codes of the errors that functions of the schema raise.
const (
	codeFenced  = "RT001"
	codeEnded   = "RT002"
	codeForeign = "RT003"
)

// errOtherStore is the error of a transaction that belongs to another database.
var errOtherStore = errors.New("the transaction is not on the database of the registry")

// translateComplete returns the error of any driver with the meaning that its code has for a user of CompleteTx.
func translateComplete(err error) error {
	var answer interface{ SQLState() string }
	if !errors.As(err, &answer) {
		return err
	}
	switch answer.SQLState() {
	case codeFenced:
		return fmt.Errorf("%w (%w)", registry.ErrFenced, err)
	case codeEnded:
		return fmt.Errorf("%w (%w)", registry.ErrRunEnded, err)
	case codeForeign, codeNoSchema, codeNoTable, codeNoFunction:
		return fmt.Errorf("%w: %w", errOtherStore, err)
	case codePermission:
		return fmt.Errorf("%w: %w: \"rota postgres migrate --print\" lists the rights that the role of the transaction needs", registry.ErrPermission, err)
	}
	return err
}

// batchFences bounds the runs in one request.
const batchFences = 64

// fenceAnswer is a row of the function fence_runs.
type fenceAnswer struct {
	open bool
	registry.Completion
}

// FenceRun implements registry.Completer.
func (c *Client) FenceRun(ctx context.Context, end registry.RunEnd) (registry.Completion, error) {
	fail := func(err error) (registry.Completion, error) {
		return registry.Completion{}, fmt.Errorf("fence %s: %w", end.Work, err)
	}
	if c.options.ReadOnly {
		return fail(registry.ErrReadOnly)
	}
	var a fenceAnswer
	err := c.handle.Call(ctx, func(ctx context.Context) (err error) {
		a, err = c.fenced.ask(ctx, end, 0)
		return err
	})
	switch {
	case err != nil:
		return fail(err)
	case a.open && !a.Ended:
		return fail(registry.ErrTxOpen)
	}
	return a.Completion, nil
}

// fenceRuns raises the gates of shards. It has a connection of its own, so that commits never wait for it.
func (c *Client) fenceRuns(ends []registry.RunEnd) ([]fenceAnswer, error) {
	ctx, cancel := context.WithTimeout(c.ctx, c.options.CallTimeout)
	defer cancel()
	shards, works, fences := textList(), textList(), list{oid: oidInt8List, element: oidInt8}
	for _, e := range ends {
		shards.add([]byte(e.Shard))
		works.add([]byte(e.Work))
		fences.addInt8(e.Fence)
	}
	rows, err := c.call(ctx, c.fences, statement{
		"SELECT open, ended, checkpoint FROM " + c.options.Schema + ".fence_runs($1, $2, $3)", []param{shards.param(), works.param(), fences.param()},
	})
	if err != nil {
		return nil, err
	}
	if len(rows) != len(ends) {
		return nil, errors.New("an incomplete answer")
	}
	answers := make([]fenceAnswer, len(rows))
	for i, r := range rows {
		answers[i] = fenceAnswer{r.bool(0), registry.Completion{Ended: r.bool(1), Checkpoint: r[2]}}
	}
	return answers, nil
}

// readID reads the identity of the registry, by which CompleteRun recognizes its database.
func (c *Client) readID(ctx context.Context, l *conn) error {
	rows, err := l.do(ctx, statement{sql: "SELECT id::text FROM " + c.options.Schema + ".state"})
	switch {
	case err != nil:
		return translate(err)
	case len(rows) != 1:
		return errors.New("an incomplete answer")
	}
	c.id = rows[0].text(0)
	return nil
}

// pruneEvery is the interval at which a handle deletes old gates and ends.
const pruneEvery = time.Minute

// pruneEnds deletes old gates and ends from time to time, until the handle is closed.
func (c *Client) pruneEnds() {
	after := ""
	for backend.Sleep(c.handle.Context(), backend.Jittered(pruneEvery)) {
		for more := true; more; {
			rows, err := c.call(c.handle.Context(), c.writes, statement{
				"SELECT next, more FROM " + c.options.Schema + ".prune_ends($1)", []param{text(after)},
			})
			if err != nil || len(rows) != 1 {
				break // another handle, or the next time
			}
			after, more = rows[0].text(0), rows[0].bool(1)
		}
	}
}
