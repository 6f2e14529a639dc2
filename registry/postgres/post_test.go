package postgres_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/postgres"
	"github.com/rota-dev/rota/schedule"
)

// postedValues awaits n posted records, and returns their values in the order of their names.
func postedValues(t *testing.T, c registry.Registry, n int) (values []string) {
	t.Helper()
	require.Eventually(t, func() bool {
		l, err := c.List(t.Context(), "posted", registry.ReadOptions{})
		require.NoError(t, err)
		values = values[:0]
		for _, e := range l.Entries {
			values = append(values, string(e.Value))
		}
		return len(values) >= n
	}, time.Minute, 10*time.Millisecond, "%v", &values)
	return values
}

func TestPost(t *testing.T) {
	s := sharedServer(t)
	for driver, begin := range drivers {
		for _, level := range []string{"read committed", "repeatable read", "serializable"} {
			t.Run(driver+" "+level, func(t *testing.T) {
				c := open(t, newRegistry(t, s))
				begin := func() userTx { return begin(t, s, database, "rota", level) }
				post := func(tx userTx, value string) {
					require.NoError(t, c.Post(t.Context(), tx.tx, "posted", []byte(value)))
				}
				undone := begin()
				post(undone, "undone")
				undone.rollback()
				first, second := begin(), begin()
				post(first, "a1")
				post(second, "b1")
				post(second, "b2")
				post(first, "a2")
				require.NoError(t, second.commit())
				require.NoError(t, first.commit())
				third := begin()
				post(third, "c")
				require.NoError(t, third.commit())
				require.Equal(t, []string{"b1", "b2", "a1", "a2", "c"}, postedValues(t, c, 5), "in the order of the commits, each once")
			})
		}
	}
}

// A stopped process that has posted delays neither the registry nor other transactions that post.
func TestPost_HoldsNothing(t *testing.T) {
	s := sharedServer(t)
	c := open(t, newRegistry(t, s))
	stopped := begin(t, s, "")
	require.NoError(t, c.Post(t.Context(), stopped.tx, "posted", []byte("stopped")))
	for i := range 3 {
		tx := begin(t, s, "")
		require.NoError(t, c.Post(t.Context(), tx.tx, "posted", fmt.Append(nil, i)))
		require.NoError(t, tx.commit())
		require.Len(t, postedValues(t, c, i+1), i+1)
		_, err := c.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create(registry.Key(fmt.Sprint("k", i)), nil)}})
		require.NoError(t, err)
	}
	require.NoError(t, stopped.commit())
	require.Equal(t, []string{"0", "1", "2", "stopped"}, postedValues(t, c, 4))
}

func TestPost_WakesWatchers(t *testing.T) {
	s := sharedServer(t)
	c := open(t, newRegistry(t, s))
	w, err := c.Watch(t.Context(), "posted", registry.WatchOptions{})
	require.NoError(t, err)
	defer w.Close()
	_, err = w.Next(t.Context())
	require.NoError(t, err)
	db := openSQL(t, s, database, "rota")
	for i := range 500 { // more than one round creates
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, c.Post(t.Context(), tx, "posted", fmt.Append(nil, i)))
		require.NoError(t, tx.Commit())
	}
	var got []string
	for len(got) < 500 {
		b, err := w.Next(t.Context())
		require.NoError(t, err)
		for _, e := range b.Puts {
			got = append(got, string(e.Value))
		}
	}
	for i, v := range got {
		require.Equal(t, fmt.Sprint(i), v)
	}
}

func TestPost_Refuses(t *testing.T) {
	s := sharedServer(t)
	o := newRegistry(t, s)
	c := open(t, o)
	post := func(c registry.Registry, tx any, value []byte) error {
		return registry.Post(t.Context(), c, tx, "posted", value)
	}
	assert.ErrorContains(t, post(c, "no transaction", nil), "string is neither a pgx.Tx nor a *sql.Tx")
	tx := begin(t, s, "")
	defer tx.rollback()
	assert.ErrorIs(t, post(c, tx.tx, make([]byte, c.Limits().ValueBytes+1)), registry.ErrTooLarge)
	assert.ErrorIs(t, registry.Post(t.Context(), c, tx.tx, "//", nil), registry.ErrInvalidKey)
	o.ReadOnly = true
	assert.ErrorIs(t, post(open(t, o), tx.tx, nil), registry.ErrReadOnly)
	closed := registry.Prefix(c, "below")
	require.NoError(t, closed.Close(t.Context()))
	assert.ErrorIs(t, post(closed, tx.tx, nil), registry.ErrClosed)
}

