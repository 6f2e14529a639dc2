// Package guarded shows how a handler writes to an SQL database so that neither a repeated
// run nor a run whose session was lost has an effect.
package guarded

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/rota-dev/rota/executor"
)

// A document shows from here:

// Once returns a handler that calls write in a transaction, at most once for each Run.Key. Work
// that an earlier attempt has committed is not done again, and a run that a later run of its
// shard has overtaken fails with ErrRunOver and changes nothing.
//
// Fleets of several namespaces and groups may share the tables.
//
//	CREATE TABLE fences (shard text PRIMARY KEY, fence bigint NOT NULL);
//	CREATE TABLE done (run text PRIMARY KEY);
func Once(db *sql.DB, write func(context.Context, *sql.Tx, *executor.Run) error) executor.HandlerFunc {
	return func(ctx context.Context, r *executor.Run) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback() // does nothing after a Commit

		// The row stays locked until the end of the transaction, so runs of one shard write one after the other.
		newest, err := changed(tx.ExecContext(ctx, `
			INSERT INTO fences (shard, fence) VALUES ($1, $2)
			ON CONFLICT (shard) DO UPDATE SET fence = excluded.fence WHERE fences.fence <= excluded.fence`,
			r.ShardKey(), int64(r.Fence)))
		if err != nil {
			return err
		}
		if !newest {
			return fmt.Errorf("write of %s: %w", r.ID, executor.ErrRunOver)
		}
		first, err := changed(tx.ExecContext(ctx, `INSERT INTO done (run) VALUES ($1) ON CONFLICT (run) DO NOTHING`, r.Key))
		if err != nil {
			return err
		}
		if !first {
			return nil // an earlier attempt has done this work
		}
		if err := write(ctx, tx, r); err != nil {
			return err
		}
		return tx.Commit()
	}
}

// changed reports whether a statement changed a row.
func changed(res sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n > 0, err
}

// To here.
