package show

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/rota-dev/rota/cmd/rota/internal/complete"
	"github.com/rota-dev/rota/cmd/rota/internal/screen"
	"github.com/rota-dev/rota/cmd/rota/internal/settings"
	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/operator"
)

// once names the global flags of commands with a screen of records that no view of the group watches.
var once = append([]string{"output", "time"}, settings.Connection...)

func (c *commands) definitions() *cobra.Command {
	var kind, prefix string
	cmd := &cobra.Command{
		Use:   "definitions",
		Short: "List the jobs that are defined as data: kind, state, schedule, next fire",
		Long: `Definitions lists the jobs that rota define or a program has defined as data. A job that is resting has
nothing due, and rota jobs does not list it; one that is awake is a job like any other, and rota job shows its
next fire; one that is finished has no further fire. REVISION counts the changes, and BY is who made the last one.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.show(cmd, func(ctx context.Context, op *operator.Operator, _ group) (screen.View, error) {
				var all []operator.DefinedJob
				for j, err := range op.Definitions(ctx, operator.OfKind(kind), operator.WithPrefix(prefix)) {
					if err != nil {
						return nil, err
					}
					all = append(all, j)
				}
				return view.DefinitionsOf(all, time.Now()), nil
			})
		},
		ValidArgsFunction: complete.Of(),
	}
	cmd.Flags().StringVar(&kind, "kind", "", "only jobs of this kind")
	cmd.Flags().StringVar(&prefix, "prefix", "", "only jobs whose names begin with this text")
	_ = cmd.RegisterFlagCompletionFunc("kind", complete.Kinds(c.s))
	return settings.Limit(cmd, once...)
}

func (c *commands) kinds() *cobra.Command {
	return settings.Limit(&cobra.Command{
		Use:   "kinds",
		Short: "List the kinds of which jobs can be defined as data",
		Long: `Kinds lists the kinds that instances have stored or offer, and how many jobs of each are defined, as
the leader has counted them. INSTANCES offer the kind now.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.show(cmd, func(ctx context.Context, op *operator.Operator, _ group) (screen.View, error) {
				kinds, err := op.Kinds(ctx)
				return view.Kinds{Version: view.Version, At: time.Now(), Kinds: kinds}, err
			})
		},
		ValidArgsFunction: complete.Of(),
	}, once...)
}
