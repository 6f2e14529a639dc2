package main

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/examples/guarded"
	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry/memory"
	"github.com/rota-dev/rota/schedule"
)

// Fleets with equal jobs share the tables of examples/guarded, though the fences of one are far above those of the other.
func TestGuarded_FleetsShareADatabase(t *testing.T) {
	b, err := openBank(t.Context(), filepath.Join(t.TempDir(), "shared.db"))
	require.NoError(t, err)
	defer b.db.Close()
	_, err = b.db.Exec(`DROP TABLE fences; CREATE TABLE fences (shard text PRIMARY KEY, fence bigint NOT NULL); CREATE TABLE done (run text PRIMARY KEY); CREATE TABLE writes (fleet text)`)
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) {
		answerLost := true
		start := func(s *memory.Server, namespace, group string) *executor.Executor {
			name := namespace + "." + group
			e, err := executor.New(s.Client(name), namespace, executor.Options{Group: group, Instance: name, Logger: slog.New(slog.DiscardHandler)})
			require.NoError(t, err)
			once := guarded.Once(b.db, func(ctx context.Context, tx *sql.Tx, _ *executor.Run) error {
				_, err := tx.ExecContext(ctx, `INSERT INTO writes (fleet) VALUES (?)`, name)
				return err
			})
			require.NoError(t, e.Register(executor.Job{Name: "charge", Schedule: schedule.Every(time.Hour), Handler: executor.HandlerFunc(
				func(ctx context.Context, r *executor.Run) error {
					err := once(ctx, r)
					if err == nil && answerLost {
						err = errors.New("the answer is lost")
					}
					return err
				})}))
			require.NoError(t, e.Start(t.Context()))
			return e
		}
		writes := func(fleet string) (n int) {
			require.NoError(t, b.db.QueryRow(`SELECT count(*) FROM writes WHERE fleet = ?`, fleet).Scan(&n))
			return n
		}
		one, other := memory.New(), memory.New() // their fences begin at random numbers
		fleets := map[string]*executor.Executor{
			"shop.blue": start(one, "shop", "blue"), "shop.green": start(one, "shop", "green"), "bank.blue": start(other, "bank", "blue"),
		}
		time.Sleep(time.Hour + time.Minute)
		synctest.Wait()
		fire := time.Now().Truncate(time.Hour)
		answerLost = false
		for name, e := range fleets {
			assert.Equal(t, 1, writes(name), name)
			_, err := e.Operator().Retry(t.Context(), "charge", fire, operator.RetryOptions{})
			require.NoError(t, err)
			time.Sleep(time.Minute)
			synctest.Wait()
			assert.Equal(t, 1, writes(name), "%s: the retry finds the work done", name)
			_, err = e.Operator().Retry(t.Context(), "charge", fire, operator.RetryOptions{Again: true})
			require.NoError(t, err)
			time.Sleep(time.Minute)
			synctest.Wait()
			assert.Equal(t, 2, writes(name), "%s: new work", name)
		}
		for name, e := range fleets {
			st, err := e.Operator().Status(t.Context(), "charge")
			require.NoError(t, err)
			assert.EqualValues(t, 1, st.Counts.Failed, "%s: no run is refused by its fence", name)
			require.NoError(t, e.Shutdown(t.Context()))
		}
	})
}
