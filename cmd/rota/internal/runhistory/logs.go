package runhistory

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/rota-dev/rota/cmd/rota/internal/complete"
	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/cmd/rota/internal/screen"
	"github.com/rota-dev/rota/cmd/rota/internal/settings"
	"github.com/rota-dev/rota/history"
	"github.com/rota-dev/rota/internal/look"
	"github.com/rota-dev/rota/internal/view"
)

const (
	// followEvery is the time between two looks of --follow. A line is written within a second.
	followEvery = 500 * time.Millisecond
	// followBack is how far a look goes back: instances have other clocks, and a write may take seconds.
	followBack = 10 * time.Second
)

// logsOptions are the flags of logs.
type logsOptions struct {
	fire, since string
	shards      settings.Shards
	trigger     uint64
	follow      bool
}

func (c *commands) logs() *cobra.Command {
	var o logsOptions
	cmd := &cobra.Command{
		Use:   "logs JOB",
		Short: "Print the logs of runs, with the output of their programs, from the history, and follow them",
		Long: `Logs prints the logs of the runs of the latest fire that has one: the output of their programs, and
the records that handlers wrote to Run.Logger. With --fire, --trigger or --since it prints those of other runs. Each
line has the time, the shard, the kind and the text. The kind is stdout or stderr, the level of a
record, panic for a stack, missing for lines that the history does not have, or end with the outcome.

With --follow it goes on with the lines of all runs of the job, until Ctrl-C. A line appears within
two seconds.

Of a long log the history keeps the begin and the end. Of runs that did not fail it keeps the logs of
the latest fires.`,
		Example: `  rota logs settle
  rota logs settle --fire 14:00 --shard 3,7-9
  rota logs settle --follow`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			q := history.LogQuery{Job: args[0], Shards: o.shards, Trigger: o.trigger, Limit: logLimit}
			var err error
			if q.Fire, err = c.s.ParseInstant("fire", o.fire, settings.Past); err != nil {
				return err
			}
			if o.since != "" {
				age, err := parseAge(o.since)
				if err != nil {
					return &exit.Error{Code: exit.Usage, Err: err}
				}
				q.Since = time.Now().Add(-age)
			}
			q.Latest = o.fire == "" && o.since == "" && o.trigger == 0
			if o.follow {
				return c.followLogs(cmd, q)
			}
			return c.show(cmd, func(ctx context.Context, r history.Reader) (screen.View, error) {
				v, known, err := look.Logs(ctx, r, q, 0)
				if err == nil && !known {
					v.Note, err = c.describeUnknown(cmd, args[0])
				}
				return v, err
			})
		},
		ValidArgsFunction: complete.Jobs(c.s, 1),
	}
	c.AddFileFlag(cmd)
	f := cmd.Flags()
	f.SetNormalizeFunc(settings.RenameFlag("shards", "shard"))
	f.StringVar(&o.fire, "fire", "", "the instant of a fire: RFC 3339, or a time of day in UTC, as 14:00 (with --time local, in the local zone)")
	f.Uint64Var(&o.trigger, "trigger", 0, "only the runs of the trigger of that number")
	f.Var(&o.shards, "shard", "only these shards, such as 3,7-9")
	f.StringVar(&o.since, "since", "", "lines that were written so long ago at most, such as 90m or 7d")
	f.BoolVarP(&o.follow, "follow", "f", false, "go on with further lines, until Ctrl-C")
	return settings.Limit(cmd, flags...)
}

// logLimit is how many pieces a query reads.
const logLimit = 1000

// followLogs prints lines until the command ends.
func (c *commands) followLogs(cmd *cobra.Command, q history.LogQuery) error {
	form := c.s.Output
	if form == "json" {
		form = "jsonl"
	}
	return c.Read(cmd.Context(), cmd, func(ctx context.Context, r history.Reader) error {
		return follow(ctx, r, q, c.s.Timeout, func(lines []view.LogLine) error {
			v := view.LogsOf(q.Job, lines, time.Now())
			return screen.Print(cmd.OutOrStdout(), v, form, screen.TimesOf(c.s))
		})
	})
}

// follow passes on the lines that q selects, and later ones, until ctx ends. Each look may last for timeout.
func follow(ctx context.Context, r history.Reader, q history.LogQuery, timeout time.Duration, print func([]view.LogLine) error) error {
	l := look.NewLogReader()
	ticker := time.NewTicker(followEvery)
	defer ticker.Stop()
	for {
		looking, cancel := context.WithTimeout(ctx, timeout)
		lines, err := l.Read(looking, r, q, 0)
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil // Ctrl-C
		case err != nil:
			return err
		}
		if len(lines) > 0 {
			if err := print(lines); err != nil {
				return err
			}
		}
		if q.Latest {
			q.Latest = false
			l.SkipOthers()
		}
		if !l.Latest().IsZero() {
			q.Since = l.Latest().Add(-followBack)
		}
		l.Forget()
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
