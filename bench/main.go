// Command bench compares the library with its alternatives on etcd and ZooKeeper servers
// that it starts:
//
//	cd bench && go run .
//
// The two sides of a comparison alternate on the same server in the same process, so that
// other load affects both. The output is the table of docs/performance.md.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	runs := flag.Int("runs", 5, "number of `runs` of each side of a comparison")
	per := flag.Duration("time", 3*time.Second, "`duration` of a run")
	only := flag.String("only", "", "run only comparisons whose names contain this `text`")
	flag.Parse()

	s, err := startServers(ctx)
	if err != nil {
		return err
	}
	defer s.stop()
	var rows []row
	for _, c := range comparisons {
		if !strings.Contains(c.name, *only) {
			continue
		}
		fmt.Fprintf(os.Stderr, "%s\n", c.name)
		r, err := c.run(ctx, s, *runs, effort{time: *per})
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		rows = append(rows, r)
	}
	fmt.Print(tableOf(rows))
	return nil
}
