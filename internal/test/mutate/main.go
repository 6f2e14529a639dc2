// Command mutate counts how many small faults in a package its tests do not notice.
//
//	go run ./internal/test/mutate
//	go run ./internal/test/mutate claiming due
//	go run ./internal/test/mutate -run . -named "" memory
//	go run ./internal/test/mutate -again earlier.txt planning
//
// Its arguments are names of targets: packages with the tests that have to notice the faults.
// Without arguments it runs all of them.
//
// It adds all faults to the source at once, each behind a switch, and builds one test binary.
// Then it runs the tests once for each fault, selected by an environment variable, until one
// fails. A package of a thousand faults takes minutes instead of hours of compilation.
//
// Survivors are compared with a file that names those which no test can or should notice, with
// the reason for each. The command fails if a survivor is not named, or a line of that file
// names none.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// options are the flags of the command.
type options struct {
	tests   string
	skip    string
	named   string
	cpu     time.Duration
	workers int
	only    string
	again   string
	verbose bool
}

// target is a package with the tests that have to notice its faults.
type target struct {
	name  string
	dir   string   // of the package, below the root of the module
	files []string // to be mutated; empty: all
	steps []step
}

// step is a run of the package's tests. Each step looks for the faults that those before it have
// not noticed.
type step struct {
	name  string // heads its score, if there are several
	tests string
	skip  string
	args  []string
}

// unitTests returns the steps of a package whose own tests have to notice its faults.
func unitTests(skip string) []step { return []step{{tests: ".", skip: skip}} }

// targets are the packages that the command can mutate. Tests that take long and whose faults others
// notice are left out.
var targets = []target{
	{name: "memory", dir: "registry/memory", steps: []step{
		{name: "the conformance suite", tests: "TestConformance$", args: []string{"-conformance.seeds=10"}},
		{name: "the package's own tests", tests: ".", skip: "TestConformance|AllocatesNothing"},
	}},
	{name: "backend", dir: "registry/backend", steps: unitTests("")},
	// A start of a server for each fault would take hours. These files are judged by tests without
	// a server; the rest of the two packages is not mutated.
	{
		name: "etcd", dir: "registry/etcd",
		files: []string{"entry.go", "errors.go", "keys.go", "txnrequest.go"},
		steps: []step{{tests: "TestDecode|TestErrors|TestPreconditions|TestRefusalError|TestStoredKeys|TestTranslate|TestWriteRequests"}},
	},
	{
		name: "zookeeper", dir: "registry/zookeeper",
		files: []string{"entry.go", "keys.go", "members.go", "traffic.go", "txnrequest.go", "versioncache.go"},
		steps: []step{{tests: "TestLayout|TestMemberConn|TestMultiRequest|TestRoute|TestVersionCache|TestZnode"}},
	},
	{name: "claiming", dir: "internal/group/claiming", steps: unitTests("")},
	{name: "balance", dir: "internal/group/balance", steps: unitTests("")},
	{name: "batch", dir: "internal/group/batch", steps: unitTests("")},
	{name: "due", dir: "internal/group/due", steps: unitTests("")},
	{name: "election", dir: "internal/group/election", steps: unitTests("")},
	{name: "skew", dir: "internal/group/skew", steps: unitTests("")},
	{name: "planning", dir: "internal/group/planning", steps: unitTests("TestStrategies_Compared|TestDecisions")},
}

func main() {
	var o options
	flag.StringVar(&o.tests, "run", "", "the `tests` to run, as for go test -run; by default those of the target")
	flag.StringVar(&o.skip, "skip", "", "the `tests` not to run, together with -run")
	flag.StringVar(&o.named, "named", "internal/test/mutate/named", "the `directory` of the files that name survivors, or empty")
	flag.DurationVar(&o.cpu, "cpu", 5*time.Second, "processor time of one run of the tests, at least five times that without a fault; a longer run counts as a failure")
	flag.IntVar(&o.workers, "workers", runtime.GOMAXPROCS(0), "the `number` of runs at a time")
	flag.StringVar(&o.only, "only", "", "mutate files whose name contains this `text`")
	flag.StringVar(&o.again, "again", "", "mutate only what survived according to this `file`, the output of an earlier run")
	flag.BoolVar(&o.verbose, "v", false, "print each fault with the test that notices it")
	flag.Parse()
	if err := run(context.Background(), o, flag.Args(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

// run mutates the named targets one after the other, and all if there are no names.
func run(ctx context.Context, o options, names []string, out io.Writer) error {
	chosen := targets
	if len(names) > 0 {
		chosen = nil
	}
	for _, name := range names {
		i := slices.IndexFunc(targets, func(t target) bool { return t.name == name })
		if i < 0 {
			return fmt.Errorf("no target %q", name)
		}
		chosen = append(chosen, targets[i])
	}
	var failed []string
	for _, t := range chosen {
		ok, err := mutateTarget(ctx, o, t, out)
		if err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		if !ok {
			failed = append(failed, t.name)
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("%s: survivors without a name, or names without a survivor", strings.Join(failed, ", "))
	}
	return nil
}

// mutateTarget reports the faults that the target's tests do not notice, and whether they are
// those that the target's file names.
func mutateTarget(ctx context.Context, o options, t target, out io.Writer) (bool, error) {
	if o.tests != "" {
		t.steps = []step{{tests: o.tests, skip: o.skip}}
	}
	named, err := readNames(o.named, t.name)
	if err != nil {
		return false, err
	}
	work, err := os.MkdirTemp("", "rota-mutate-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(work)
	mutants, overlay, err := writeMutants(work, t, o.only)
	if err != nil {
		return false, err
	}
	if o.again != "" {
		if mutants, err = keepSurvivors(mutants, o.again); err != nil {
			return false, err
		}
	}
	began := time.Now()
	p := &testProgram{binary: filepath.Join(work, "tests"), dir: t.dir}
	if err := p.build(ctx, overlay); err != nil {
		return false, err
	}
	for i, x := range t.steps {
		p.cpu = o.cpu
		p.args = append([]string{"-test.run=" + x.tests, "-test.failfast"}, x.args...)
		if x.skip != "" {
			p.args = append(p.args, "-test.skip="+x.skip)
		}
		before := countNoticed(mutants)
		if err := p.noticeAll(ctx, mutants, o.workers, filepath.Join(work, fmt.Sprintf("reached%d", i))); err != nil {
			return false, err
		}
		if len(t.steps) > 1 {
			fmt.Fprintf(out, "%s: %s: %d faults, %d noticed\n", t.name, x.name, len(mutants)-before, countNoticed(mutants)-before)
		}
	}
	if o.verbose {
		printAll(out, mutants)
	}
	return report(out, t.name, mutants, named, time.Since(began)), nil
}

func countNoticed(mutants []*mutant) (noticed int) {
	for _, m := range mutants {
		if m.noticedBy != "" {
			noticed++
		}
	}
	return noticed
}

// printAll prints each fault with the test that notices it.
func printAll(out io.Writer, mutants []*mutant) {
	for _, m := range mutants {
		fmt.Fprintf(out, "%-60s %v\n", m.outcome(), m)
	}
}
