package cli

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/rota-dev/rota/cmd/rota/internal/settings"
)

// commit is the commit of a release, which its build sets: a build from a module has none.
var commit string

// versionCommand returns the command that prints the version of the program.
func versionCommand() *cobra.Command {
	return settings.Limit(&cobra.Command{
		Use:   "version",
		Short: "Print version, commit, Go version and platform of this program",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			info, ok := debug.ReadBuildInfo()
			if !ok {
				info = &debug.BuildInfo{GoVersion: runtime.Version()}
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), describeVersion(info, commit))
			return err
		},
	})
}

// describeVersion returns one line about a program. A build in a checkout has the commit in its information, followed by "modified"
// if files differed from it.
func describeVersion(info *debug.BuildInfo, commit string) string {
	version, modified := info.Main.Version, ""
	version = cmp.Or(version, "(devel)")
	for _, setting := range info.Settings {
		switch {
		case setting.Key == "vcs.revision" && commit == "":
			commit = setting.Value
		case setting.Key == "vcs.modified" && setting.Value == "true":
			modified = ", modified"
		}
	}
	commit = cmp.Or(commit, "unknown")
	return fmt.Sprintf("rota %s, commit %s%s, %s, %s/%s", version, commit, modified, info.GoVersion, runtime.GOOS, runtime.GOARCH)
}
