package cli

import (
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDescribeVersion(t *testing.T) {
	platform := runtime.GOOS + "/" + runtime.GOARCH
	setting := func(key, value string) debug.BuildSetting { return debug.BuildSetting{Key: key, Value: value} }
	info := func(version string, settings ...debug.BuildSetting) *debug.BuildInfo {
		return &debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Version: version}, Settings: settings}
	}

	t.Run("a release has the commit that its build set", func(t *testing.T) {
		require.Equal(t, "rota v0.1.0, commit 0123abc, go1.26.8, "+platform, describeVersion(info("v0.1.0"), "0123abc"))
	})
	t.Run("a build from a module knows no commit", func(t *testing.T) {
		require.Equal(t, "rota v0.1.0, commit unknown, go1.26.8, "+platform, describeVersion(info("v0.1.0"), ""))
	})
	t.Run("a build in a checkout has its commit, and whether files differed", func(t *testing.T) {
		got := describeVersion(info("(devel)", setting("vcs.revision", "4567def"), setting("vcs.modified", "true")), "")
		require.Equal(t, "rota (devel), commit 4567def, modified, go1.26.8, "+platform, got)
	})
	t.Run("without any information it is a development version", func(t *testing.T) {
		require.Equal(t, "rota (devel), commit unknown, go1.26.8, "+platform, describeVersion(info(""), ""))
	})
}
