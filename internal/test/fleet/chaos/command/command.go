// Package command is the command chaos, for programs with different stores. It injects faults into fleets of processes on real servers,
// which it starts, and judges the behaviour of the fleets.
//
// It prints a line for each round, and at the end the numbers of claims and violations and the measured times. It
// fails if a promise was broken or a time exceeds the limit of a flag.
package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rota-dev/rota/internal/registryurl"
	"github.com/rota-dev/rota/internal/test/fleet"
)

// Main executes the command line of this process, and does not return. schemes are those of the stores' registries that package
// registryurl does not know.
func Main(stores []fleet.Store, schemes registryurl.Schemes) {
	fleet.Main(schemes)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	switch err := run(ctx, stores, os.Stdout, os.Stderr, os.Args[1:]); {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "chaos:", err)
		stop()
		os.Exit(1)
	}
	os.Exit(0)
}

// options are the options of the command line.
type options struct {
	stores  []fleet.Store
	members []int
	base    string // a commit
	fleet.Trial
	limits limits
}

// limits are the limits of measured times; 0: no limit.
type limits struct {
	rerun, leave, join time.Duration
}

func run(ctx context.Context, stores []fleet.Store, out, usage io.Writer, args []string) error {
	o, err := parse(stores, usage, args)
	if err != nil {
		return err
	}
	dir := o.Dir
	if dir == "" {
		if dir, err = os.MkdirTemp("", "chaos-"); err != nil {
			return err
		}
	}
	var outcomes []fleet.Outcome
	var errs []error
	for _, store := range o.stores {
		all := o.Trial
		if o.base != "" {
			if all.Base, err = fleet.BuildBase(ctx, o.base, store.Chaos, filepath.Join(dir, "base")); err != nil {
				return err
			}
		}
		for _, members := range o.members {
			if !slices.Contains(store.Members, members) {
				continue
			}
			all.Store, all.Members = store, members
			for _, t := range fleet.Trials(all) {
				t.Dir = filepath.Join(dir, t.String())
				t.Progress = func(line string) { fmt.Fprintln(out, time.Now().Format("15:04:05.000"), line) }
				outcome, err := t.Run(ctx)
				if err != nil {
					err = fmt.Errorf("%s: %w", t, err)
					fmt.Fprintln(out, err)
				}
				outcomes, errs = append(outcomes, outcome), append(errs, err, o.limits.check(&outcome))
				if ctx.Err() != nil {
					break
				}
			}
		}
	}
	fmt.Fprintln(out)
	if err := errors.Join(append(errs, fleet.WriteTable(out, outcomes))...); err != nil {
		return fmt.Errorf("%w\nthe processes' logs are in %s", err, dir)
	}
	if o.Dir == "" {
		return os.RemoveAll(dir)
	}
	return nil
}

// parse reads the command line.
func parse(stores []fleet.Store, usage io.Writer, args []string) (*options, error) {
	var names []string
	for _, k := range fleet.Kinds() {
		names = append(names, k.Name)
	}
	o := &options{}
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.SetOutput(usage)
	var known []string
	for _, s := range stores {
		known = append(known, s.Name)
	}
	store := flags.String("store", "all", strings.Join(known, ", ")+" or all")
	members := flags.Int("members", 0, "how many `servers` the store has: 1, 3, or 0 for both in turn")
	faults := flags.String("faults", strings.Join(names, ","), "kinds of rounds, each equally often, in random order")
	flags.IntVar(&o.Rounds, "rounds", 2*len(names), "rounds on each store")
	flags.Uint64Var(&o.Seed, "seed", uint64(time.Now().UnixNano()), "of random numbers")
	flags.IntVar(&o.Small, "small-jobs", 0, "jobs of one shard beside the others, which all fire each second")
	flags.IntVar(&o.Chains, "chains", 0, "chains of three jobs beside the others, each of which follows the one before")
	flags.IntVar(&o.Pool, "pool", 0, "the size of a pool of three jobs beside the others, and of some of those of --define; 0: there is none")
	flags.IntVar(&o.Defines, "define", 0, "names that two programs define, change and delete as data meanwhile; the end then takes five minutes more, until no tombstone is left")
	flags.StringVar(&o.base, "base", "", "a `commit` of this repository: the fleet begins with processes of its version, and each process that is replaced is of the other one; without it there is no round roll")
	flags.DurationVar(&o.TTL, "ttl", 2*time.Second, "TTL of sessions")
	flags.StringVar(&o.Dir, "dir", "", "where to keep the logs of the processes; without it they are kept only after a failure")
	flags.DurationVar(&o.limits.rerun, "max-rerun-p99", 0, "fail if p99 of the time from a session's end to claims elsewhere exceeds this; 0: no limit")
	flags.DurationVar(&o.limits.leave, "max-leave", 0, "fail if the median of the time from leaving to running elsewhere exceeds this; 0: no limit")
	flags.DurationVar(&o.limits.join, "max-join", 0, "fail if the median of the time from joining to running exceeds this; 0: no limit")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	o.stores = stores
	if i := slices.Index(known, *store); i >= 0 {
		o.stores = stores[i : i+1]
	} else if *store != "all" {
		return nil, fmt.Errorf("--store %s: want %s or all", *store, strings.Join(known, ", "))
	}
	o.members = []int{*members}
	if *members == 0 {
		o.members = []int{1, 3}
	}
	for name := range strings.SplitSeq(*faults, ",") {
		i := slices.Index(names, name)
		if i < 0 {
			return nil, fmt.Errorf("--faults %s: want some of %s", name, strings.Join(names, ", "))
		}
		o.Kinds = append(o.Kinds, fleet.Kinds()[i])
	}
	switch most := slices.Max(o.members); {
	case flags.NArg() > 0:
		return nil, fmt.Errorf("%s: not a flag", flags.Arg(0))
	case o.Rounds < 1 || o.TTL < time.Second || *members < 0 || o.Small < 0 || o.Chains < 0 || o.Pool < 0 || o.Defines < 0:
		return nil, errors.New("--rounds must be at least 1, --ttl at least 1s, --members, --small-jobs, --chains, --pool and --define at least 0")
	case o.base == "" && *faults == "roll":
		return nil, errors.New("--faults roll: needs --base")
	case !slices.ContainsFunc(o.Kinds, func(k fleet.Kind) bool { return k.Members <= most }):
		return nil, fmt.Errorf("--faults %s: the store has too few members", *faults)
	}
	return o, nil
}

// check compares medians and p99 with the limits.
func (l limits) check(o *fleet.Outcome) error {
	var errs []error
	for _, c := range []struct {
		what  string
		times []time.Duration
		q     float64
		limit time.Duration
	}{
		{"p99 from a session's end to claims elsewhere", o.TimesToRerun, 0.99, l.rerun},
		{"the median from leaving to running elsewhere", o.TimesToLeave, 0.5, l.leave},
		{"the median from joining to running", o.TimesToJoin, 0.5, l.join},
	} {
		if took := fleet.Quantile(c.times, c.q); c.limit > 0 && took > c.limit {
			errs = append(errs, fmt.Errorf("%s: %s is %v, above %v", o.Trial, c.what, took.Round(time.Microsecond), c.limit))
		}
	}
	return errors.Join(errs...)
}
