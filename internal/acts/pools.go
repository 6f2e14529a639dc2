package acts

import (
	"context"
	"errors"

	"github.com/rota-dev/rota/internal/count"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/operator"
)

var poolField = Field{Name: "pool", Kind: Text, Label: "Pool", Help: "the name that jobs have in their definitions", Required: true}

// checkPool returns an error for a pool whose name or size the records refuse.
func checkPool(r Request) error {
	if err := record.CheckPool(r.Pool); err != nil {
		return &FieldError{"pool", err}
	}
	if record.CheckPoolSize(r.poolSize()) != nil {
		return wrongf("size", "%d is not between 0 and %d", r.poolSize(), record.MaxPoolSize)
	}
	return nil
}

// poolSize returns the size of a pool, zero without one.
func (r *Request) poolSize() int {
	if r.Size == nil {
		return 0
	}
	return *r.Size
}

func setPool(ctx context.Context, op *operator.Operator, r Request) (view.Done, error) {
	err := op.ReportingUnchanged().SetPool(ctx, r.Pool, r.poolSize())
	slots := count.Of(r.poolSize(), "slot")
	if errors.Is(err, operator.ErrUnchanged) {
		return unchanged("pool %s has %s: nothing changed", r.Pool, slots), nil
	}
	return said("pool %s has %s", r.Pool, slots), err
}

func confirmDeletePool(r Request) string {
	if r.Pool == "" { // the form asks for it
		return "delete the size of a pool of the group: jobs that name the pool wait until it has a size again"
	}
	return "delete pool " + r.Pool + ": jobs that name it wait until it has a size again"
}

func deletePool(ctx context.Context, op *operator.Operator, r Request) (view.Done, error) {
	err := op.ReportingUnchanged().DeletePool(ctx, r.Pool)
	if errors.Is(err, operator.ErrUnchanged) {
		return unchanged("pool %s has no size: nothing changed", r.Pool), nil
	}
	return said("pool %s has no size any more", r.Pool), err
}
