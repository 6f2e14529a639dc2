package act

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/rota-dev/rota/cmd/rota/internal/complete"
	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/cmd/rota/internal/settings"
	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/operator"
)

func (c *commands) setPool() *cobra.Command {
	return settings.Limit(&cobra.Command{
		Use:   "set-pool NAME N",
		Short: "Set how many runs of the jobs of a pool may run at once in the group",
		Long: `Set-pool sets the size of a pool: at most N runs of the jobs that name it run at once in the group. A size
of 0 holds all of them back. Runs that have begun go on, so a smaller size is in force when enough of
them have ended. rota pools shows who has the slots.`,
		Example: `  rota set-pool db 8`,
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			size, err := strconv.Atoi(args[1])
			if err != nil {
				return exit.Usagef("N is %q, not a whole number", args[1])
			}
			return c.changePool(cmd, "set-pool", fmt.Sprintf("pool %s has %d slots", args[0], size), func(ctx context.Context, op *operator.Operator) error {
				return op.SetPool(ctx, args[0], size)
			})
		},
		ValidArgsFunction: complete.Of(),
	}, flags...)
}

func (c *commands) deletePool() *cobra.Command {
	return settings.Limit(&cobra.Command{
		Use:   "delete-pool NAME",
		Short: "Delete the size of a pool",
		Long: `Delete-pool deletes the size of a pool, and its records once no run has a slot. Jobs that still name the
pool wait until it has a size again: take the pool out of them first.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.s.Confirm(cmd, fmt.Sprintf("delete pool %s: jobs that name it wait until it has a size again", args[0])); err != nil {
				return err
			}
			return c.changePool(cmd, "delete-pool", "pool "+args[0]+" has no size any more", func(ctx context.Context, op *operator.Operator) error {
				return op.DeletePool(ctx, args[0])
			})
		},
		ValidArgsFunction: complete.Of(),
	}, flags...)
}

// changePool changes a pool, and prints the result.
func (c *commands) changePool(cmd *cobra.Command, name, text string, change func(context.Context, *operator.Operator) error) error {
	return c.operate(cmd.Context(), func(ctx context.Context, op *operator.Operator) error {
		done := view.Done{Verb: name, Text: text}
		switch err := change(ctx, op.ReportingUnchanged()); {
		case errors.Is(err, operator.ErrUnchanged):
			done.Text, done.Unchanged = text+": nothing changed", true
		case errors.Is(err, operator.ErrInvalidArgument):
			return exit.Usagef("%w", err)
		case err != nil:
			return notMet(err)
		}
		return c.print(cmd, done)
	})
}
