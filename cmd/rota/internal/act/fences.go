package act

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/cmd/rota/internal/settings"
	"github.com/rota-dev/rota/cmd/rota/internal/view"
	"github.com/rota-dev/rota/coordinator"
)

func (c *commands) raiseFences() *cobra.Command {
	var above uint64
	cmd := &cobra.Command{
		Use:   "raise-fences --above N",
		Short: "Make fences greater than N, after the store was restored or replaced",
		Long: `Raise-fences makes the fences of instances that join from now on greater than N, in all groups of the
namespace. It is for a store that was restored from a backup or replaced, whose fences begin lower
than before, so that databases which compare fences would refuse new writes. N is the greatest fence
that any of them has stored.

Stop all instances, restore the store, run this command, and start the instances.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("above") {
				return exit.Usagef("--above names the greatest fence that any database has stored")
			}
			if err := c.s.Confirm(cmd, fmt.Sprintf("raise the fences of the namespace above %d for good", above)); err != nil {
				return err
			}
			return c.operate(cmd.Context(), func(ctx context.Context, op *coordinator.Operator) error {
				if err := op.RaiseFences(ctx, above); err != nil {
					return err
				}
				return c.print(cmd, view.Done{Verb: "raise-fences", Text: fmt.Sprintf("fences are above %d from the next start of each instance on", above)})
			})
		},
	}
	cmd.Flags().Uint64Var(&above, "above", 0, "the greatest fence that any database has stored")
	return settings.Limit(cmd, flags...)
}
