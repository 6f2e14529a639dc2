package act

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/rota-dev/rota/cmd/rota/internal/complete"
	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/cmd/rota/internal/settings"
	"github.com/rota-dev/rota/internal/acts"
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
			return c.doEach(cmd, verb("pause", acts.OnJob), args, acts.Request{Until: until, ScheduleOnly: o.scheduleOnly})
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
	v := verb("pause", acts.OnGroup)
	if err := c.confirm(cmd, v, nil); err != nil {
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
		done, err := v.Do(ctx, op, acts.Request{Until: until})
		if err != nil {
			return err
		}
		done.Note = note
		return c.printView(cmd, done)
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
				return c.do(cmd, verb("resume", acts.OnGroup), acts.Request{})
			}
			return c.doEach(cmd, verb("resume", acts.OnJob), args, acts.Request{})
		},
		ValidArgsFunction: complete.Jobs(c.s, 0),
	}
	cmd.Flags().BoolVar(&all, "all", false, "end the pause of the group")
	return settings.Limit(cmd, flags...)
}
