package operator_test

import (
	"context"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/schedule"
)

// registerReminders and remindAt are the code of docs/guide/defined-jobs.md.
//
// A document shows from here:

// In each process that is to run reminders.
func registerReminders(ex *executor.Executor, remind executor.HandlerFunc) error {
	return ex.RegisterKind(executor.Kind{
		Name: "reminder", Handler: remind, // Run.Job and Run.Param tell it of what
		MaxRunning: 50, // of all its jobs together, in this process
		Defaults:   executor.Job{Timeout: time.Minute},
	})
}

// In any process.
func remindAt(ctx context.Context, reg registry.Registry, due time.Time) error {
	op, err := operator.New(reg, "billing", "") // or ex.Operator()
	if err != nil {
		return err
	}
	_, err = op.WithCompiler(executor.Compile).Define(ctx, operator.Definition{
		Name: "acme/invoice-42", Kind: "reminder", Schedule: schedule.At(due), Param: `{"invoice":42}`,
	})
	return err
}

// To here.

var _, _ = registerReminders, remindAt
