package act

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/rota-dev/rota/cmd/rota/internal/complete"
	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/cmd/rota/internal/settings"
	"github.com/rota-dev/rota/internal/acts"
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
			return c.do(cmd, verb("set-pool", acts.OnGroup), acts.Request{Pool: args[0], Size: &size})
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
			return c.doConfirmed(cmd, verb("delete-pool", acts.OnGroup), acts.Request{Pool: args[0]})
		},
		ValidArgsFunction: complete.Of(),
	}, flags...)
}
