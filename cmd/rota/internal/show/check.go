package show

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/look"

	"github.com/spf13/cobra"

	"github.com/rota-dev/rota/cmd/rota/internal/complete"
	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/cmd/rota/internal/screen"
	"github.com/rota-dev/rota/cmd/rota/internal/settings"
	"github.com/rota-dev/rota/internal/view"
)

// checkOptions are the flags of check.
type checkOptions struct {
	view.CheckLimits
	format string
}

func (c *commands) check() *cobra.Command {
	var o checkOptions
	cmd := &cobra.Command{
		Use:   "check [GLOB]",
		Short: "Check the group for monitoring, with the exit codes of Nagios",
		Long: `Check reads the group once and exits with 0 (ok), 1 (warning), 2 (critical) or 3 (unknown).

Critical: a fire has been due for longer than --max-late, the group has no leader, it has fewer jobs
or live instances than --min-jobs and --min-instances, or the store has lost records and nobody has
run rota acknowledge. Warning: a job has a problem, shards without an owner, or shards whose last ended
run failed; or a clock is wrong, or a record cannot be read. Unknown: a flag is wrong, or the group
could not be read, or no job was found: the namespace may be misspelt, or GLOB. With --min-jobs 0, a
group without jobs is ok. Paused jobs are ok, and so is an instance that restarts, until a fire is late.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Jobs.Glob = strings.Join(args, "")
			v := c.runCheck(cmd.Context(), &o)
			if err := o.print(cmd, &v); err != nil {
				return &exit.Error{Code: view.CheckUnknown, Err: err}
			}
			if v.Code == view.CheckOK {
				return nil
			}
			return &exit.Error{Code: v.Code}
		},
		ValidArgsFunction: complete.Jobs(c.s, 1),
	}
	cmd.Flags().DurationVar(&o.MaxLate, "max-late", 5*time.Minute, "how long a fire may be due and not claimed")
	cmd.Flags().Var(settings.NewNumber(&o.MinJobs, 1, 0, math.MaxInt), "min-jobs", "the least number of jobs that are found")
	cmd.Flags().Var(settings.NewNumber(&o.MinInstances, 1, 0, math.MaxInt), "min-instances", "the least number of live instances")
	cmd.Flags().StringVar(&o.format, "format", "nagios", "nagios, prometheus or json")
	_ = cmd.RegisterFlagCompletionFunc("format", complete.Of("nagios", "prometheus", "json"))
	return settings.SetUsageCode(settings.Limit(cmd, settings.Connection...), view.CheckUnknown) // Usage would be critical
}

// runCheck reads the group. Failures of all kinds are results too: a monitor reads no others.
func (c *commands) runCheck(ctx context.Context, o *checkOptions) view.Check {
	err := o.Jobs.Check()
	if err == nil {
		err = c.s.Resolve()
	}
	if err != nil {
		return view.CheckFailed(err, time.Now())
	}
	ctx, cancel := context.WithTimeout(ctx, c.s.Timeout)
	defer cancel()
	op, err := c.s.Operator(ctx)
	if err != nil {
		return view.CheckFailed(err, time.Now())
	}
	st, err := op.Group(ctx)
	if err != nil {
		return view.CheckFailed(err, time.Now())
	}
	return look.Check(ctx, op, st, o.CheckLimits)
}

func (o *checkOptions) print(cmd *cobra.Command, v *view.Check) error {
	w := cmd.OutOrStdout()
	switch o.format {
	case "nagios":
		_, err := fmt.Fprintln(w, v.Nagios())
		return err
	case "prometheus":
		_, err := fmt.Fprint(w, v.Prometheus())
		return err
	case "json":
		return screen.PrintJSON(w, *v)
	}
	return fmt.Errorf("--format is %q, not one of nagios, prometheus, json", o.format)
}
