package backend

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
)

func TestNotApplied(t *testing.T) {
	unknown := Unknown(fmt.Errorf("closing: %w", registry.ErrClosed))
	for _, c := range []struct {
		cause    error
		want     string
		classify error
	}{
		{errCause, "not applied: cause", registry.ErrNotApplied},
		{registry.ErrQuota, registry.ErrQuota.Error(), registry.ErrQuota},
		{ErrHandleClosed, "not applied: registry closed", registry.ErrNotApplied},
		{unknown, unknown.Error(), registry.ErrUnknownOutcome},
		{NotApplied(ErrHandleClosed), "not applied: registry closed", registry.ErrNotApplied},
	} {
		err := NotApplied(c.cause)
		require.EqualError(t, err, c.want)
		require.ErrorIs(t, err, c.classify)
		require.ErrorIs(t, err, c.cause)
	}
	require.NotErrorIs(t, NotApplied(unknown), registry.ErrNotApplied)
	require.NotErrorIs(t, NotApplied(registry.ErrQuota), registry.ErrNotApplied)
}

func TestCallError(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	require.Equal(t, errCause, CallError(ctx, errCause))
	stopped := errors.New("stopped")
	cancel(stopped)
	require.EqualError(t, CallError(ctx, errCause), "stopped (cause)")
	wrapped := fmt.Errorf("call: %w", stopped)
	require.Equal(t, wrapped, CallError(ctx, wrapped))
	require.NoError(t, CallError(ctx, nil))
}
