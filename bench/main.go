// Command bench measures the library beside what one would use otherwise, on etcd and
// ZooKeeper that it starts itself:
//
//	cd bench && go run .
//
// The two sides of a comparison take turns, on the same server and in the same process, so
// that what else the machine does strikes both. What it prints is the table of
// docs/performance.md.
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
	runs := flag.Int("runs", 5, "how often each side of a comparison is run")
	per := flag.Duration("time", 3*time.Second, "how long a run takes")
	only := flag.String("only", "", "run comparisons only whose names contain this")
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
