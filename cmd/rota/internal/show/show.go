// Package show holds the commands that show a fleet and change nothing.
package show

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/look"

	"github.com/spf13/cobra"

	"github.com/rota-dev/rota/cmd/rota/internal/complete"
	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/cmd/rota/internal/screen"
	"github.com/rota-dev/rota/cmd/rota/internal/settings"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/operator"
)

// Commands returns the commands.
func Commands(s *settings.Settings) []*cobra.Command {
	c := &commands{s}
	return []*cobra.Command{
		c.jobs(), c.job(), c.shards(), c.instances(), c.next(), c.decisions(), c.acts(), c.top(), c.check(), c.wait(),
		c.definitions(), c.kinds(), c.pools(),
	}
}

type commands struct{ s *settings.Settings }

// output names the global flags of commands with a screen.
var output = append([]string{"output", "time", "watch"}, settings.Connection...)

type group = func() (operator.GroupStatus, error)

// show prints a screen of a command.
func (c *commands) show(cmd *cobra.Command, read screen.Read) error {
	return screen.Show(cmd.Context(), c.s, screen.Output{Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr()}, read)
}

func (c *commands) jobs() *cobra.Command {
	var f view.JobsFilter
	cmd := &cobra.Command{
		Use:        "jobs [GLOB]",
		SuggestFor: []string{"status", "list", "ls"},
		Short:      "List the jobs: schedule, next and last fire, shards, counts, state",
		Long: `Jobs lists the jobs of the group. GLOB selects them by name, as in 'rota jobs "tenant-*"'.

NEXT is the next fire, or how long a fire has been due and is not claimed. LAST is the last fire
that was claimed or skipped. OK/FAIL/SKIP are runs since the job was created.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.Glob = strings.Join(args, "")
			if err := f.Check(); err != nil {
				return &exit.Error{Code: exit.Usage, Err: err}
			}
			return c.showGroup(cmd, func(st operator.GroupStatus, note string) screen.View {
				v := view.JobsOf(st, f)
				v.Note = note
				return v
			})
		},
		ValidArgsFunction: complete.Jobs(c.s, 1),
	}
	cmd.Flags().StringVar(&f.State, "state", "", "only jobs in this state: "+strings.Join(view.JobStates, ", "))
	_ = cmd.RegisterFlagCompletionFunc("state", complete.Of(view.JobStates...))
	return settings.Limit(cmd, output...)
}

// showGroup prints a screen of the group. Note names the missing records of a group without a fleet. Then, the exit code is Usage.
func (c *commands) showGroup(cmd *cobra.Command, of func(st operator.GroupStatus, note string) screen.View) error {
	note := ""
	err := c.show(cmd, func(ctx context.Context, _ *operator.Operator, group group) (screen.View, error) {
		st, err := group()
		if note = ""; err == nil && view.IsEmpty(&st) {
			note, err = c.s.DescribeAbsence(ctx)
		}
		return of(st, note), err
	})
	if err == nil && note != "" {
		return &exit.Error{Code: exit.Usage}
	}
	return err
}

// showUnlessAbsent is show, and fails if the group has no fleet.
func (c *commands) showUnlessAbsent(cmd *cobra.Command, read screen.Read) error {
	return c.show(cmd, func(ctx context.Context, op *operator.Operator, group group) (screen.View, error) {
		if err := c.s.CheckFleet(ctx); err != nil {
			return nil, err
		}
		return read(ctx, op, group)
	})
}

func (c *commands) job() *cobra.Command {
	return settings.Limit(&cobra.Command{
		Use:   "job JOB",
		Short: "Show a job: fires, owners, pending runs, failures, decisions",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.show(cmd, func(ctx context.Context, op *operator.Operator, _ group) (screen.View, error) {
				return look.Job(ctx, op, args[0])
			})
		},
		ValidArgsFunction: complete.Jobs(c.s, 1),
	}, output...)
}

func (c *commands) shards() *cobra.Command {
	var owner string
	cmd := &cobra.Command{
		Use:   "shards JOB [SHARD...]",
		Short: "Show the shards of a job: owner, state, last fire claimed",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var set shardset.Set
			for _, text := range args[1:] {
				shards, err := settings.ParseShards(text)
				if err != nil {
					return exit.Usagef("shard is %q: %w", text, err)
				}
				set = set.Union(shardset.Of(shards...))
			}
			chosen := slices.Collect(set.All())
			return c.show(cmd, func(ctx context.Context, op *operator.Operator, _ group) (screen.View, error) {
				v, err := look.Shards(ctx, op, args[0], owner, chosen)
				if bad, ok := errors.AsType[look.ArgumentError](err); ok {
					return nil, &exit.Error{Code: exit.Usage, Err: bad}
				}
				return v, err
			})
		},
		ValidArgsFunction: complete.Jobs(c.s, 1),
	}
	cmd.Flags().StringVar(&owner, "owner", "", "only shards of this instance")
	_ = cmd.RegisterFlagCompletionFunc("owner", complete.Instances(c.s))
	return settings.Limit(cmd, output...)
}

func (c *commands) instances() *cobra.Command {
	return settings.Limit(&cobra.Command{
		Use:   "instances",
		Short: "List the instances: state, shards, runs, clock, labels",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.showGroup(cmd, func(st operator.GroupStatus, note string) screen.View {
				v := view.InstancesOf(st)
				v.Note = note
				return v
			})
		},
		ValidArgsFunction: complete.Of(),
	}, output...)
}

func (c *commands) decisions() *cobra.Command {
	return settings.Limit(&cobra.Command{
		Use:   "decisions [JOB]",
		Short: "List the latest changes of plans by leaders, with their reasons",
		Long: `Decisions lists the latest changes of a job's plan, or of all jobs that jobs lists as late, without
owner or with a problem. Records keep the last eight of each job.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.showUnlessAbsent(cmd, func(ctx context.Context, op *operator.Operator, group group) (screen.View, error) {
				return readDecisions(ctx, op, args, group)
			})
		},
		ValidArgsFunction: complete.Jobs(c.s, 1),
	}, output...)
}

