package show

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/rota-dev/rota/cmd/rota/internal/complete"
	"github.com/rota-dev/rota/cmd/rota/internal/screen"
	"github.com/rota-dev/rota/cmd/rota/internal/settings"
	"github.com/rota-dev/rota/internal/look"
	"github.com/rota-dev/rota/operator"
)

func (c *commands) pools() *cobra.Command {
	return settings.Limit(&cobra.Command{
		Use:   "pools",
		Short: "List the pools, which bound the runs of jobs over the group",
		Long: `Pools lists the pools with a size, and those of which instances have or want slots. INSTANCES have that many
slots; "2 of 5" waits for three more. An instance keeps idle slots while no other one waits.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.show(cmd, func(ctx context.Context, op *operator.Operator, _ group) (screen.View, error) {
				return look.Pools(ctx, op)
			})
		},
		ValidArgsFunction: complete.Of(),
	}, once...)
}
