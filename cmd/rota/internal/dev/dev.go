// Package dev has the command "rota dev", which keeps a store running for a developer.
package dev

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rota-dev/rota/cmd/rota/internal/settings"
	"github.com/rota-dev/rota/internal/test/testserver"
)

// Command returns the command "rota dev".
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Keep a store running for development",
		Long: `Dev starts a server on this host, for rota run and for programs under development, and keeps
it running until Ctrl-C. Its data is in a temporary directory, is not synced to disk, and is
deleted at the end. The first start builds etcd, or downloads ZooKeeper, into a cache. Etcd is built
from a checkout of the rota repository. Elsewhere, the etcd in PATH is started, or that which ROTA_ETCD names.`,
	}
	cmd.AddCommand(
		storeCommand("etcd", "etcd", "Etcd keeps a server of etcd running. The first start builds it, in a checkout of the rota repository.\n"+
			"Elsewhere, it starts the etcd in PATH, or that which ROTA_ETCD names.", func(ctx context.Context, log io.Writer) (*testserver.Cluster, error) {
			return testserver.Etcd(ctx, testserver.EtcdOptions{Log: log})
		}),
		storeCommand("zookeeper", "zk", "Zookeeper keeps a server of ZooKeeper running. The first start downloads it.", func(ctx context.Context, log io.Writer) (*testserver.Cluster, error) {
			return testserver.ZooKeeper(ctx, testserver.ZooKeeperOptions{Log: log})
		}),
	)
	return settings.Limit(cmd)
}

// storeCommand returns the command that keeps a server of one kind running.
func storeCommand(kind, scheme, long string, start func(context.Context, io.Writer) (*testserver.Cluster, error)) *cobra.Command {
	return settings.Limit(&cobra.Command{
		Use:   kind,
		Short: "Keep a server of " + kind + " running",
		Long:  long,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := start(cmd.Context(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			defer c.Stop()
			fmt.Fprint(cmd.OutOrStdout(), describe(kind, scheme+"://"+strings.Join(c.Addrs(), ",")))
			<-cmd.Context().Done()
			return nil
		},
	})
}

// describe returns how to use a server.
func describe(kind, url string) string {
	return fmt.Sprintf(`%s is running at %s

  rota run jobs.yaml --registry %[2]s
  export ROTA_REGISTRY=%[2]s

Ctrl-C stops it and deletes its data.
`, kind, url)
}
