package show

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rota-dev/rota/cmd/rota/internal/complete"
	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/cmd/rota/internal/settings"
	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
)

func (c *commands) wait() *cobra.Command {
	var condition string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "wait JOB",
		Short: "Wait until a job is idle, ok, or has no shard left to move",
		Long: `Wait returns when the condition holds, or with exit code 4 when the time is over.

  idle   no run is claimed or pending, and no fire is due
  ok     no fire is late, each shard has an owner that is alive, no last ended run failed, and the
         job is not paused and has no problem
  moved  each shard has an owner that is alive and stays; no shard is about to move`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			holds := view.Conditions[condition]
			if holds == nil {
				return exit.Usagef("--for is %q, not one of %s", condition, strings.Join(view.ConditionNames, ", "))
			}
			op, err := c.s.Operator(cmd.Context())
			if err != nil {
				return err
			}
			if err := Await(cmd.Context(), op, args[0], timeout, holds); err != nil {
				return err
			}
			verb := "is"
			if condition == "moved" {
				verb = "has"
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s %s %s\n", args[0], verb, condition)
			return err
		},
		ValidArgsFunction: complete.Jobs(c.s, 1),
	}
	cmd.Flags().StringVar(&condition, "for", "", strings.Join(view.ConditionNames, ", "))
	cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Minute, "how long to wait")
	_ = cmd.RegisterFlagCompletionFunc("for", complete.Of(view.ConditionNames...))
	return settings.Limit(cmd, settings.Connection...)
}

// pollEvery is the time between two reads of one job: a read costs a few round trips, and a watch
// would read the whole group.
const pollEvery = 500 * time.Millisecond

// Await reads a job until a condition holds. When the time is over, it fails with NotMet and the reason.
func Await(ctx context.Context, op *operator.Operator, job string, timeout time.Duration, holds view.Condition) error {
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	why := "the job could not be read"
	for {
		st, err := op.Status(bounded, job)
		switch {
		case err == nil:
			var ok bool
			if ok, why = holds(&st, time.Now()); ok {
				return nil
			}
		case bounded.Err() != nil:
		case errors.Is(err, registry.ErrUnavailable): // for a while
			why = err.Error()
		default:
			return err
		}
		select {
		case <-time.After(pollEvery):
		case <-bounded.Done():
			if err := ctx.Err(); err != nil {
				return err
			}
			return NotMet(ctx, op, "%s after %v: %s", job, timeout, why)
		}
	}
}

// confirmTimeout bounds the read that confirms that the store answers.
const confirmTimeout = 5 * time.Second

// NotMet returns the error of a wait whose time is over: exit.NotMet, or another one if the store does not answer now,
// since nobody knows then whether the condition holds.
func NotMet(ctx context.Context, op *operator.Operator, format string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	if _, err := op.Intent(ctx, ""); err != nil {
		return fmt.Errorf("%s; the store does not answer: %w", fmt.Sprintf(format, args...), err)
	}
	return exit.NotMetf(format, args...)
}
