package act

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/cmd/rota/internal/settings"
	"github.com/rota-dev/rota/internal/acts"
	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/operator"
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

Stop all instances, restore the store, run this command, and start the instances.

It also replaces the record of the namespace if that cannot be read, so that instances can join again;
rota restore does so from a dump.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("above") {
				return exit.Usagef("--above names the greatest fence that any database has stored")
			}
			if err := c.s.Confirm(cmd, fmt.Sprintf("raise the fences of the namespace above %d for good", above)); err != nil {
				return err
			}
			return c.operate(cmd.Context(), func(ctx context.Context, op *operator.Operator) error {
				if err := op.RaiseFences(ctx, above); err != nil {
					return err
				}
				return c.print(cmd, view.Done{Verb: "raise-fences", Text: fmt.Sprintf("fences of claims are above %d from now on", above)})
			})
		},
	}
	cmd.Flags().Uint64Var(&above, "above", 0, "the greatest fence that any database has stored")
	return settings.Limit(cmd, flags...)
}

func (c *commands) acknowledge() *cobra.Command {
	return settings.Limit(&cobra.Command{
		Use:   "acknowledge",
		Short: "End the report that the store has lost records",
		Long: `Acknowledge ends the report of instances that the store was wiped, replaced or set back, in all groups of
the namespace. Until then rota doctor reports an error, and rota check is critical.

Run it after rota restore, if there is a dump, or at once if the store is new on purpose. Compare rota
jobs with what was paused, disabled and overridden before: instances have restored what they
remembered, with the reason "restored from memory" in rota acts.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.do(cmd, verb("acknowledge", acts.OnGroup), acts.Request{})
		},
	}, flags...)
}