func TestPost_BelowAPrefix(t *testing.T) {
	s := sharedServer(t)
	c := registry.Prefix(open(t, newRegistry(t, s)), "fleets/a")
	require.True(t, registry.CanPost(c))
	tx := begin(t, s, "")
	require.NoError(t, registry.Post(t.Context(), c, tx.tx, "posted", []byte("x")))
	require.NoError(t, tx.commit())
	require.Equal(t, []string{"x"}, postedValues(t, c, 1))
}

func TestPost_NeedsNoMoreThanTheDocumentedRights(t *testing.T) {
	s := sharedServer(t)
	o := newRegistry(t, s)
	c := open(t, o)
	requireGrants(t, s, o, "post", 4, func(tx any, i int) error { return c.Post(t.Context(), tx, "posted", fmt.Append(nil, i)) })
	require.Equal(t, []string{"-1"}, postedValues(t, c, 1))
}

// TestPost_UnderFaults kills and restarts the server while programs post. The rows of a table that they write in the same transactions say which
// records there are to be.
func TestPost_UnderFaults(t *testing.T) {
	s := startServer(t)
	o := newRegistry(t, s)
	c := open(t, o)
	db := openSQL(t, s, database, "rota")
	_, err := db.ExecContext(t.Context(), "CREATE TABLE wrote (place bigint GENERATED ALWAYS AS IDENTITY, value text)")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
	defer cancel()
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				_ = postOnce(ctx, db, c, fmt.Sprintf("%d-%d", w, i)) // a lost answer may be that of a commit
			}
		})
	}
	for i := range 4 {
		time.Sleep(time.Second)
		signal := []os.Signal{syscall.SIGQUIT, syscall.SIGINT}[i%2]
		require.NoError(t, s.Shutdown(signal.(syscall.Signal)))
		require.NoError(t, s.Continue(t.Context()))
	}
	writers.Wait()
	want := exec(t, s, o, "SELECT value FROM wrote ORDER BY value")
	require.NotEmpty(t, want)
	values := postedValues(t, c, len(want))
	seen := map[string]int{}
	for _, v := range values {
		seen[v]++
	}
	for _, row := range want {
		assert.Equal(t, 1, seen[row[0]], row[0])
	}
	assert.Len(t, values, len(want))
	t.Logf("%d transactions", len(want))
}

func postOnce(ctx context.Context, db *sql.DB, c *postgres.Client, value string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, "INSERT INTO wrote (value) VALUES ($1)", value); err != nil {
		return err
	}
	if err := c.Post(ctx, tx, "posted", []byte(value)); err != nil {
		return err
	}
	return tx.Commit()
}

// TestPost_TriggersRuns has programs trigger a job by transactions while its leader is replaced.
func TestPost_TriggersRuns(t *testing.T) {
	s := sharedServer(t)
	o := newRegistry(t, s)
	var mu sync.Mutex
	ran := map[string]int{} // by parameter
	newExecutor := func(name string) *executor.Executor {
		ex, err := executor.New(open(t, o), "shop", executor.Options{Instance: name, SessionTTL: 3 * time.Second, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		require.NoError(t, ex.Register(executor.Job{Name: "ship", Schedule: schedule.OnTrigger(), Handler: executor.HandlerFunc(func(_ context.Context, r *executor.Run) error {
			mu.Lock()
			defer mu.Unlock()
			ran[r.Param]++
			return nil
		})}))
		require.NoError(t, ex.Start(t.Context()))
		t.Cleanup(func() { _ = ex.Shutdown(context.WithoutCancel(t.Context())) })
		return ex
	}
	first, second := newExecutor("a"), newExecutor("b")
	op := second.Operator()
	db := openSQL(t, s, database, "rota")
	var slowest time.Duration
	for i := range 40 {
		if i == 20 {
			require.NoError(t, first.Shutdown(t.Context()))
		}
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, op.TriggerIn(t.Context(), tx, "ship", fmt.Sprint(i), nil))
		if i%3 == 0 {
			require.NoError(t, tx.Rollback())
			continue
		}
		require.NoError(t, tx.Commit())
		begin := time.Now()
		if i == 1 || i == 22 {
			require.Eventually(t, func() bool {
				mu.Lock()
				defer mu.Unlock()
				return ran[fmt.Sprint(i)] > 0
			}, time.Minute, time.Millisecond)
			slowest = max(slowest, time.Since(begin))
		}
	}
	require.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(ran) == 26
	}, time.Minute, 10*time.Millisecond)
	time.Sleep(time.Second) // for runs that should not be
	mu.Lock()
	defer mu.Unlock()
	for param, n := range ran {
		assert.Equal(t, 1, n, param)
	}
	assert.NotContains(t, ran, "0", "rolled back")
	t.Logf("a run began at most %v after its commit", slowest)
}
