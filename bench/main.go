// Command bench measures rota, and other libraries beside it, on servers that it starts:
//
//	cd bench
//	go run . list
//	go run . run storm-etcd-2000 -runs 1 -time 10s
//	go run . all                  # and writes the tables of docs/performance.md and docs/cost.md
//
// A case checks that the library kept its promises, such as to lose and to double no fire,
// before its times count. Each run of a case has new servers, which sync to disk.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"
)

func main() {
	runAsWorker()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := runCommand(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

const (
	resultsDir = "results"
	plotsDir   = "../docs/performance"
)

const usageText = `Usage:
  go run . list                print the names of the cases
  go run . run NAME... [flags] run cases
  go run . all [flags]         run all cases and write their results, then the page
  go run . page                write the page from the results

Flags:
`

func runCommand(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	runs := flags.Int("runs", 5, "number of `runs` of each case")
	o := options{}
	flags.DurationVar(&o.duration, "time", 10*time.Second, "`duration` of the measurement in each run, in whole seconds")
	flags.DurationVar(&o.patience, "patience", 2*time.Minute, "`duration` within which a fleet must start")
	flags.DurationVar(&o.outage, "outage", time.Minute, "`duration` of the store's outage in the cases catchup-*")
	flags.StringVar(&o.cpuProfile, "cpuprofile", "", "write CPU profiles of the worker processes to this `directory`")
	flags.StringVar(&o.logs, "logs", "", "write logs of the worker processes to this `directory`")
	out := flags.String("out", "", "write results to this `directory`; all: results unless set")
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usageText)
		flags.PrintDefaults()
	}
	names, err := parseMixed(flags, args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	if len(names) == 0 {
		flags.Usage()
		return errors.New("no command")
	}
	for _, dir := range []string{o.cpuProfile, o.logs} {
		if dir == "" {
			continue
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	switch names[0] {
	case "list":
		for _, c := range cases {
			fmt.Printf("%-28s %s\n", c.name, c.about)
		}
		return nil
	case "run":
		return runCases(ctx, names[1:], *runs, o, *out)
	case "all":
		if *out == "" {
			*out = resultsDir
		}
		return errors.Join(runCases(ctx, namesOf(cases), *runs, o, *out), writePages(*out))
	case "page":
		return writePages(resultsDir)
	}
	return fmt.Errorf("unknown command %q", names[0])
}

// parseMixed parses flags that may follow other arguments, and returns those.
func parseMixed(flags *flag.FlagSet, args []string) (others []string, err error) {
	for {
		if err := flags.Parse(args); err != nil {
			return nil, err
		}
		if flags.NArg() == 0 {
			return others, nil
		}
		others = append(others, flags.Arg(0))
		args = flags.Args()[1:]
	}
}

func namesOf(cases []benchCase) (names []string) {
	for _, c := range cases {
		names = append(names, c.name)
	}
	return names
}

// runCases runs cases and prints each result, and stores it if out is not empty. It runs
// the remaining cases after a broken promise or a failure.
func runCases(ctx context.Context, names []string, runs int, o options, out string) error {
	var chosen []benchCase
	for _, name := range names {
		c, err := findCase(name)
		if err != nil {
			return err
		}
		chosen = append(chosen, c)
	}
	var failures []error
	for _, c := range chosen {
		r, err := c.measure(ctx, runs, o)
		if err != nil {
			failures = append(failures, err)
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if len(r.Runs) == 0 {
			continue
		}
		r.print(os.Stdout)
		if out == "" {
			continue
		}
		if err := r.save(out); err != nil {
			return err
		}
	}
	return errors.Join(failures...)
}
