package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/rota-dev/rota/conformance/freeport"
	"github.com/rota-dev/rota/internal/test/testserver/provision"
)

// startPostgres starts a PostgreSQL that syncs each commit to disk, with River's tables.
func startPostgres(ctx context.Context) (*store, error) {
	bin, env, err := findPostgres(ctx)
	if err != nil {
		return nil, fmt.Errorf("provide PostgreSQL: %w", err)
	}
	return startServer(ctx, func(dir string, port *freeport.Port) (*exec.Cmd, error) {
		data := filepath.Join(dir, "data")
		initialize := postgresCommand(env, filepath.Join(bin, "initdb"), "-D", data, "-U", "bench", "-A", "trust", "-E", "UTF8", "--locale", "C")
		if out, err := initialize.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("initdb: %w\n%s", err, out)
		}
		return postgresCommand(env, filepath.Join(bin, "postgres"), "-D", data, "-p", fmt.Sprint(port.Number), "-k", dir,
			"-c", "listen_addresses=127.0.0.1", "-c", "fsync=on", "-c", "synchronous_commit=on"), nil
	}, openPostgres)
}

// postgresCommand returns a command that does not run as root, which PostgreSQL refuses.
func postgresCommand(env, program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), env)
	if os.Getuid() == 0 {
		cmd.SysProcAttr = asOtherUser()
	}
	return cmd
}

// findPostgres returns the directory of the programs and a setting of their environment.
func findPostgres(ctx context.Context) (bin, env string, err error) {
	const pattern = "usr/lib/postgresql/*/bin"
	if found, _ := filepath.Glob("/" + pattern); len(found) > 0 {
		return found[len(found)-1], "ROTA_BENCH=1", nil
	}
	root, err := provision.Packages(ctx, os.Stderr, "postgresql", "postgresql")
	if err != nil {
		return "", "", err
	}
	found, _ := filepath.Glob(filepath.Join(root, pattern))
	if len(found) == 0 {
		return "", "", fmt.Errorf("nothing at %s", filepath.Join(root, pattern))
	}
	return found[len(found)-1], libraryPath(root), nil
}

// openPostgres returns a counter of transactions once the server answers, and creates
// River's tables.
func openPostgres(ctx context.Context, addr string) (url string, count func(context.Context) (traffic, error), closeClient func(), err error) {
	url = fmt.Sprintf("postgres://bench@%s/postgres?sslmode=disable", addr)
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
	return url, count, pool.Close, err
}
