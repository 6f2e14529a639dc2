// Package complete completes the names of jobs and instances from the registry.
package complete

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rota-dev/rota/cmd/rota/internal/settings"
	"github.com/rota-dev/rota/operator"
)

// maxTime bounds a completion: a shell waits for it.
const maxTime = time.Second

// Func completes an argument or a flag.
type Func = func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective)

// Jobs completes up to most arguments by the names of jobs; zero means any number.
func Jobs(s *settings.Settings, most int) Func {
	return names(s, most, (*operator.Operator).JobNames)
}

// Instances completes a flag by the names of instances.
func Instances(s *settings.Settings) Func { return names(s, 0, (*operator.Operator).InstanceNames) }

// OneInstance completes one argument by the names of instances.
func OneInstance(s *settings.Settings) Func {
	return names(s, 1, (*operator.Operator).InstanceNames)
}

// DefinedJobs completes up to most arguments by the names of jobs that are defined as data; zero means any number.
func DefinedJobs(s *settings.Settings, most int) Func {
	return names(s, most, func(op *operator.Operator, ctx context.Context) (all []string, err error) {
		for j, err := range op.Definitions(ctx) {
			if err != nil {
				return nil, err
			}
			all = append(all, j.Name)
		}
		slices.Sort(all)
		return all, nil
	})
}

// Kinds completes a flag by the names of kinds.
func Kinds(s *settings.Settings) Func {
	return names(s, 0, func(op *operator.Operator, ctx context.Context) (all []string, err error) {
		kinds, err := op.Kinds(ctx)
		for i := range kinds {
			all = append(all, kinds[i].Name)
		}
		return all, err
	})
}

func names(s *settings.Settings, most int, list func(*operator.Operator, context.Context) ([]string, error)) Func {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if most > 0 && len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		s.Timeout = maxTime
		ctx, cancel := context.WithTimeout(cmd.Context(), maxTime)
		defer cancel()
		op, err := s.Operator(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		all, err := list(op, ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return slices.DeleteFunc(all, func(name string) bool {
			return !strings.HasPrefix(name, prefix) || slices.Contains(args, name)
		}), cobra.ShellCompDirectiveNoFileComp
	}
}

// Of completes by fixed values.
func Of(values ...string) Func {
	return func(_ *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
		return slices.DeleteFunc(slices.Clone(values), func(v string) bool { return !strings.HasPrefix(v, prefix) }), cobra.ShellCompDirectiveNoFileComp
	}
}
