package main

import (
	"context"
	"fmt"
	"log/slog"
	"os/exec"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/rota-dev/rota/conformance/freeport"
	"github.com/rota-dev/rota/internal/test/testserver/dbserver"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/postgres"
)

// startPostgres starts a PostgreSQL that syncs each commit to disk, with the tables of rota and of River.
func startPostgres(ctx context.Context) (*store, error) {
	s, err := startServer(ctx, func(dir string, port *freeport.Port) (*exec.Cmd, error) {
		command, err := dbserver.PreparePostgres(ctx, dir, port, "fsync=on", "synchronous_commit=on")
		if err != nil {
			return nil, fmt.Errorf("provide PostgreSQL: %w", err)
		}
		return command(), nil
	}, openPostgres)
	if err != nil {
		return nil, err
	}
	s.open = func(ctx context.Context) (registry.Registry, error) {
		return openRegistry(ctx, s.url, slog.New(slog.DiscardHandler))
	}
	return s, nil
}

// openPostgres returns a counter of transactions once the server answers, and creates
// the tables.
func openPostgres(ctx context.Context, addr string) (url string, count func(context.Context) (traffic, error), closeClient func(), err error) {
	url = fmt.Sprintf("postgres://%s/postgres?user=rota&sslmode=disable", addr)
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return url, nil, func() {}, err
	}
	count = func(ctx context.Context) (t traffic, err error) {
		err = pool.QueryRow(ctx, "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = 'postgres'").Scan(&t.transactions)
		return t, err
	}
	if err := pool.Ping(ctx); err != nil {
		return url, nil, pool.Close, err
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err == nil {
		_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}
	if err == nil {
		err = migrateRota(ctx, url)
	}
	return url, count, pool.Close, err
}

func migrateRota(ctx context.Context, url string) error {
	o, err := postgres.ParseURL(url)
	if err != nil {
		return err
	}
	return postgres.Migrate(ctx, o)
}
