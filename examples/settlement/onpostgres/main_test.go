package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // for dbserver
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/conformance/child"
	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/test/testserver/dbserver"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry/postgres"
)

// The variables make the binary of the tests a process of the fleet, and have it end right after its first commit.
const (
	addressVar = "ONPOSTGRES_TEST_ADDRESS"
	dieVar     = "ONPOSTGRES_TEST_DIE"
)

func TestMain(m *testing.M) {
	address := os.Getenv(addressVar)
	if address == "" {
		m.Run()
		return
	}
	var middleware []executor.Middleware
	if os.Getenv(dieVar) != "" {
		middleware = append(middleware, dieAfterCommit)
	}
	if err := serve(context.Background(), address, middleware...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// dieAfterCommit ends the process when a handler has returned, before its end is on record.
func dieAfterCommit(next executor.Handler) executor.Handler {
	return executor.HandlerFunc(func(ctx context.Context, r *executor.Run) error {
		err := next.Handle(ctx, r)
		if err == nil {
			os.Exit(3)
		}
		return err
	})
}

const patience = 3 * time.Minute

// TestSettle_PaysEachShopOnce has a process that dies between a commit and the record of its end, and another one after it.
func TestSettle_PaysEachShopOnce(t *testing.T) {
	s, err := dbserver.StartPostgres()
	require.NoError(t, err)
	t.Cleanup(s.Remove)
	address := fmt.Sprintf("postgres://%s/postgres?user=rota", s.Addr())
	start := func(env ...string) *child.Process {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(append(os.Environ(), addressVar+"="+address), env...)
		cmd.Stderr = os.Stderr
		p, err := child.Start(cmd)
		require.NoError(t, err)
		t.Cleanup(p.Kill)
		return p
	}
	ctx := t.Context()
	o, err := postgres.ParseURL(address)
	require.NoError(t, err)
	require.NoError(t, postgres.Migrate(ctx, o))
	b, err := openBank(ctx, o)
	require.NoError(t, err)
	defer b.pool.Close()
	for shop := range 40 {
		_, err = b.pool.Exec(ctx, `INSERT INTO orders VALUES ($1, $2, $3, 100), ($1, $2, $3, 7)`, dayBefore(time.Now()), regions[shop%len(regions)], shop)
		require.NoError(t, err)
	}
	reg, err := postgres.Open(ctx, o)
	require.NoError(t, err)
	defer reg.Close(context.Background())
	fleet, err := operator.New(reg, namespace, "")
	require.NoError(t, err)

	first := start(dieVar + "=yes")
	require.Eventually(t, func() bool {
		_, err := fleet.Trigger(ctx, jobName, "", nil)
		return err == nil
	}, patience, 50*time.Millisecond)
	select {
	case <-first.Done():
	case <-time.After(patience):
		require.Fail(t, "the first process does not end")
	}
	start()
	require.Eventually(t, func() bool {
		st, err := fleet.Status(ctx, jobName)
		return err == nil && st.Counts.Succeeded == uint64(len(regions))
	}, patience, 50*time.Millisecond)
	var paid, wrong int
	require.NoError(t, b.pool.QueryRow(ctx, `SELECT count(*), count(*) FILTER (WHERE balance <> 107) FROM accounts`).Scan(&paid, &wrong))
	require.Equal(t, 40, paid)
	require.Zero(t, wrong)
}
