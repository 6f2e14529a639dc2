package registry_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/test/registrytest"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// scripted is a registry whose answers to Txn follow a script: one step for each call. After
// the last step, calls pass to the registry below.
type scripted struct {
	registry.Registry
	steps []step
	gets  []error // the script for Get; nil passes the call on
	sent  []registry.TxnID
	read  int
	fresh int
}

type step func(ctx context.Context, reg registry.Registry, t registry.Txn) (registry.Rev, error)

func (s *scripted) Txn(ctx context.Context, t registry.Txn) (registry.Rev, error) {
	s.sent = append(s.sent, t.ID)
	if len(s.steps) == 0 {
		return s.Registry.Txn(ctx, t)
	}
	do := s.steps[0]
	s.steps = s.steps[1:]
	return do(ctx, s.Registry, t)
}

func (s *scripted) Get(ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
	s.read++
	if o.Fresh {
		s.fresh++
	}
	if len(s.gets) > 0 {
		err := s.gets[0]
		s.gets = s.gets[1:]
		if err != nil {
			return registry.Entry{}, err
		}
	}
	return s.Registry.Get(ctx, key, o)
}

// pass commits the transaction and returns the answer.
func pass(ctx context.Context, reg registry.Registry, t registry.Txn) (registry.Rev, error) {
	return reg.Txn(ctx, t)
}

// loseReply commits the transaction, and loses the reply.
func loseReply(ctx context.Context, reg registry.Registry, t registry.Txn) (registry.Rev, error) {
	_, err := reg.Txn(ctx, t)
	return registry.Rev{}, fmt.Errorf("%w: the reply was lost (%v)", registry.ErrUnknownOutcome, err)
}

// loseRequest commits nothing; the outcome is unknown to the caller.
func loseRequest(context.Context, registry.Registry, registry.Txn) (registry.Rev, error) {
	return registry.Rev{}, fmt.Errorf("%w: the request was lost", registry.ErrUnknownOutcome)
}

// answer returns err and commits nothing.
func answer(err error) step {
	return func(context.Context, registry.Registry, registry.Txn) (registry.Rev, error) {
		return registry.Rev{}, err
	}
}

// after runs first, then the step.
func after(first func(), do step) step {
	return func(ctx context.Context, reg registry.Registry, t registry.Txn) (registry.Rev, error) {
		first()
		return do(ctx, reg, t)
	}
}

// client returns a handle on a new memory server, which is closed with the test.
func client(t *testing.T) *memory.Client {
	return registrytest.Client(t, memory.New(), "a")
}

func isAbsent(t *testing.T, reg registry.Registry, key registry.Key) {
	t.Helper()
	_, err := reg.Get(context.Background(), key, registry.ReadOptions{Fresh: true})
	require.ErrorIs(t, err, registry.ErrNotFound)
}

func listed(t *testing.T, reg registry.Registry, dir registry.Key) []registry.Entry {
	t.Helper()
	l, err := reg.List(context.Background(), dir, registry.ReadOptions{Fresh: true})
	require.NoError(t, err)
	return l.Entries
}
