package act

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/rota-dev/rota/cmd/rota/internal/complete"
	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/cmd/rota/internal/settings"
	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/operator"
)

// pauseOptions are the flags of pause.
type pauseOptions struct {
	scheduleOnly, all bool
	length            time.Duration
	until             string
}

// parse returns when the pause ends; zero if it does not end by itself.
func (o *pauseOptions) parse(s *settings.Settings, jobs []string) (time.Time, error) {
	switch {
	case o.length < 0:
		return time.Time{}, exit.Usagef("--for is %v, below 0", o.length)
	case o.length > 0 && o.until != "":
		return time.Time{}, exit.Usagef("--for and --until exclude each other")
	case o.scheduleOnly && (o.all || o.length > 0 || o.until != ""):
		return time.Time{}, exit.Usagef("--schedule excludes --all, --for and --until")
	case o.length > 0:
		return time.Now().Add(o.length), checkJobs(o.all, jobs)
	}
	until, err := s.ParseInstant("until", o.until, settings.Future)
	if err == nil {
		err = checkJobs(o.all, jobs)
	}
	return until, err
}

// checkJobs returns an error unless either jobs are named or --all is set.
func checkJobs(all bool, jobs []string) error {
	switch {
	case all && len(jobs) > 0:
		return exit.Usagef("--all and names of jobs exclude each other")
	case !all && len(jobs) == 0:
		return exit.Usagef("name jobs, or --all for all jobs of the group")
	}
	return nil
}

func (c *commands) pause() *cobra.Command {
	var o pauseOptions
	cmd := &cobra.Command{
		Use:   "pause JOB... | --all",
		Short: "Stop jobs until resume; fires that come due meanwhile never run",
		Long: `Pause stops jobs until rota resume, or for a time: no fire, trigger or re-run is claimed. Runs that were
claimed before continue, or begin once a worker is free; daemons (always) end. Fires that come due meanwhile
never run and are not counted as skipped; triggers and re-runs wait for the resume. With --schedule,
only the schedule stops, and triggers run.

With --all, it pauses all jobs of the group, present and future. That pause is apart from the pauses
of single jobs, which stay in force after rota resume --all.`,
		Example: `  rota pause settle --reason "quarter end" --for 2h
  rota pause --all --until 18:00 --reason deploy`,
		RunE: func(cmd *cobra.Command, args []string) error {
			until, err := o.parse(c.s, args)
			if err != nil {
				return err
			}
			if o.all {
				return c.pauseGroup(cmd, until)
			}
			set, done := (*operator.Operator).Pause, "paused %s"
			switch {
			case o.scheduleOnly:
				set, done = (*operator.Operator).StopSchedule, "stopped the schedule of %s"
			case !until.IsZero():
				set = func(op *operator.Operator, ctx context.Context, job string) error {
					return op.PauseUntil(ctx, job, until)
				}
				done = "paused %s until " + until.UTC().Format(time.RFC3339)
			}
			return c.eachJob(cmd, "pause", done, args, func(ctx context.Context, op *operator.Operator, job string) error {
				return set(op, ctx, job)
			})
		},
		ValidArgsFunction: complete.Jobs(c.s, 0),
	}
	f := cmd.Flags()
	f.BoolVar(&o.scheduleOnly, "schedule", false, "stop the schedule only: triggers run")
	f.BoolVar(&o.all, "all", false, "all jobs of the group")
	f.DurationVar(&o.length, "for", 0, "resume after this time, as 2h")
	f.StringVar(&o.until, "until", "", "resume at this instant: RFC 3339, or the next such time of day in UTC, as 18:00 (with --time local, in the local zone)")
	return settings.Limit(cmd, append([]string{"time"}, flags...)...)
}

// pauseGroup pauses all jobs.
func (c *commands) pauseGroup(cmd *cobra.Command, until time.Time) error {
	if err := c.s.Confirm(cmd, "pause all jobs of the group"); err != nil {
		return err
	}
	return c.operate(cmd.Context(), func(ctx context.Context, op *operator.Operator) error {
		note, err := c.s.DescribeAbsence(ctx)
		if err != nil {
			return err
		}
		if note != "" {
			note += " The pause holds for its start."
		}
		text, set := "paused all jobs of the group", op.PauseGroup
		if !until.IsZero() {
			text += " until " + until.UTC().Format(time.RFC3339)
			set = func(ctx context.Context) error { return op.PauseGroupUntil(ctx, until) }
		}
		if err := set(ctx); err != nil {
			return err
		}
		return c.print(cmd, view.Done{Verb: "pause", Text: text, Note: note})
	})
}

func (c *commands) resume() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "resume JOB... | --all",
		Short: "End the pause of jobs",
		Long: `Resume ends rota pause. With --all, it ends the pause of the group; jobs that are paused themselves
stay paused.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkJobs(all, args); err != nil {
				return err
			}
			if all {
				return c.operate(cmd.Context(), func(ctx context.Context, op *operator.Operator) error {
					in, err := op.Intent(ctx, "")
					if err != nil {
						return err
					}
					text := "the group is not paused: nothing changed"
					if in.Paused {
						text, err = "resumed the group", op.ResumeGroup(ctx)
					}
					if err != nil {
						return err
					}
					return c.print(cmd, view.Done{Verb: "resume", Text: text})
				})
			}
			return c.eachJob(cmd, "resume", "resumed %s", args, func(ctx context.Context, op *operator.Operator, job string) error {
				in, err := op.Intent(ctx, job)
				if err != nil || in.Paused || in.ScheduleStopped || !in.RetiredBy.At.IsZero() {
					return op.Resume(ctx, job)
				}
				if group, err := op.Intent(ctx, ""); err == nil && group.Paused {
					return noChange("is not paused itself, as the group is")
				}
				return noChange("is not paused")
			})
		},
		ValidArgsFunction: complete.Jobs(c.s, 0),
	}
	cmd.Flags().BoolVar(&all, "all", false, "end the pause of the group")
	return settings.Limit(cmd, flags...)
}
