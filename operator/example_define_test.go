package operator_test

import (
	"context"
	"fmt"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry/memory"
	"github.com/rota-dev/rota/schedule"
)

// Any process with access to the store defines jobs, also one that is not of the fleet. The fleet has the code: a kind.
func ExampleOperator_Define() {
	ctx, reg, due := context.Background(), memory.New().Client("web"), time.Date(2030, 1, 2, 9, 0, 0, 0, time.UTC)

	op, err := operator.New(reg, "billing", "") // or ex.Operator()
	if err != nil {
		fmt.Println(err)
		return
	}
	op = op.WithCompiler(executor.Compile) // which checks the definitions
	reminder := operator.Definition{
		Name: "acme/invoice-42", Kind: "reminder", Schedule: schedule.At(due), Param: `{"invoice":42}`,
	}
	result, err := op.Define(ctx, reminder)
	fmt.Println(err) // no process has registered the kind yet: it may be misspelt

	result, err = op.Define(ctx, reminder, operator.AllowUnknownKind())
	fmt.Println(result.Outcome, result.NextFire, err)
	result, err = op.Define(ctx, reminder, operator.AllowUnknownKind())
	fmt.Println(result.Outcome, err)
	fmt.Println(op.Delete(ctx, "acme/invoice-42"))
	// Output:
	// define "acme/invoice-42": kind: unknown kind: no process has stored "reminder"
	// created 2030-01-02 09:00:00 +0000 UTC <nil>
	// unchanged <nil>
	// <nil>
}
