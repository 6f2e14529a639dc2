package act

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/spf13/cobra"

	"github.com/rota-dev/rota/cmd/rota/internal/complete"
	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/cmd/rota/internal/runhistory"
	"github.com/rota-dev/rota/cmd/rota/internal/settings"
	"github.com/rota-dev/rota/cmd/rota/internal/show"
	"github.com/rota-dev/rota/internal/acts"
	"github.com/rota-dev/rota/internal/count"
	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
)

func (c *commands) cancel() *cobra.Command {
	var shards settings.Shards
	cmd := &cobra.Command{
		Use:   "cancel JOB",
		Short: "Cancel runs in progress, and those pending to be made again",
		Long: `Cancel ends the contexts of the runs of a job that are in progress, and drops its runs that are pending
to be made again. A cancelled run is not retried. Later fires run as usual. A handler that ignores its
context goes on, and a run whose handler returns no error has succeeded. It exits with 4 if no run is in
progress or pending.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.doConfirmed(cmd, verb("cancel", acts.OnJob), acts.Request{Job: args[0], Shards: shards})
		},
		ValidArgsFunction: complete.Jobs(c.s, 1),
	}
	cmd.Flags().SetNormalizeFunc(settings.RenameFlag("shards", "shard"))
	cmd.Flags().Var(&shards, "shard", "shards, such as 3,7-9 (default all)")
	return settings.Limit(cmd, flags...)
}

func (c *commands) retry() *cobra.Command {
	var text, param string
	var shards settings.Shards
	var again bool
	source := runhistory.NewSource(c.s)
	cmd := &cobra.Command{
		Use:   "retry JOB --fire T",
		Short: "Run the failed shards of a fire again",
		Long: `Retry requests a trigger of the shards whose last attempt at the fire failed. The runs have the time
of the fire and the key of the work that failed, so a handler or server that knows the key does not do
finished work twice. It knows the failures that rota job lists. If they name none of the fire, and a
history is named, it looks there.

It exits with 4 if no failure is found, or if the work is pending, in progress or done, or was that of
another number of shards. Runs of a trigger with a parameter need --param, as the records do not keep
it. With --again, the shards run nevertheless, as new work with another key.`,
		Example: `  rota retry tenants --fire 2026-11-23T03:00:00Z
  rota retry tenants --fire 03:00 --shard 3,7-9`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if text == "" {
				return exit.Usagef("name the fire: --fire T")
			}
			fire, err := c.s.ParseInstant("fire", text, settings.Past)
			if err != nil {
				return err
			}
			v, r := verb("retry", acts.OnJob), acts.Request{Job: args[0], Fire: fire, Shards: shards, Param: &param, Again: again}
			return c.operate(cmd.Context(), func(ctx context.Context, op *operator.Operator) error {
				var find acts.FindFailed
				if source.IsNamed() {
					find = func(ctx context.Context, job string, fire time.Time) ([]int, int, error) {
						return source.FailedShards(ctx, cmd, job, fire)
					}
				}
				done, err := v.DoByHistory(ctx, op, r, find)
				if errors.Is(err, operator.ErrRetryRefused) {
					err = fmt.Errorf("%w (--again runs it as new work, with another key; --param names the parameter of a trigger)", err)
				}
				if err != nil {
					return notMet(err)
				}
				return c.printView(cmd, done)
			})
		},
		ValidArgsFunction: complete.Jobs(c.s, 1),
	}
	cmd.Flags().SetNormalizeFunc(settings.RenameFlag("shards", "shard"))
	cmd.Flags().StringVar(&text, "fire", "", "the instant of the fire: RFC 3339, or the last such time of day in UTC, as 03:00 (with --time local, in the local zone)")
	cmd.Flags().Var(&shards, "shard", "shards, such as 3,7-9, whether or not their failure is on record (default those that failed)")
	cmd.Flags().BoolVar(&again, "again", false, "run the shards also if their work is pending or done, as new work with another key")
	cmd.Flags().StringVar(&param, "param", "", "parameter of the runs (default the job's)")
	settings.AllowEmpty(cmd.Flags(), "param")
	source.AddFileFlag(cmd)
	return settings.Limit(cmd, append([]string{"history", "time"}, flags...)...)
}

// backfillOptions are the flags of backfill.
type backfillOptions struct {
	from, to     string
	parallel     int
	dryRun, stop bool
}

// window returns the instants of the flags.
func (o *backfillOptions) window(s *settings.Settings) (from, to time.Time, err error) {
	if o.from == "" || o.to == "" {
		return from, to, exit.Usagef("name the window: --from T --to T")
	}
	if from, err = s.ParseInstant("from", o.from, settings.Past); err == nil {
		to, err = s.ParseInstant("to", o.to, settings.Past)
	}
	if err == nil && !from.Before(to) {
		err = exit.Usagef("the window is empty: --to is not after --from")
	}
	return from, to, err
}

func (c *commands) backfill() *cobra.Command {
	var o backfillOptions
	cmd := &cobra.Command{
		Use:   "backfill JOB --from T --to T",
		Short: "Run the past fires of a job's schedule in a window",
		Long: `Backfill runs the fires of the job's present schedule from an instant to before another, --parallel at
a time, whether they have run before or not. At most 64 fires may wait. The request is durable.
Repeating it runs the fires once more. --stop drops the fires that have not begun.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.stop {
				v := verb("stop-backfills", acts.OnJob)
				if err := c.confirm(cmd, v, args); err != nil {
					return err
				}
				return c.do(cmd, v, acts.Request{Job: args[0]})
			}
			from, to, err := o.window(c.s)
			if err != nil {
				return err
			}
			if o.dryRun {
				return c.read(cmd, func(ctx context.Context, op *operator.Operator) error {
					fires, err := op.ListFires(ctx, args[0], from, to)
					if err != nil {
						return err
					}
					text := fmt.Sprintf("would run %s of %s", count.Of(len(fires), "fire"), args[0])
					if most := operator.MaxBackfill; len(fires) > most {
						text += fmt.Sprintf("; at most %d may wait: begin with --to %s", most, fires[most].Format(time.RFC3339Nano))
					}
					return c.print(cmd, view.Done{Verb: "backfill", Jobs: args, DryRun: true, Fires: fires, Text: text})
				})
			}
			return c.do(cmd, verb("backfill", acts.OnJob), acts.Request{Job: args[0], From: from, To: to, Parallel: o.parallel})
		},
		ValidArgsFunction: complete.Jobs(c.s, 1),
	}
	f := cmd.Flags()
	f.StringVar(&o.from, "from", "", "the first instant: RFC 3339, a date with or without a time, or a time of day, in UTC (with --time local, in the local zone)")
	f.StringVar(&o.to, "to", "", "the instant after the last fire")
	f.Var(settings.NewNumber(&o.parallel, 1, 1, math.MaxInt), "parallel", "fires in flight at most")
	f.BoolVar(&o.dryRun, "dry-run", false, "list the fires and change nothing")
	f.BoolVar(&o.stop, "stop", false, "drop the fires of all backfills of the job that have not begun")
	return settings.Limit(cmd, append([]string{"time"}, flags...)...)
}

