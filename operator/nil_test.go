package operator

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/coordinator"
	"github.com/rota-dev/rota/internal/group/member"
)

func TestNilRegistry(t *testing.T) {
	for name, call := range map[string]func(context.Context) error{
		"NewMember": func(context.Context) error {
			_, err := member.New(nil, member.Options{Namespace: "test"})
			return err
		},
		"New": func(context.Context) error {
			_, err := New(nil, "test", "")
			return err
		},
		"Join": func(ctx context.Context) error {
			return coordinator.Join(ctx, nil, coordinator.Config{Namespace: "test", Shards: 1, Own: func(context.Context, coordinator.Owned) error { return nil }})
		},
		"Campaign": func(ctx context.Context) error {
			return coordinator.Campaign(ctx, nil, "test/leader", func(context.Context, uint64) error { return nil })
		},
	} {
		t.Run("is refused by "+name, func(t *testing.T) {
			assert.ErrorContains(t, call(t.Context()), "registry is nil")
		})
	}
}
