package act

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rota-dev/rota/cmd/rota/internal/complete"
	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/cmd/rota/internal/runhistory"
	"github.com/rota-dev/rota/cmd/rota/internal/settings"
	"github.com/rota-dev/rota/cmd/rota/internal/show"
	"github.com/rota-dev/rota/internal/count"
	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
)

// notMet gives an error the exit code 4 if it wraps one of causes.
func notMet(err error, causes ...error) error {
	for _, cause := range causes {
		if errors.Is(err, cause) {
			return &exit.Error{Code: exit.NotMet, Err: err}
		}
	}
	return err
}

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
			act := "cancel all runs of " + args[0] + " that are in progress or pending"
			if shards != nil {
				act = fmt.Sprintf("cancel the runs of %s in %s", args[0], view.ShardsText(shards))
			}
			if err := c.s.Confirm(cmd, act); err != nil {
				return err
			}
			return c.operate(cmd.Context(), func(ctx context.Context, op *operator.Operator) error {
				runs, err := op.Cancel(ctx, args[0], shards...)
				if err != nil {
					return notMet(err, operator.ErrNotRunning)
				}
				done := view.Done{Verb: "cancel", Jobs: args, Runs: runs}
				done.Text = fmt.Sprintf("cancelled %s: %s", args[0], view.DescribeRuns(done.Runs))
				return c.print(cmd, done)
			})
		},
		ValidArgsFunction: complete.Jobs(c.s, 1),
	}
	cmd.Flags().SetNormalizeFunc(settings.RenameFlag("shards", "shard"))
	cmd.Flags().Var(&shards, "shard", "shards, such as 3,7-9 (default all)")
	return settings.Limit(cmd, flags...)
}

func (c *commands) retry() *cobra.Command {
	var text string
	var shards settings.Shards
	var o operator.RetryOptions
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
			o.Shards = shards
			return c.operate(cmd.Context(), func(ctx context.Context, op *operator.Operator) error {
				r, err := op.Retry(ctx, args[0], fire, o)
				if errors.Is(err, operator.ErrNoFailure) && source.IsNamed() {
					var found error
					if o.Shards, o.Total, found = source.FailedShards(ctx, cmd, args[0], fire); found != nil {
						return found
					}
					if o.Shards != nil {
						r, err = op.Retry(ctx, args[0], fire, o)
					}
				}
				if errors.Is(err, operator.ErrRetryRefused) {
					err = fmt.Errorf("%w (--again runs it as new work, with another key; --param names the parameter of a trigger)", err)
				}
				if err != nil {
					return notMet(err, operator.ErrNoFailure, operator.ErrRetryRefused)
				}
				done := view.DescribeRetry(args[0], r, o.Again)
				done.Note = c.describeWait(ctx, op, args[0], r.Shards)
				return c.print(cmd, done)
			})
		},
		ValidArgsFunction: complete.Jobs(c.s, 1),
	}
	cmd.Flags().SetNormalizeFunc(settings.RenameFlag("shards", "shard"))
	cmd.Flags().StringVar(&text, "fire", "", "the instant of the fire: RFC 3339, or the last such time of day in UTC, as 03:00 (with --time local, in the local zone)")
	cmd.Flags().Var(&shards, "shard", "shards, such as 3,7-9, whether or not their failure is on record (default those that failed)")
	cmd.Flags().BoolVar(&o.Again, "again", false, "run the shards also if their work is pending or done, as new work with another key")
	cmd.Flags().StringVar(&o.Param, "param", "", "parameter of the runs (default the job's)")
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
				return c.stopBackfills(cmd, args[0])
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
			return c.operate(cmd.Context(), func(ctx context.Context, op *operator.Operator) error {
				fires, err := op.Backfill(ctx, args[0], from, to, o.parallel)
				if err != nil {
					return err
				}
				text := fmt.Sprintf("backfills %s of %s, %d at a time", count.Of(len(fires), "fire"), args[0], o.parallel)
				return c.print(cmd, view.Done{Verb: "backfill", Jobs: args, Fires: fires, Text: text, Note: c.describeWait(ctx, op, args[0], nil)})
			})
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

func (c *commands) stopBackfills(cmd *cobra.Command, job string) error {
	if err := c.s.Confirm(cmd, "drop the fires of backfills of "+job+" that have not begun"); err != nil {
		return err
	}
	return c.operate(cmd.Context(), func(ctx context.Context, op *operator.Operator) error {
		n, err := op.StopBackfills(ctx, job)
		if err != nil {
			return err
		}
		return c.print(cmd, view.Done{Verb: "backfill", Jobs: []string{job}, Text: fmt.Sprintf("dropped %s of %s", count.Of(n, "fire"), job)})
	})
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
				return c.operate(cmd.Context(), func(ctx context.Context, op *operator.Operator) error {
					if err := op.BeginDrain(ctx, args[0]); err != nil {
						return err
					}
					note := describeMissing(ctx, op, args[0], "the drain holds for its start")
					return c.print(cmd, view.Done{Verb: "drain", Text: "drains " + args[0], Note: note})
				})
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
				note := describeMissing(ctx, op, args[0], "the drain holds for its start")
				return c.print(cmd, view.Done{Verb: "drain", Text: "drained " + args[0] + ": it owns no shard", Note: note})
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
			return c.operate(cmd.Context(), func(ctx context.Context, op *operator.Operator) error {
				in, err := op.Intent(ctx, "")
				if err != nil {
					return err
				}
				text := args[0] + " is not drained: nothing changed"
				if slices.Contains(in.Disabled.Instances, args[0]) {
					text, err = "undrained "+args[0], op.Undrain(ctx, args[0])
				}
				if err != nil {
					return err
				}
				note := describeMissing(ctx, op, args[0], "it may own shards when it starts")
				return c.print(cmd, view.Done{Verb: "undrain", Text: text, Note: note})
			})
		},
		ValidArgsFunction: complete.OneInstance(c.s),
	}, flags...)
}

// describeMissing returns a note if an instance is not alive: what that means, and which instances are alive.
// The act is stored, so a failed read is no error.
func describeMissing(ctx context.Context, op *operator.Operator, name, meaning string) string {
	all, err := op.Instances(ctx)
	if err != nil {
		return ""
	}
	var alive []string
	for _, i := range all {
		if i.Alive {
			alive = append(alive, i.Instance)
		}
	}
	if slices.Contains(alive, name) {
		return ""
	}
	return fmt.Sprintf("no instance %s is alive; %s. Alive: %s", name, meaning, listBounded(alive))
}

func (c *commands) forget() *cobra.Command {
	return settings.Limit(&cobra.Command{
		Use:   "forget JOB...",
		Short: "Delete jobs for good that no instance offers",
		Long: `Forget deletes the records of a job: definition, plan, counts, failures, intent, acts and the saved
states of its shards. The acts go with it, so it is not recorded. It exits with 4 while a live
instance offers the job or owns shards of it.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			act := fmt.Sprintf("delete all records of %s, with pending runs and the saved states of shards", strings.Join(args, ", "))
			if err := c.s.Confirm(cmd, act); err != nil {
				return err
			}
			return c.eachJob(cmd, "forget", "forgot %s", args, func(ctx context.Context, op *operator.Operator, job string) error {
				return notMet(op.Forget(ctx, job), operator.ErrOffered)
			})
		},
		ValidArgsFunction: complete.Jobs(c.s, 0),
	}, flags...)
}
