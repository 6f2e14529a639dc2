package show

import (
	"context"
	"errors"
	"time"

	"github.com/rota-dev/rota/internal/look"

	"github.com/spf13/cobra"

	"github.com/rota-dev/rota/cmd/rota/internal/complete"
	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/cmd/rota/internal/screen"
	"github.com/rota-dev/rota/cmd/rota/internal/settings"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/schedule"
)

// maxCount bounds --count.
const maxCount = 10_000

// nextOptions are the flags of next.
type nextOptions struct {
	cron, quartz, schedule, in string
	every                      time.Duration
	count                      int
}

func (c *commands) next() *cobra.Command {
	var o nextOptions
	cmd := &cobra.Command{
		Use:   "next [JOB]",
		Short: "Show the next fires of a job, or of a schedule",
		Long: `Next shows the next fires of a job. With --cron, --quartz, --every or --schedule it shows those of
that schedule, and needs no registry.`,
		Example: `  rota next settle
  rota next --cron "0 3 * * *" --in Asia/Shanghai --count 5
  rota next --quartz "0 0 3 L * ?"
  rota next --schedule "every 10s from 2027-01-01T00:00:00Z"`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return c.showSchedule(cmd, &o)
			}
			if o.names() > 0 || o.in != "" {
				return exit.Usagef("a job and a schedule are named: next shows one of them")
			}
			return c.show(cmd, func(ctx context.Context, op *operator.Operator, _ group) (screen.View, error) {
				return look.Next(ctx, op, args[0], o.count)
			})
		},
		ValidArgsFunction: complete.Jobs(c.s, 1),
	}
	f := cmd.Flags()
	f.StringVar(&o.cron, "cron", "", "an expression of schedule.Cron: five fields, six, or @daily")
	f.StringVar(&o.quartz, "quartz", "", "an expression of Quartz: six or seven fields")
	f.DurationVar(&o.every, "every", 0, "a fixed rate")
	f.StringVar(&o.schedule, "schedule", "", "the text form of any schedule")
	f.StringVar(&o.in, "in", "", "zone of --cron and --quartz (default UTC)")
	f.VarP(settings.NewNumber(&o.count, 5, 1, maxCount), "count", "c", "number of fires")
	return settings.Limit(cmd, output...)
}

// names returns how many schedules are named.
func (o *nextOptions) names() (n int) {
	for _, set := range []bool{o.cron != "", o.quartz != "", o.every != 0, o.schedule != ""} {
		if set {
			n++
		}
	}
	return n
}

// parse returns the schedule that the flags name.
func (o *nextOptions) parse() (s schedule.Schedule, err error) {
	if o.names() != 1 {
		return s, errors.New("name a job, or one of --cron, --quartz, --every and --schedule")
	}
	switch {
	case o.cron != "":
		s = schedule.Cron(o.cron)
	case o.quartz != "":
		s = schedule.Quartz(o.quartz)
	case o.every != 0:
		s = schedule.Every(o.every)
	default:
		if s, err = schedule.Parse(o.schedule); err != nil {
			return s, err
		}
	}
	if o.in != "" {
		s = s.In(o.in)
	}
	return s, nil
}

// showSchedule shows a schedule that the flags name. It needs no registry.
func (c *commands) showSchedule(cmd *cobra.Command, o *nextOptions) error {
	if err := c.s.Resolve(); err != nil {
		return err
	}
	schedule, err := o.parse()
	if err != nil {
		return &exit.Error{Code: exit.Usage, Err: err}
	}
	v, err := look.NextOf(schedule, "", o.count)
	if err != nil {
		return &exit.Error{Code: exit.Usage, Err: err}
	}
	return screen.Print(cmd.OutOrStdout(), v, c.s.Output, screen.TimesOf(c.s))
}
