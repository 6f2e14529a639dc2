package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"rota/release/internal/modules"
	"rota/release/internal/verify"
)

// verifyRelease installs a release from a proxy as its users do.
func verifyRelease(args []string) error {
	if len(args) != 5 {
		return errUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	module, err := modules.Path(args[0])
	if err != nil {
		return err
	}
	return verify.Run(ctx, verify.Release{
		Tree: args[0], Module: module, Version: args[1], Proxy: args[2], Etcd: args[3], Work: args[4], Out: os.Stdout,
	})
}
