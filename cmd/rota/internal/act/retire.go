package act

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/rota-dev/rota/cmd/rota/internal/complete"
	"github.com/rota-dev/rota/cmd/rota/internal/settings"
	"github.com/rota-dev/rota/cmd/rota/internal/show"
	"github.com/rota-dev/rota/internal/acts"
	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/operator"
)

func (c *commands) retire() *cobra.Command {
	var wait bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "retire JOB...",
		Short: "Remove jobs from the fleet: the leader deletes them once no instance offers them",
		Long: `Retire removes jobs that were deleted or renamed in the program or in the jobs file. No run of them
begins any more; runs in progress finish. As soon as no live instance offers a job, the leader deletes
its records as forget does, with pending triggers, re-runs and the saved states of shards. Call it
before, during or after the deployment without the jobs. Until the deletion, unretire takes it back.
With --wait, it returns when the jobs are deleted: with exit code 4 if the time is over.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.confirm(cmd, verb("retire", acts.OnJob), args); err != nil {
				return err
			}
			var stored *operator.Operator
			err := c.operate(cmd.Context(), func(ctx context.Context, op *operator.Operator) error {
				stored = op
				retired, err := acts.Retire(ctx, op, args...)
				for _, done := range retired {
					if printErr := c.printView(cmd, done); printErr != nil {
						return errors.Join(err, printErr)
					}
				}
				return err
			})
			if err != nil || !wait {
				return err
			}
			return c.awaitDeletion(cmd, stored, args, timeout)
		},
		ValidArgsFunction: complete.Jobs(c.s, 0),
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the jobs are deleted")
	cmd.Flags().DurationVar(&timeout, "wait-timeout", time.Hour, "how long to wait")
	return settings.Limit(cmd, flags...)
}

// awaitDeletion waits until jobs are deleted, and prints each.
func (c *commands) awaitDeletion(cmd *cobra.Command, op *operator.Operator, jobs []string, timeout time.Duration) error {
	end := time.Now().Add(timeout)
	for _, job := range jobs {
		err := show.Await(cmd.Context(), op, job, time.Until(end), func(st *operator.Status, _ time.Time) (bool, string) {
			return st.Intent.RetiredBy.At.IsZero(), view.DescribeRetiring(st)
		})
		text := "deleted " + job
		switch {
		case err == nil:
			text = job + " is not retiring any more"
		case !errors.Is(err, operator.ErrUnknownJob):
			return err
		}
		if err := c.print(cmd, view.Done{Verb: "retire", Jobs: []string{job}, Text: text}); err != nil {
			return err
		}
	}
	return nil
}