func readDecisions(ctx context.Context, op *operator.Operator, jobs []string, group group) (screen.View, error) {
	if len(jobs) == 0 {
		st, err := group()
		if err != nil {
			return nil, err
		}
		jobs = look.TroubledJobs(st)
	}
	return look.Decisions(ctx, op, jobs)
}

func (c *commands) acts() *cobra.Command {
	return settings.Limit(&cobra.Command{
		Use:   "acts [JOB]",
		Short: "List the latest acts of operators: when, who, what, why",
		Long: `Acts lists the acts of operators on a job and on all jobs of the group, such as pause --all and drain.
Without JOB, it lists the latter. Records keep the last 32 of each.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.showUnlessAbsent(cmd, func(ctx context.Context, op *operator.Operator, _ group) (screen.View, error) {
				return look.Acts(ctx, op, strings.Join(args, ""))
			})
		},
		ValidArgsFunction: complete.Jobs(c.s, 1),
	}, output...)
}

func (c *commands) top() *cobra.Command {
	var every time.Duration
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show totals, instances and the jobs that need attention, again and again",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o := screen.Output{Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr(), Every: every}
			var tally view.Tally
			return screen.Follow(cmd.Context(), c.s, o, func(group *operator.GroupView) (screen.View, error) {
				st, removed := group.Changes()
				rest := screen.Height(o.Out, 40) - len(st.Instances) - 10 // the lines that are not jobs
				return tally.Overview(st, removed, max(3, rest)), nil
			})
		},
	}
	cmd.Flags().DurationVar(&every, "every", 2*time.Second, "time between two screens")
	return settings.Limit(cmd, append([]string{"output", "time"}, settings.Connection...)...)
}
