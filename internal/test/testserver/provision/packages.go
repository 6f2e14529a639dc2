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
	"strings"
)

// Packages returns a cached directory with the content of packages of the system's distribution, and of those
// that they depend on and that the system lacks. log, which may be nil, receives a line about a slow step.
func Packages(ctx context.Context, log io.Writer, what string, packages ...string) (root string, err error) {
	return cachedPackagesWith(ctx, log, what, packages, listMissing, relink)
}

// Environment returns the environment of a program of the packages below root, in which it finds its libraries: those of the
// architecture, and of directories there. An empty root is the system.
func Environment(root string, directories ...string) []string {
	if root == "" {
		return os.Environ()
	}
	arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH] + "-linux-gnu"
	libraries := filepath.Join(root, "usr/lib", arch)
	path := []string{libraries, filepath.Join(root, "lib", arch)}
	for _, d := range directories {
		path = append(path, filepath.Join(libraries, d))
	}
	return append(os.Environ(), "LD_LIBRARY_PATH="+strings.Join(path, ":"))
}

// lister returns packages to extract beside the given ones.
type lister func(ctx context.Context, options, packages []string) ([]string, error)

// listMissing returns the packages that apt-get would install together with the given ones.
func listMissing(ctx context.Context, options, packages []string) (missing []string, err error) {
	out, err := exec.CommandContext(ctx, "apt-get", slices.Concat(options, []string{"--simulate", "--no-install-recommends", "install"}, packages)...).Output()
	for line := range strings.Lines(string(out)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "Inst" && !slices.Contains(packages, fields[1]) {
			missing = append(missing, fields[1])
		}
	}
	return missing, err
}

// cachedPackages returns a cached directory with the content of packages of the system's
// distribution. finish completes it.
func cachedPackages(ctx context.Context, log io.Writer, what string, packages []string, finish func(root string) error) (string, error) {
	return cachedPackagesWith(ctx, log, what, packages, nil, finish)
}

// cachedPackagesWith is cachedPackages with those that list returns, unless that is nil.
func cachedPackagesWith(ctx context.Context, log io.Writer, what string, packages []string, list lister, finish func(root string) error) (string, error) {
	release, _ := os.ReadFile("/etc/os-release") // the packages depend on the release
	key := append([]string{runtime.GOARCH, string(release)}, packages...)
	dir, err := cached(ctx, log, what+"-"+digest(key...), "downloading "+what, func(ctx context.Context, dir string) error {
		if err := extractPackages(ctx, dir, packages, list, finish); err != nil {
			return fmt.Errorf("download %s: %w", what, err)
		}
		return nil
	})
	return filepath.Join(dir, "root"), err
}

// extractPackages extracts packages below dir, like apt-get install but without their
// scripts. apt keeps its lists and downloads there too, and still verifies signatures.
func extractPackages(ctx context.Context, dir string, packages []string, list lister, finish func(root string) error) error {
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
	options := []string{
		"-qq",
		"-o", "Dir::State=" + filepath.Join(work, "state"),
		"-o", "Dir::State::status=/var/lib/dpkg/status",
		"-o", "Dir::Cache=" + filepath.Join(work, "cache"),
		"-o", "Debug::NoLocking=1",
		"-o", "APT::Sandbox::User=",
	}
	apt := func(args ...string) error {
		return runCommand(ctx, filepath.Join(work, "packages"), nil, "apt-get", slices.Concat(options, args)...)
	}
	err := retry(ctx, func() error {
		if err := apt("update"); err != nil {
			return err
		}
		wanted := packages
		if list != nil {
			more, err := list(ctx, options, packages)
			if err != nil {
				return err
			}
			wanted = slices.Concat(packages, more)
		}
		return apt(slices.Concat([]string{"download"}, wanted)...)
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
