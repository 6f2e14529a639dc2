package operator_test

import (
	"context"
	"database/sql"
	"time"

	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/schedule"
)

// A document shows from here:

// order stores an order and the reminder of it, together or not at all.
func order(ctx context.Context, db *sql.DB, op *operator.Operator, id string, due time.Time) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after a Commit
	if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id, due) VALUES ($1, $2)", id, due); err != nil {
		return err
	}
	reminder := operator.Definition{Name: "remind/" + id, Kind: "reminder", Schedule: schedule.At(due), Param: id}
	if err := op.DefineIn(ctx, tx, reminder); err != nil {
		return err
	}
	return tx.Commit()
}

// To here.

func ExampleOperator_DefineIn() { _ = order }
