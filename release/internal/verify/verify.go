// Package verify installs a release as its users do: outside of the checkout, from a proxy, into an empty module cache.
package verify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Release is what Run verifies.
type Release struct {
	Tree    string // a checkout of the release, which the examples are copied from
	Module  string // path of the root module
	Version string
	Proxy   string // directory of the proxy with the release
	Etcd    string // a binary of etcd, for the examples that need one
	Work    string // an empty directory
	Out     io.Writer
}

// Run verifies the release. It goes on after a failure, and returns all of them.
func Run(ctx context.Context, r Release) error {
	upstream, err := exec.Command("go", "env", "GOPROXY").Output()
	if err != nil {
		return err
	}
	v := &verification{Release: r, env: append(os.Environ(),
		"GOMODCACHE="+filepath.Join(r.Work, "mod"), "GOBIN="+filepath.Join(r.Work, "bin"), "GOFLAGS=-modcacherw -trimpath", "GOWORK=off",
		"GONOSUMDB="+r.Module, "GOPROXY=file://"+r.Proxy+","+strings.TrimSpace(string(upstream)))}
	v.step("library", func() error { return v.library(ctx) })
	v.step("command", func() error { return v.command(ctx) })
	v.step("other modules", func() error { return v.otherModules(ctx) })
	stop, err := v.startEtcd(ctx)
	if err != nil {
		return errors.Join(append(v.failures, fmt.Errorf("etcd: %w", err))...)
	}
	defer stop()
	for _, e := range examples {
		v.step("example "+e.name, func() error { return v.example(ctx, e) })
	}
	v.step("jobs file", func() error { return v.jobsFile(ctx) })
	return errors.Join(v.failures...)
}

// verification is one call of Run.
type verification struct {
	Release
	env      []string
	store    string // address of etcd
	failures []error
}

func (v *verification) step(name string, run func() error) {
	began := time.Now()
	result := "ok"
	if err := run(); err != nil {
		result = "FAIL " + err.Error()
		v.failures = append(v.failures, fmt.Errorf("%s: %w", name, err))
	}
	fmt.Fprintf(v.Out, "%-22s %5.1f s  %s\n", name, time.Since(began).Seconds(), result)
}

// testsOnly lists the modules that only tests of the library, or the command, import.
var testsOnly = []string{
	"github.com/stretchr/testify", "github.com/anishathalye/porcupine", "github.com/spf13/cobra", "modernc.org/sqlite", "github.com/jackc/pgx/v5",
}

// library gets the library into an empty module, and builds the program of the README there. It reports what the module cache has
// after each command, and fails if a build downloads a module that it does not need.
func (v *verification) library(ctx context.Context) error {
	dir, err := v.newModule(ctx, "user")
	if err != nil {
		return err
	}
	if err := v.run(ctx, dir, "go", "get", v.Module+"@"+v.Version); err != nil {
		return err
	}
	if err := v.reportCache("go get"); err != nil {
		return err
	}
	if err := copyFile(filepath.Join(v.Tree, "examples/settle/main.go"), filepath.Join(dir, "main.go")); err != nil {
		return err
	}
	for _, args := range [][]string{{"get", "."}, {"build", "-o", os.DevNull, "."}} {
		if err := v.run(ctx, dir, "go", args...); err != nil {
			return err
		}
	}
	if err := v.reportCache("go build of README's"); err != nil {
		return err
	}
	for _, module := range testsOnly {
		if _, err := os.Stat(filepath.Join(v.Work, "mod/cache/download", filepath.FromSlash(module), "@v")); err == nil && v.hasZip(module) {
			return fmt.Errorf("a build downloads %s", module)
		}
	}
	if err := v.run(ctx, dir, "go", "mod", "tidy"); err != nil {
		return err
	}
	if err := v.reportCache("go mod tidy"); err != nil {
		return err
	}
	graph, err := v.output(ctx, dir, "go", "mod", "graph")
	if err != nil {
		return err
	}
	fmt.Fprintf(v.Out, "go mod graph: %d lines\n", strings.Count(graph, "\n"))
	return os.WriteFile(filepath.Join(v.Work, "graph"), []byte(graph), 0o644)
}

func (v *verification) hasZip(module string) bool {
	zips, _ := filepath.Glob(filepath.Join(v.Work, "mod/cache/download", filepath.FromSlash(module), "@v/*.zip"))
	return len(zips) > 0
}

// reportCache prints the number and size of the modules that have been downloaded.
func (v *verification) reportCache(after string) error {
	var zips, mods int
	var size int64
	err := filepath.WalkDir(filepath.Join(v.Work, "mod/cache/download"), func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch filepath.Ext(p) {
		case ".mod":
			mods++
		case ".zip":
			info, err := d.Info()
			if err != nil {
				return err
			}
			zips, size = zips+1, size+info.Size()
		}
		return nil
	})
	fmt.Fprintf(v.Out, "after %-22s %3d modules (%.1f MB), %3d go.mod files\n", after+":", zips, float64(size)/1e6, mods)
	return err
}

// command installs the command and asks it for its version.
func (v *verification) command(ctx context.Context) error {
	if err := v.run(ctx, v.Work, "go", "install", v.Module+"/cmd/rota@"+v.Version); err != nil {
		return err
	}
	out, err := v.output(ctx, v.Work, v.rota(), "version")
	if err != nil {
		return err
	}
	fmt.Fprint(v.Out, out)
	if !strings.HasPrefix(out, "rota "+v.Version+",") {
		return fmt.Errorf("rota version prints %q, want %s", out, v.Version)
	}
	return nil
}

func (v *verification) rota() string { return filepath.Join(v.Work, "bin/rota") }

// otherModules builds a program that imports a package of each further module.
func (v *verification) otherModules(ctx context.Context) error {
	dir, err := v.newModule(ctx, "others")
	if err != nil {
		return err
	}
	text := "package main\n\nimport (\n"
	for _, pkg := range []string{"registry/postgres", "rotaotel", "rotaprom", "web"} {
		text += fmt.Sprintf("\t_ %q\n", v.Module+"/"+pkg)
		if err := v.run(ctx, dir, "go", "get", v.Module+"/"+pkg+"@"+v.Version); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(text+")\n\nfunc main() {}\n"), 0o644); err != nil {
		return err
	}
	return v.run(ctx, dir, "go", "build", "-o", os.DevNull, ".")
}

// newModule creates an empty module in a directory of its own.
func (v *verification) newModule(ctx context.Context, name string) (dir string, err error) {
	dir = filepath.Join(v.Work, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	return dir, v.run(ctx, dir, "go", "mod", "init", "example.org/"+name)
}

// run runs a program and returns its output in the error if it fails.
func (v *verification) run(ctx context.Context, dir, name string, args ...string) error {
	_, err := v.output(ctx, dir, name, args...)
	return err
}

// output returns what a program writes to its standard output.
func (v *verification) output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, v.env
	var out, both bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.MultiWriter(&out, &both), &both
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, both.String())
	}
	return out.String(), nil
}

// terminate runs a program for some time, ends it by SIGTERM, and fails unless it exits with 0.
func (v *verification) terminate(ctx context.Context, after time.Duration, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, v.env
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return err
	}
	timer := time.AfterFunc(after, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	err := cmd.Wait()
	if timer.Stop() && err == nil {
		err = errors.New("it ended before SIGTERM")
	}
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out.String())
	}
	return nil
}

func copyFile(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o644)
}
