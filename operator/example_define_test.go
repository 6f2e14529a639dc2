package operator_test

import (
	"context"
	"fmt"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
	"github.com/rota-dev/rota/schedule"
)

// A document shows from here:

// defineReminder defines a job from any process with access to the store, also one that is not of the fleet.
func defineReminder(ctx context.Context, reg registry.Registry, invoice int, due time.Time, options ...operator.DefineOption) (operator.DefineResult, error) {
	op, err := operator.New(reg, "billing", "") // or ex.Operator()
	if err != nil {
		return operator.DefineResult{}, err
	}
	return op.WithCompiler(executor.Compile).Define(ctx, operator.Definition{ // which checks the definition
		Name: fmt.Sprintf("acme/invoice-%d", invoice), Kind: "reminder", Schedule: schedule.At(due), Param: fmt.Sprintf(`{"invoice":%d}`, invoice),
	}, options...)
}

// To here.

// The fleet has the code: a kind.
func ExampleOperator_Define() {
	ctx, reg, due := context.Background(), memory.New().Client("web"), time.Date(2030, 1, 2, 9, 0, 0, 0, time.UTC)
	_, err := defineReminder(ctx, reg, 42, due)
	fmt.Println(err) // no process has registered the kind yet: it may be misspelt

	result, err := defineReminder(ctx, reg, 42, due, operator.AllowUnknownKind())
	fmt.Println(result.Outcome, result.NextFire, err)
	result, err = defineReminder(ctx, reg, 42, due, operator.AllowUnknownKind())
	fmt.Println(result.Outcome, err)
	// Output:
	// define "acme/invoice-42": kind: unknown kind: no process has stored "reminder"
	// created 2030-01-02 09:00:00 +0000 UTC <nil>
	// unchanged <nil>
}
