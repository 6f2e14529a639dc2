// Package cli is the root of the command: its sub-commands, its help and its exit codes.
package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rota-dev/rota/cmd/rota/internal/act"
	"github.com/rota-dev/rota/cmd/rota/internal/console"
	"github.com/rota-dev/rota/cmd/rota/internal/demo"
	"github.com/rota-dev/rota/cmd/rota/internal/dev"
	"github.com/rota-dev/rota/cmd/rota/internal/dump"
	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/cmd/rota/internal/explain"
	"github.com/rota-dev/rota/cmd/rota/internal/importing"
	"github.com/rota-dev/rota/cmd/rota/internal/postgres"
	"github.com/rota-dev/rota/cmd/rota/internal/runhistory"
	"github.com/rota-dev/rota/cmd/rota/internal/serve"
	"github.com/rota-dev/rota/cmd/rota/internal/settings"
	"github.com/rota-dev/rota/cmd/rota/internal/show"
	"github.com/rota-dev/rota/internal/count"
	"github.com/rota-dev/rota/internal/registryurl"
)

// Streams are the standard streams of a command.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// The groups of commands in the help.
const (
	groupLook = "look"
	groupAct  = "act"
	groupRun  = "run"
)

// Run executes the command line, with registries of these schemes, and returns its exit code. It
// writes an error to io.Err.
func Run(ctx context.Context, schemes registryurl.Schemes, args []string, io Streams) int {
	return run(ctx, settings.New(schemes), args, io)
}

func run(ctx context.Context, s *settings.Settings, args []string, io Streams) int {
	root, began := newRoot(s, io)
	root.SetArgs(slices.Concat([]string{}, args)) // of nil, cobra takes those of the process, also in tests
	cmd, err := root.ExecuteContextC(ctx)
	err = s.AdviseJob(ctx, err, cmd.Flags().Args())
	s.Close()
	switch e, ok := err.(*exit.Error); {
	case err == nil || exit.Interrupted(ctx, err):
	case ok && e.Err == nil:
	default:
		fmt.Fprintln(io.Err, err)
	}
	if err != nil && !*began { // the command line is refused
		return settings.UsageCode(cmd)
	}
	return exit.CodeOf(err)
}

// newRoot returns the root command. Began is true once a command runs, that is, once cobra has
// accepted the command line.
func newRoot(s *settings.Settings, io Streams) (root *cobra.Command, began *bool) {
	root = &cobra.Command{
		Use:   "rota",
		Short: "Sharded, scheduled jobs over a fleet",
		Long: `Rota shows and operates the jobs of a fleet. The commands need the address of its store:
from --registry, from ROTA_REGISTRY, or from a context (rota context).

Exit codes: ` + exit.Help() + `.
The codes of check are those of Nagios.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetIn(io.In)
	root.SetOut(io.Out)
	root.SetErr(io.Err)
	s.AddFlags(root)
	root.AddGroup(
		&cobra.Group{ID: groupLook, Title: "Look:"},
		&cobra.Group{ID: groupAct, Title: "Act:"},
		&cobra.Group{ID: groupRun, Title: "Run:"},
	)
	addTo(root, groupLook, show.Commands(s)...)
	addTo(root, groupLook, runhistory.Commands(s)...)
	addTo(root, groupLook, explain.Commands(s)...)
	addTo(root, groupLook, dump.Command(s))
	addTo(root, groupAct, act.Commands(s)...)
	addTo(root, groupAct, dump.RestoreCommand(s))
	addTo(root, groupRun, serve.RunCommand(s.Schemes, s.Clock), serve.ValidateCommand(s.Schemes), serve.NotifyCommand(s), dev.Command(), postgres.Command(s))
	addTo(root, groupRun, console.Command(s))
	addTo(root, groupRun, demo.Commands(s.Schemes)...)
	addTo(root, groupRun, importing.Command())
	root.AddCommand(contextCommand(s), versionCommand())
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	amendDefaults(root)

	began = new(bool)
	wrapCommands(root, s, began)
	return root, began
}

// amendDefaults makes the commands that cobra adds accept no global flags, and help refuse a command that does not exist.
func amendDefaults(root *cobra.Command) {
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			settings.Limit(c)
			c.Run, c.RunE = nil, showHelp
		case "completion":
			settings.Limit(c)
			for _, sub := range c.Commands() {
				settings.Limit(sub)
			}
		}
	}
}

// showHelp prints the help of the command that args name.
func showHelp(help *cobra.Command, args []string) error {
	cmd, rest, err := help.Root().Find(args)
	if err == nil && len(rest) > 0 && cmd.HasSubCommands() {
		err = fmt.Errorf("unknown command %q for %q", rest[0], cmd.CommandPath())
	}
	if err != nil {
		return &exit.Error{Code: exit.Usage, Err: err}
	}
	cmd.InitDefaultHelpFlag()
	return cmd.Help()
}

// addTo adds commands to a group of the help.
func addTo(root *cobra.Command, group string, cmds ...*cobra.Command) {
	for _, c := range cmds {
		c.GroupID = group
		root.AddCommand(c)
	}
}

// wrapCommands makes each command below c refuse global flags that do not apply to it, and set
// began when it runs. Of a command that has only sub-commands, cobra would show the help for an unknown one.
func wrapCommands(c *cobra.Command, s *settings.Settings, began *bool) {
	for _, sub := range c.Commands() {
		wrapCommands(sub, s, began)
	}
	if c.HasParent() && !c.Runnable() {
		c.Args, c.RunE = cobra.NoArgs, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	if check := c.Args; check != nil {
		c.Args = func(cmd *cobra.Command, args []string) error { return describeCount(cmd, len(args), check(cmd, args)) }
	}
	if run := c.RunE; run != nil {
		c.RunE = func(cmd *cobra.Command, args []string) error {
			if err := s.CheckLine(cmd, args); err != nil {
				return err
			}
			*began = true
			return run(cmd, args)
		}
	}
}

// describeCount names the arguments in the error of cobra for a wrong number of them; it has the number only.
func describeCount(cmd *cobra.Command, n int, err error) error {
	if err == nil || !strings.HasPrefix(err.Error(), "accepts ") && !strings.HasPrefix(err.Error(), "requires ") {
		return err
	}
	usage := cmd.Use
	if cmd.HasParent() {
		usage = cmd.Parent().CommandPath() + " " + usage
	}
	return fmt.Errorf("%s given, expected: %s", count.Of(n, "argument"), usage)
}
