package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
	"github.com/rota-dev/rota/schedule"
)

func TestRun_PrintsAsOneLine(t *testing.T) {
	claimed := Run{RunInfo: RunInfo{
		ID: "settle/0/2026-03-01T03:00:00Z/2", Job: "settle", Instance: "a", Shards: 4, Attempt: 2, Reason: Failover, Fence: 7,
	}, gate: &gate{ctx: t.Context()}}
	require.Equal(t, "settle/0/2026-03-01T03:00:00Z/2 (failover on a, shard 0 of 4, fence 7)", fmt.Sprint(claimed))
	require.Equal(t, fmt.Sprint(claimed), fmt.Sprint(&claimed))
	require.Equal(t, "[settle/0/2026-03-01T03:00:00Z/2 (failover on a, shard 0 of 4, fence 7)]", fmt.Sprint([]Run{claimed}))
	require.Equal(t, "run by hand (shard 2 of 3)", Run{RunInfo: RunInfo{Shard: 2, Shards: 3}}.String())
}

func TestRun_ShardKeyIsTheBeginningOfKey(t *testing.T) {
	for created, want := range map[string]string{"": "a~2fb/blue/run~20all/3", "x7": "a~2fb/blue/run~20all@x7/3"} {
		r := Run{RunInfo: RunInfo{Namespace: "a/b", Group: "blue", Job: "run all", Created: created, Shard: 3}}
		names := record.NewRunNames(record.JobID{Namespace: r.Namespace, Group: r.Group, Job: r.Job, Created: created}, time.Now(), record.RunOf{}, 1)
		_, key := names.Of(r.Shard)
		assert.Equal(t, want, r.ShardKey())
		assert.True(t, strings.HasPrefix(key, r.ShardKey()+"/"))
	}
}

func TestRun_CommitOfARunWrittenByHand(t *testing.T) {
	rev, err := (&Run{RunInfo: RunInfo{Shard: 2, Shards: 3}}).Commit(t.Context(), registry.Create("a", nil))
	assert.NoError(t, err)
	assert.True(t, rev.IsZero())
}

// A handler may hand its Run to a child process or a log as it is.
func TestRun_CommitIsJudgedByTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		e, err := New(s.Client("a"), "test", Options{Instance: "a", Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		var late error
		require.NoError(t, e.Register(Job{Name: "job", Schedule: schedule.Every(time.Minute), Shards: 1, Handler: HandlerFunc(
			func(ctx context.Context, r *Run) error {
				defer s.HoldWatch("a")()
				s.Delay("a", 0, time.Second) // the process learns later that its session has ended
				s.Expire("a")
				s.Delay("a", 0, 0)
				_, late = r.Commit(ctx, registry.Create("mine", nil))
				return nil
			})}))
		require.NoError(t, e.Start(t.Context()))
		time.Sleep(time.Minute + time.Second)
		require.NoError(t, e.Shutdown(t.Context()))
		require.ErrorIs(t, late, ErrRunOver)
		_, err = s.Client("b").Get(t.Context(), "mine", registry.ReadOptions{})
		require.ErrorIs(t, err, registry.ErrNotFound)
	})
}

// Whoever runs the shard next is to find all that this run has written, and nothing of it
// later.
func TestRun_IsNotOverWhileAWriteIsOnItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		e, err := New(s.Client("a"), "test", Options{Instance: "a", Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		var begun []time.Time
		require.NoError(t, e.Register(Job{Name: "job", Schedule: schedule.Every(time.Second), Handler: HandlerFunc(
			func(ctx context.Context, r *Run) error {
				if begun = append(begun, r.FireTime); len(begun) > 1 {
					_, err := s.Client("b").Get(ctx, "mine", registry.ReadOptions{})
					return err
				}
				s.Delay("a", 2500*time.Millisecond, 0)
				soon, cancel := context.WithTimeout(ctx, time.Millisecond)
				defer cancel()
				_, err := r.Commit(soon, registry.Create("mine", nil))
				assert.ErrorIs(t, err, registry.ErrUnknownOutcome)
				s.Delay("a", 0, 0)
				return nil
			})}))
		require.NoError(t, e.Start(t.Context()))
		time.Sleep(5500 * time.Millisecond)
		require.NoError(t, e.Shutdown(t.Context()))
		require.GreaterOrEqual(t, len(begun), 2)
		require.Greater(t, begun[1].Sub(begun[0]), time.Second, "the fires between were missed")
	})
}

func TestRun_IsPlainData(t *testing.T) {
	r := Run{RunInfo: RunInfo{ID: "settle/2/#7/1", Job: "settle", Shard: 2, Shards: 3, FireTime: date("2026-05-05T03:00:00Z"), Reason: Triggered, Trigger: 7, Fence: 1 << 62}}
	data, err := json.Marshal(&r)
	require.NoError(t, err)
	var back Run
	require.NoError(t, json.Unmarshal(data, &back))
	assert.Equal(t, r, back)
}

func TestReason_Text(t *testing.T) {
	assert.Equal(t, Scheduled, (&Run{}).Reason)
	for r, text := range map[Reason]string{Scheduled: "scheduled", Misfire: "misfire", Failover: "failover", Triggered: "triggered", -1: "unknown"} {
		assert.Equal(t, text, r.String())
	}
}

func TestErrSessionLost_IsThatOfTheRegistry(t *testing.T) {
	assert.ErrorIs(t, ErrSessionLost, registry.ErrSessionLost)
	assert.ErrorIs(t, registry.ErrSessionLost, ErrSessionLost)
	for _, other := range []error{ErrDraining, ErrTimeout, ErrRunOver} {
		assert.False(t, errors.Is(ErrSessionLost, other))
	}
}

func TestGate_Write(t *testing.T) {
	unsent := func(end func()) func(context.Context) error {
		return func(context.Context) error {
			end()
			return fmt.Errorf("txn: %w", registry.ErrNotApplied)
		}
	}
	t.Run("that was not sent because the run had ended fails with ErrRunOver", func(t *testing.T) {
		run, end := context.WithCancel(t.Context())
		g := &gate{ctx: run}
		assert.ErrorIs(t, g.write(t.Context(), "commit", unsent(end)), ErrRunOver)
	})
	t.Run("that was not sent for another reason does not", func(t *testing.T) {
		g := &gate{ctx: t.Context()}
		err := g.write(t.Context(), "commit", unsent(func() {}))
		assert.ErrorIs(t, err, registry.ErrNotApplied)
		assert.NotErrorIs(t, err, ErrRunOver)
	})
}
