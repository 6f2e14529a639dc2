package look

import (
	"context"
	"time"

	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/operator"
)

// DefinitionsQuery selects jobs that are defined as data.
type DefinitionsQuery struct {
	Kind, Prefix string // empty: all
	After        string // the cursor of the page; empty for the first one
	Limit        int
}

// DefinitionsPage returns a page of jobs that are defined as data, by name, and the cursor of the next page; "" if there is none.
func DefinitionsPage(ctx context.Context, op *operator.Operator, q DefinitionsQuery) (v view.Definitions, next string, err error) {
	p, err := op.DefinitionsPage(ctx, q.After, q.Limit, operator.OfKind(q.Kind), operator.WithPrefix(q.Prefix))
	if p.Jobs == nil {
		p.Jobs = []operator.DefinedJob{}
	}
	return view.DefinitionsOf(p.Jobs, time.Now()), p.Next, err
}

// Definition returns a job that is defined as data.
func Definition(ctx context.Context, op *operator.Operator, job string) (view.Definition, error) {
	d, err := op.Definition(ctx, job)
	return view.Definition{Version: view.Version, At: time.Now(), Definition: d}, err
}

// Pools returns the pools of the group.
func Pools(ctx context.Context, op *operator.Operator) (view.Pools, error) {
	pools, err := op.Pools(ctx)
	if pools == nil {
		pools = []operator.PoolStatus{}
	}
	return view.Pools{Version: view.Version, At: time.Now(), Pools: pools}, err
}

// Kinds returns the kinds of jobs that are defined as data.
func Kinds(ctx context.Context, op *operator.Operator) (view.Kinds, error) {
	kinds, err := op.Kinds(ctx)
	if kinds == nil {
		kinds = []operator.KindStatus{}
	}
	return view.Kinds{Version: view.Version, At: time.Now(), Kinds: kinds}, err
}
