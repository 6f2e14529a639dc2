// Command testrun implements parts of test.sh in Go:
//
//	testrun provision    provisions the servers and the browser, so that no test waits for it
//	testrun table DIR    prints the results that conformance.Run reported in DIR, and fails
//	                     if a run failed or did not finish
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/rota-dev/rota/internal/test/testserver/provision"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, args []string) error {
	switch {
	case len(args) == 1 && args[0] == "provision":
		return provisionAll(ctx, out)
	case len(args) == 2 && args[0] == "table":
		return printTable(out, args[1])
	}
	return errors.New("usage: testrun provision | testrun table DIR")
}

// provisionAll provisions one after the other, since each step uses all CPUs
// or the network.
func provisionAll(ctx context.Context, out io.Writer) error {
	chromium := func(ctx context.Context, out io.Writer) (string, error) {
		b, err := provision.Chromium(ctx, out)
		return b.Path, err
	}
	for _, get := range []func(context.Context, io.Writer) (string, error){
		provision.Java, provision.ClassPath, provision.Quartz, provision.Etcd, chromium, provision.Axe,
	} {
		if _, err := get(ctx, out); err != nil {
			return err
		}
	}
	return nil
}
