package provision

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
)

// cachedPackages returns a cached directory with the content of packages of the system's
// distribution. finish completes it.
func cachedPackages(ctx context.Context, log io.Writer, what string, packages []string, finish func(root string) error) (string, error) {
	release, _ := os.ReadFile("/etc/os-release") // the packages depend on the release
	key := append([]string{runtime.GOARCH, string(release)}, packages...)
	dir, err := cached(ctx, log, what+"-"+digest(key...), "downloading "+what, func(ctx context.Context, dir string) error {
		if err := extractPackages(ctx, dir, packages, finish); err != nil {
			return fmt.Errorf("download %s: %w", what, err)
		}
		return nil
	})
	return filepath.Join(dir, "root"), err
}

// extractPackages extracts packages below dir, like apt-get install but without their
// scripts. apt keeps its lists and downloads there too, and still verifies signatures.
func extractPackages(ctx context.Context, dir string, packages []string, finish func(root string) error) error {
	for _, tool := range []string{"apt-get", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			return err
		}
	}
	work, root := filepath.Join(dir, "apt"), filepath.Join(dir, "root")
	defer os.RemoveAll(work)
	for _, d := range []string{"state/lists/partial", "cache/archives/partial", "packages"} {
		if err := os.MkdirAll(filepath.Join(work, d), 0o755); err != nil {
			return err
		}
	}
	apt := func(args ...string) error {
		options := []string{
			"-qq",
			"-o", "Dir::State=" + filepath.Join(work, "state"),
			"-o", "Dir::State::status=/var/lib/dpkg/status",
			"-o", "Dir::Cache=" + filepath.Join(work, "cache"),
			"-o", "Debug::NoLocking=1",
			"-o", "APT::Sandbox::User=",
		}
		return runCommand(ctx, filepath.Join(work, "packages"), nil, "apt-get", append(options, args...)...)
	}
	err := retry(ctx, func() error {
		if err := apt("update"); err != nil {
			return err
		}
		return apt(slices.Concat([]string{"download"}, packages)...)
	})
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(work, "packages", "*.deb"))
	if err != nil {
		return err
	}
	for _, file := range files {
		if err := runCommand(ctx, dir, nil, "dpkg-deb", "-x", file, root); err != nil {
			return err
		}
	}
	return finish(root)
}