// read connects and calls f, which changes nothing, so that protected contexts permit it.
func (c *commands) read(cmd *cobra.Command, f func(ctx context.Context, op *operator.Operator) error) error {
	op, err := c.s.Operator(cmd.Context())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), c.s.Timeout)
	defer cancel()
	return c.s.ExplainFailure(f(ctx, op))
}

func (c *commands) drain() *cobra.Command {
	var wait bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "drain INSTANCE",
		Short: "Move all shards away from an instance, also after its restart, until undrain",
		Long: `Drain disables an instance for all jobs: its idle shards move at once, running ones after their runs.
With --wait, it returns when the instance owns none: with exit code 4 if the time is over.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !wait {
				return c.do(cmd, verb("drain", acts.OnInstance), acts.Request{Instance: args[0]})
			}
			c.s.Timeout = timeout
			return c.operate(cmd.Context(), func(ctx context.Context, op *operator.Operator) error {
				err := op.Drain(ctx, args[0])
				if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, registry.ErrUnavailable) {
					return show.NotMet(cmd.Context(), op, "after %v: %v", timeout, err)
				}
				if err != nil {
					return err
				}
				return c.print(cmd, view.Done{Verb: "drain", Text: "drained " + args[0] + ": it owns no shard", Note: acts.NoteDrain(ctx, op, args[0])})
			})
		},
		ValidArgsFunction: complete.OneInstance(c.s),
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the instance owns no shard")
	cmd.Flags().DurationVar(&timeout, "wait-timeout", time.Hour, "how long to wait")
	return settings.Limit(cmd, flags...)
}

func (c *commands) undrain() *cobra.Command {
	return settings.Limit(&cobra.Command{
		Use:   "undrain INSTANCE",
		Short: "Revert drain: the instance may own shards again",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.do(cmd, verb("undrain", acts.OnInstance), acts.Request{Instance: args[0]})
		},
		ValidArgsFunction: complete.OneInstance(c.s),
	}, flags...)
}
