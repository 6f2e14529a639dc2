// Command replay simulates small fleets so that a seed always runs the same way: the same commits with
// the same ids and values at the same time, and the same calls of handlers.
//
//	go run ./internal/test/simulate/replay -simulate.seed=17
//	go run ./internal/test/simulate/replay -simulate.seeds=10000
//	go run ./internal/test/simulate/replay -check -simulate.seeds=50
//
// It builds the tests of package simulate with a Go runtime in which neither random numbers nor the real
// clock influence scheduling, from the sources of the installed Go with a few places edited. Each seed runs
// in a process of its own with one processor, without preemption and without garbage collection. Arguments
// are those of the test binary, and -check: it simulates each seed twice and compares the transcripts.
//
// A seed runs another way after a change of Go's version, of the code, or of anything else that allocates.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			os.Exit(exit.ExitCode())
		}
		fmt.Fprintln(os.Stderr, "replay:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	check, err := parseCheck(args)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "rota-replay-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	cmd, err := buildSimulator(ctx, dir)
	if err != nil {
		return err
	}
	if check != nil {
		return check.run(ctx, cmd, dir)
	}
	cmd.Args = append(cmd.Args, "-test.v", "-test.timeout=0")
	cmd.Args = append(cmd.Args, args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

// buildSimulator builds the simulator in dir and returns the command that runs it.
func buildSimulator(ctx context.Context, dir string) (*exec.Cmd, error) {
	goroot, err := commandOutput(ctx, "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	version, err := commandOutput(ctx, "go", "env", "GOVERSION")
	if err != nil {
		return nil, err
	}
	pkg, err := simulatorDir(ctx)
	if err != nil {
		return nil, err
	}
	file, err := writeOverlay(goroot, version, dir)
	if err != nil {
		return nil, err
	}
	bin := filepath.Join(dir, "simulate.test")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", file, "-o", bin, ".")
	build.Dir = pkg
	build.Stdout, build.Stderr = os.Stdout, os.Stderr
	if err := build.Run(); err != nil {
		return nil, fmt.Errorf("build the simulator: %w", err)
	}
	cmd := exec.CommandContext(ctx, bin, "-test.run=^TestSmallFleetsKeepTheirPromises$")
	cmd.Dir = pkg
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=off", "GODEBUG=asyncpreemptoff=1")
	return cmd, nil
}

// simulatorDir returns the directory of package simulate. It asks for the module of the current directory, since
// go list -m prints each main module of a workspace.
func simulatorDir(ctx context.Context) (string, error) {
	mod, err := commandOutput(ctx, "go", "env", "GOMOD")
	return filepath.Join(filepath.Dir(mod), "internal", "test", "simulate"), err
}

func commandOutput(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}
