// Package dev has the command "rota dev", which keeps a store running for a developer.
package dev

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rota-dev/rota/cmd/rota/internal/postgres"
	"github.com/rota-dev/rota/cmd/rota/internal/settings"
	"github.com/rota-dev/rota/internal/shell"
	"github.com/rota-dev/rota/internal/test/testserver"
)

// Command returns the command "rota dev".
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Keep a store running for development",
		Long: `Dev starts a server on this host, for rota run and for programs under development, and keeps
it running until Ctrl-C. Its data is in a temporary directory and is deleted at the end; etcd and ZooKeeper do
not sync it to disk. The first start builds etcd, or downloads ZooKeeper, into a cache; PostgreSQL is the
system's, or is downloaded. Etcd is built from a checkout of the rota repository. Elsewhere,
the etcd in PATH is started, or that which ROTA_ETCD names.`,
	}
	cmd.AddCommand(
		storeCommand("etcd", "Etcd keeps a server of etcd running. The first start builds it, in a checkout of the rota repository.\n"+
			"Elsewhere, it starts the etcd in PATH, or that which ROTA_ETCD names.", func(ctx context.Context, log io.Writer) (string, func(), error) {
			return cluster("etcd")(testserver.Etcd(ctx, testserver.EtcdOptions{Log: log}))
		}),
		storeCommand("zookeeper", "Zookeeper keeps a server of ZooKeeper running. The first start downloads it.", func(ctx context.Context, log io.Writer) (string, func(), error) {
			return cluster("zk")(testserver.ZooKeeper(ctx, testserver.ZooKeeperOptions{Log: log}))
		}),
		storeCommand("postgres", "Postgres keeps a server of PostgreSQL running, with a registry in it. The system's is started; without one,\n"+
			"the first start downloads it.",
			func(ctx context.Context, _ io.Writer) (string, func(), error) {
				s, err := postgres.StartDevServer(ctx)
				if err != nil {
					return "", nil, err
				}
				return s.URL(), s.Stop, nil
			}),
	)
	return settings.Limit(cmd)
}

// storeCommand returns the command that keeps a server of one kind running.
func storeCommand(kind, long string, start func(ctx context.Context, log io.Writer) (url string, stop func(), err error)) *cobra.Command {
	return settings.Limit(&cobra.Command{
		Use:   kind,
		Short: "Keep a server of " + kind + " running",
		Long:  long,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			url, stop, err := start(cmd.Context(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			defer stop()
			fmt.Fprint(cmd.OutOrStdout(), describe(kind, url))
			<-cmd.Context().Done()
			return nil
		},
	})
}

// cluster returns the results of a start from those of package testserver.
func cluster(scheme string) func(*testserver.Cluster, error) (url string, stop func(), err error) {
	return func(c *testserver.Cluster, err error) (string, func(), error) {
		if err != nil {
			return "", nil, err
		}
		return scheme + "://" + strings.Join(c.Addrs(), ","), c.Stop, nil
	}
}

// describe returns how to use a server.
func describe(kind, url string) string {
	return fmt.Sprintf(`%s is running at %s

  rota run jobs.yaml --registry %[3]s
  export ROTA_REGISTRY=%[3]s

Ctrl-C stops it and deletes its data.
`, kind, url, shell.Quote(url))
}
