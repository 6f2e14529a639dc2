package claimer

import (
	"context"
	"encoding/json"
	"iter"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/batch"
	"github.com/rota-dev/rota/internal/group/claiming"
	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/group/feed"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// startedRuns is a Work that keeps the runs it was asked to start.
type startedRuns struct{ runs []Run }

func (w *startedRuns) Compile(json.RawMessage) (due.Program, error) { return coordtest.Minutely{}, nil }

func (w *startedRuns) Start(_ context.Context, r Run, shards iter.Seq[int], _ Done) {
	for r.Shard = range shards {
		w.runs = append(w.runs, r)
	}
}

func (w *startedRuns) Yield(string, int, error) {}

func TestClaimer_StartsNothingAfterSafeUntil(t *testing.T) {
	over := map[string]*fixedSession{
		"lost":            {state: registry.SessionLost, safe: time.Now().Add(time.Hour)},
		"past safe-until": {state: registry.SessionConnected, safe: time.Now()},
	}
	for name, s := range over {
		t.Run(name, func(t *testing.T) {
			w := &startedRuns{}
			l := New(Config{Session: s, Work: w, Clock: time.Now, Blocked: &BlockedShards{}}, nil)
			l.WritesInFlight = 1
			a := &JobState{Segment: "job", Plan: coordtest.PlanOfOwnShards(t, 1)}
			e := &PendingWrite{Job: a, plan: a.Plan, decision: claiming.Decision{Starts: coordtest.Runs(shardset.Of(0), coordtest.Fire(1, 1))}}
			err := l.ApplyResult(t.Context(), WriteResult{Load: batch.Load[*PendingWrite]{Parts: []*PendingWrite{e}}, Rev: registry.Rev{Seq: 1}})
			assert.ErrorIs(t, err, registry.ErrSessionLost)
			assert.Empty(t, w.runs)
		})
	}
}

// fixedSession is a session with a fixed state.
type fixedSession struct {
	registry.Session
	state registry.SessionState
	safe  time.Time
}

func (s *fixedSession) State() (registry.SessionState, time.Time) { return s.state, s.safe }

func (s *fixedSession) ID() registry.SessionID { return "session" }

// flickeringSession is a session whose state a test sets.
type flickeringSession struct {
	registry.Session
	mu      sync.Mutex
	state   registry.SessionState
	changed chan struct{}
	pause   chan struct{} // if not nil, Changed returns when it is closed
}

func (s *flickeringSession) State() (registry.SessionState, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state, time.Now().Add(time.Hour)
}

func (s *flickeringSession) Changed() <-chan struct{} {
	s.mu.Lock()
	changed, pause := s.changed, s.pause
	s.mu.Unlock()
	if pause != nil {
		<-pause
	}
	return changed
}

func (s *flickeringSession) setState(state registry.SessionState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = state
	close(s.changed)
	s.changed = make(chan struct{})
}

func TestClaimer_ClaimsAfterSuspension(t *testing.T) {
	for range 20 { // select chooses one of two ready channels at random
		synctest.Test(t, func(t *testing.T) {
			reg := memory.New().Client("a")
			session, err := reg.OpenSession(t.Context(), registry.SessionOptions{TTL: time.Hour})
			require.NoError(t, err)
			s := &flickeringSession{Session: session, state: registry.SessionSuspended, changed: make(chan struct{})}
			keys, err := record.NewKeys("test", "default")
			require.NoError(t, err)
			plan := coordtest.PlanOfOwnShards(t, 1)
			plan.Epochs = []record.Epoch{coordtest.Epoch(t, 1, record.InstantOf(time.Now()), 1)}
			rev, err := reg.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create(keys.Plan("job"), nil)}})
			require.NoError(t, err)
			plans := feed.New(keys.Plans(), slog.New(slog.DiscardHandler), func(registry.Entry) (*record.Plan, error) { return plan, nil })
			plans.ApplyBatch(registry.Batch{Kind: registry.Snapshot})
			plans.RecordWrite("job", rev, plan)

			w := &startedRuns{}
			l := New(Config{
				Clock: time.Now, Keys: keys, Reg: reg, Session: s, Me: "me", Work: w, Log: slog.New(slog.DiscardHandler), Blocked: &BlockedShards{},
			}, plans)
			ctx, cancel := context.WithCancel(t.Context())
			var all sync.WaitGroup
			all.Go(func() { assert.ErrorIs(t, l.Run(ctx), context.Canceled) })
			time.Sleep(90 * time.Second)
			require.Empty(t, w.runs, "a fire is due while the session is suspended")

			pause := make(chan struct{})
			s.mu.Lock()
			s.pause = pause
			s.mu.Unlock()
			l.wake()
			synctest.Wait()
			s.setState(registry.SessionConnected)
			l.wake()
			close(pause)
			synctest.Wait()
			assert.Len(t, w.runs, 1)
			cancel()
			all.Wait()
			require.NoError(t, session.Close(t.Context()))
		})
	}
}
