// Command rota shows and operates fleets of instances that run sharded, scheduled jobs.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/rota-dev/rota/cmd/rota/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(cli.Run(ctx, os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}
