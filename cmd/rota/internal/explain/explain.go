// Package explain holds the commands explain, moves and doctor, which find the reasons for which fires do not
// run, the moves that a leader would make, and faults in the records.
package explain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rota-dev/rota/internal/look"

	"github.com/spf13/cobra"

	"github.com/rota-dev/rota/cmd/rota/internal/complete"
	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/cmd/rota/internal/runhistory"
	"github.com/rota-dev/rota/cmd/rota/internal/screen"
	"github.com/rota-dev/rota/cmd/rota/internal/settings"
	"github.com/rota-dev/rota/history"
	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/operator"
)

// Commands returns the commands.
func Commands(s *settings.Settings) []*cobra.Command {
	c := &commands{s}
	return []*cobra.Command{c.explain(), c.moves(), c.doctor()}
}

type commands struct{ s *settings.Settings }

// output names the global flags of the commands.
var output = append([]string{"output", "time"}, settings.Connection...)

// show prints a view, and returns the error of judge.
func (c *commands) show(cmd *cobra.Command, read func(context.Context, *operator.Operator) (screen.View, error), judge func() error) error {
	err := screen.Show(cmd.Context(), c.s, screen.Output{Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr()},
		func(ctx context.Context, op *operator.Operator, _ func() (operator.GroupStatus, error)) (screen.View, error) {
			return read(ctx, op)
		})
	if err != nil {
		return err
	}
	return judge()
}

func (c *commands) explain() *cobra.Command {
	var at string
	source := runhistory.NewSource(c.s)
	cmd := &cobra.Command{
		Use:        "explain JOB [SHARD]",
		SuggestFor: []string{"why"},
		Short:      "Explain why a fire has run or has not, and what to do",
		Long: `Explain checks the conditions of a run in their order, and shows the first one that stops the fire.
Without SHARD, it explains all shards, and groups equal answers. Without --at, it explains the newest
fire that has come due or, for a job that runs by triggers only, the newest triggered run.

The records hold the last claim of each shard and a few failures. If a history is named, explain reads
the outcome of older fires there, and why fires were skipped.

It exits with 4 if a fire is stopped, and with 3 if the job is not known.`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			shard := operator.AllShards
			if len(args) == 2 {
				n, err := strconv.Atoi(args[1])
				if err != nil || n < 0 {
					return exit.Usagef("shard is %q, not a number from 0", args[1])
				}
				shard = n
			}
			fire, err := c.s.ParseInstant("at", at, settings.Past)
			if err != nil {
				return err
			}
			var e operator.Explanation
			return c.show(cmd, func(ctx context.Context, op *operator.Operator) (screen.View, error) {
				e, err = op.Explain(ctx, args[0], shard, fire)
				if err == nil {
					e, err = readOutcomes(ctx, cmd, source, e)
				}
				return view.ExplanationOf(e, source.Flags(cmd)), err
			}, func() error {
				switch {
				case !e.Known:
					return &exit.Error{Code: exit.NoJob}
				case slices.ContainsFunc(e.Answers, func(a operator.Answer) bool { return a.Stops }):
					return &exit.Error{Code: exit.NotMet}
				}
				return nil
			})
		},
		ValidArgsFunction: complete.Jobs(c.s, 1),
	}
	cmd.Flags().StringVar(&at, "at", "", "the instant of the fire: RFC 3339, or a time of day in UTC, as 14:00 (with --time local, in the local zone)")
	source.AddFileFlag(cmd)
	return settings.Limit(cmd, append([]string{"history"}, output...)...)
}

// readOutcomes completes an explanation by the history, if one is named and an answer needs it. A history that does not
// answer is reported on stderr.
func readOutcomes(ctx context.Context, cmd *cobra.Command, source *runhistory.Source, e operator.Explanation) (operator.Explanation, error) {
	if !source.IsNamed() || !look.NeedsHistory(&e) {
		return e, nil
	}
	completed := e
	err := source.Read(ctx, cmd, func(ctx context.Context, r history.Reader) (err error) {
		completed, err = look.AddHistory(ctx, r, e)
		return err
	})
	if usage := (*exit.Error)(nil); errors.As(err, &usage) {
		return e, err
	}
	if err != nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "the answer is without the history: %v\n", err)
		return e, nil
	}
	return completed, nil
}

func (c *commands) moves() *cobra.Command {
	var without settings.Names
	var with int
	var labels map[string]string
	cmd := &cobra.Command{
		Use:   "moves [JOB]",
		Short: "Show which shards the leader would move, without or with more instances",
		Long: `Moves shows which shards the leader would move, by the functions that leaders use, and changes
nothing. Without flags, it shows the moves that are about to happen.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var options []operator.MovesOption
			if with != 0 {
				options = append(options, operator.With(with, labels))
			} else if len(labels) > 0 {
				return exit.Usagef("--label needs --with")
			}
			if len(without) > 0 {
				options = append(options, operator.Without(without...))
			}
			if len(args) > 0 {
				options = append(options, operator.OfJob(args[0]))
			}
			return c.show(cmd, func(ctx context.Context, op *operator.Operator) (screen.View, error) {
				if err := c.s.CheckFleet(ctx); err != nil {
					return nil, err
				}
				p, err := op.Moves(ctx, options...)
				return view.Moves{Version: view.Version, Preview: p}, err
			}, func() error { return nil })
		},
		ValidArgsFunction: complete.Jobs(c.s, 1),
	}
	cmd.Flags().Var(&without, "without", "instances that are left out")
	cmd.Flags().IntVar(&with, "with", 0, "how many instances are added")
	cmd.Flags().StringToStringVar(&labels, "label", nil, "labels of the added instances, as zone=a")
	_ = cmd.RegisterFlagCompletionFunc("without", complete.Instances(c.s))
	return settings.Limit(cmd, output...)
}

func (c *commands) doctor() *cobra.Command {
	return settings.Limit(&cobra.Command{
		Use:   "doctor",
		Short: "Check the records of the group: damage, clocks, versions, stuck shards",
		Long: strings.TrimSpace(`
Doctor checks all records of the group and shows each finding with what to do. A finding that a second
call repeats persists. It exits with 4 if there is an error among the findings.`),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var d operator.Diagnosis
			var note string
			return c.show(cmd, func(ctx context.Context, op *operator.Operator) (screen.View, error) {
				var err error
				if d, err = op.Diagnose(ctx); err == nil && len(d.Findings) == 0 {
					note, err = c.s.DescribeAbsence(ctx)
				}
				v := view.Diagnosis{Version: view.Version, Diagnosis: d}
				v.Note = note
				return v, err
			}, func() error {
				if note != "" {
					return &exit.Error{Code: exit.Usage}
				}
				if slices.ContainsFunc(d.Findings, func(f operator.Finding) bool { return f.Severity == operator.SeverityError }) {
					return &exit.Error{Code: exit.NotMet}
				}
				return nil
			})
		},
		ValidArgsFunction: complete.Of(),
	}, output...)
}
