package postgres_test

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/registry/postgres"
	"github.com/rota-dev/rota/registry/postgres/internal/pgserver"
	"github.com/rota-dev/rota/schedule"
)

// load is what a fleet cost its server, as counted by the server.
type load struct {
	transactions, inserted, dead, walBytes int
}

func (l load) minus(o load) load {
	return load{l.transactions - o.transactions, l.inserted - o.inserted, l.dead - o.dead, l.walBytes - o.walBytes}
}

// instances is the number of processes of each fleet, with a handle each.
const instances = 3

// runFleet returns the cost of the whole life of a fleet, with a database of its own: it ends when the job has run ended times, or after a time.
func runFleet(t *testing.T, s *pgserver.Server, name string, job executor.Job, ended int64, lasts time.Duration) load {
	ctx := t.Context()
	o := optionsOf(s)
	o.Database = name
	require.NoError(t, s.Exec(ctx, database, "CREATE DATABASE "+name))
	require.NoError(t, postgres.Migrate(ctx, o))
	require.NoError(t, s.Exec(ctx, name, "CHECKPOINT")) // the next one is minutes away

	var runs atomic.Int64
	done := make(chan struct{})
	job.Name, job.Handler = "job", executor.HandlerFunc(func(context.Context, *executor.Run) error {
		if runs.Add(1) == ended {
			close(done)
		}
		return nil
	})
	position := func() int {
		rows, err := s.Query(ctx, name, "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint")
		require.NoError(t, err)
		n, err := strconv.Atoi(rows[0][0])
		require.NoError(t, err)
		return n
	}
	before := position()
	var all []*executor.Executor
	var handles []*postgres.Client
	for i := range instances {
		c := open(t, o)
		ex, err := executor.New(c, "shop", executor.Options{Instance: fmt.Sprint("i", i), Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		require.NoError(t, ex.Register(job))
		require.NoError(t, ex.Start(ctx))
		all, handles = append(all, ex), append(handles, c)
	}
	if ended == 0 {
		limited, cancel := context.WithTimeout(ctx, lasts)
		<-limited.Done()
		cancel()
	} else {
		<-done
	}
	for i := range all {
		require.NoError(t, all[i].Shutdown(ctx))
		require.NoError(t, handles[i].Close(ctx))
	}
	out := load{walBytes: position() - before}
	// A server process adds what it counted when it ends.
	require.Eventually(t, func() bool {
		rows, err := s.Query(ctx, database, "SELECT count(*) FROM pg_stat_activity WHERE datname = '"+name+"'")
		return err == nil && rows[0][0] == "0"
	}, time.Minute, 50*time.Millisecond)
	rows, err := s.Query(ctx, database, "SELECT xact_commit + xact_rollback, tup_inserted, tup_updated + tup_deleted FROM pg_stat_database WHERE datname = '"+name+"'")
	require.NoError(t, err)
	for i, n := range []*int{&out.transactions, &out.inserted, &out.dead} {
		*n, err = strconv.Atoi(rows[0][i])
		require.NoError(t, err)
	}
	return out
}

// TestBudget holds the budgets of docs/performance.md. Each is the difference between two fleets of which one lasts longer.
func TestBudget(t *testing.T) {
	s := startServer(t, "autovacuum=off")
	const longer = 10
	idle := func(name string, lasts time.Duration) load {
		return runFleet(t, s, name, executor.Job{Schedule: schedule.Every(time.Hour), Shards: 100}, 0, lasts)
	}
	fires := func(name string, n int64) load {
		return runFleet(t, s, name, executor.Job{Schedule: schedule.Every(time.Second), Shards: 100}, 100*n, 0)
	}
	second := idle("idle_long", (4+longer)*time.Second).minus(idle("idle_short", 4*time.Second))
	fire := fires("fires_long", 4+longer).minus(fires("fires_short", 4))
	fire = fire.minus(second)
	t.Logf("%d s of %d idle instances: %+v; %d fires of 100 shards on them: %+v", longer, instances, second, longer, fire)
	t.Run("an idle instance makes at most 5 transactions and writes 512 bytes of log a second", func(t *testing.T) {
		assert.LessOrEqual(t, second.transactions, longer*instances*5)
		assert.LessOrEqual(t, second.walBytes, longer*instances*512)
	})
	t.Run("a fire costs an instance at most 8 transactions, 3 rows, 3 dead rows and 3 KiB of log, however many shards it has", func(t *testing.T) {
		assert.LessOrEqual(t, fire.transactions, longer*instances*8)
		assert.LessOrEqual(t, fire.inserted, longer*instances*3)
		assert.LessOrEqual(t, fire.dead, longer*instances*3)
		assert.LessOrEqual(t, fire.walBytes, longer*instances*3<<10)
	})
}
