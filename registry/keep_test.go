package registry_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/test/registrytest"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// reluctant is a registry whose OpenSession returns the errors of refusals first.
type reluctant struct {
	registry.Registry
	refusals []error
}

func (r *reluctant) OpenSession(ctx context.Context, o registry.SessionOptions) (registry.Session, error) {
	if len(r.refusals) > 0 {
		err := r.refusals[0]
		r.refusals = r.refusals[1:]
		return nil, err
	}
	return r.Registry.OpenSession(ctx, o)
}

func isDead(t *testing.T, reg registry.Registry, id registry.SessionID) {
	t.Helper()
	_, err := reg.Txn(context.Background(), registry.Txn{If: []registry.Cond{registry.Dead(id)}})
	require.NoError(t, err)
}

func isAlive(t *testing.T, reg registry.Registry, id registry.SessionID) {
	t.Helper()
	_, err := reg.Txn(context.Background(), registry.Txn{If: []registry.Cond{registry.Alive(id)}})
	require.NoError(t, err)
}

var ttl = registry.SessionOptions{TTL: 10 * time.Second}

func TestKeepSession_ReturnsWhatFReturnsAndClosesTheSession(t *testing.T) {
	for _, want := range []error{nil, errEnough} {
		synctest.Test(t, func(t *testing.T) {
			s := memory.New()
			reg := registrytest.Client(t, s, "a")
			var id registry.SessionID
			err := registry.KeepSession(t.Context(), reg, ttl, func(ctx context.Context, x registry.Session) error {
				id = x.ID()
				assert.Equal(t, ttl.TTL, x.TTL())
				registrytest.Commit(t, reg, registry.CreateOwned("~k", nil, id))
				time.Sleep(time.Hour)
				isAlive(t, reg, id)
				assert.NoError(t, ctx.Err())
				return want
			})
			require.Equal(t, want, err)
			isDead(t, reg, id)
			isAbsent(t, reg, "~k")
			require.Zero(t, s.Counts("a").Sessions)
		})
	}
}

func TestKeepSession_OpensAnotherSessionAfterALoss(t *testing.T) {
	for name, lose := range map[string]func(s *memory.Server) (undo func()){
		"by the store":     func(s *memory.Server) func() { s.Expire("a"); return func() {} },
		"by a partition":   func(s *memory.Server) func() { return s.Partition("a") },
		"by its own clock": func(s *memory.Server) func() { return s.Starve("a") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := memory.New()
				reg := registrytest.Client(t, s, "a")
				var seen []registry.SessionID
				inside := 0
				err := registry.KeepSession(t.Context(), reg, ttl, func(ctx context.Context, x registry.Session) error {
					inside++
					defer func() { inside-- }()
					assert.Equal(t, 1, inside, "f is called again once it has returned")
					assert.NotContains(t, seen, x.ID(), "a lost session stays ended")
					for _, id := range seen {
						isDead(t, reg, id)
					}
					isAlive(t, reg, x.ID())
					seen = append(seen, x.ID())
					if len(seen) == 5 {
						return errEnough
					}
					undo := lose(s)
					<-ctx.Done()
					assert.ErrorIs(t, context.Cause(ctx), registry.ErrSessionLost)
					time.Sleep(time.Minute) // clean up
					undo()
					if len(seen)%2 == 0 {
						return nil
					}
					return errors.New("dropped")
				})
				require.Equal(t, errEnough, err)
				require.Len(t, seen, 5)
			})
		})
	}
}

func TestKeepSession_ClosesALostSessionThatTheStoreStillKeeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		reg := registrytest.Client(t, s, "a")
		start := time.Now()
		calls := 0
		err := registry.KeepSession(t.Context(), reg, ttl, func(ctx context.Context, x registry.Session) error {
			// At once, not after the TTL of the first session.
			registrytest.Commit(t, reg, registry.CreateOwned("~name", nil, x.ID()))
			if calls++; calls == 2 {
				return errEnough
			}
			feed := s.Starve("a")
			defer feed()
			<-ctx.Done()
			return nil
		})
		require.Equal(t, errEnough, err)
		require.Less(t, time.Since(start), ttl.TTL)
	})
}

func TestKeepSession_EndsWithItsContext(t *testing.T) {
	t.Run("once f has returned, with its session alive", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := memory.New()
			reg := registrytest.Client(t, s, "a")
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Hour, func() { cancel(errEnough) })
			errDrained := errors.New("drained")
			var id registry.SessionID
			err := registry.KeepSession(ctx, reg, ttl, func(ctx context.Context, x registry.Session) error {
				id = x.ID()
				<-ctx.Done()
				assert.Equal(t, errEnough, context.Cause(ctx))
				time.Sleep(time.Hour)
				isAlive(t, reg, id)
				s.Delay("a", 100*time.Millisecond, 100*time.Millisecond)
				return errDrained
			})
			require.Equal(t, errDrained, err)
			s.Delay("a", 0, 0)
			isDead(t, reg, id)
		})
	})

	t.Run("with the result of f, if the session is lost while f returns", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := memory.New()
			reg := registrytest.Client(t, s, "a")
			ctx, cancel := context.WithCancelCause(t.Context())
			calls := 0
			err := registry.KeepSession(ctx, reg, ttl, func(context.Context, registry.Session) error {
				calls++
				cancel(errEnough)
				s.Expire("a")
				return nil
			})
			require.NoError(t, err)
			require.Equal(t, 1, calls)
		})
	})

	t.Run("within a bounded time while the store is unreachable", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := memory.New()
			reg := registrytest.Client(t, s, "a")
			for _, o := range []registry.SessionOptions{{TTL: time.Second}, {TTL: time.Hour}} {
				var left time.Time
				heal := func() {}
				err := registry.KeepSession(t.Context(), reg, o, func(context.Context, registry.Session) error {
					heal = s.Partition("a")
					left = time.Now()
					return errEnough
				})
				require.Equal(t, errEnough, err)
				require.LessOrEqual(t, time.Since(left), min(o.TTL, 3*time.Second))
				heal()
			}
		})
	})

	t.Run("while there is no session", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := memory.New()
			reg := registrytest.Client(t, s, "a")
			defer s.Partition("a")()
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errEnough)
			defer cancel()
			err := registry.KeepSession(ctx, reg, ttl, func(context.Context, registry.Session) error {
				t.Error("there is no session")
				return nil
			})
			require.Equal(t, errEnough, err)
		})
	})
}

func TestKeepSession_RetriesToOpenASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &reluctant{Registry: client(t), refusals: []error{
			registry.ErrUnavailable, registry.ErrUnknownOutcome, registry.ErrNotApplied, registry.ErrUnavailable,
		}}
		err := registry.KeepSession(t.Context(), r, ttl, func(context.Context, registry.Session) error { return errEnough })
		require.Equal(t, errEnough, err)
		require.Empty(t, r.refusals)
	})
}

func TestKeepSession_ReturnsErrorsThatARetryCannotMend(t *testing.T) {
	for _, refusal := range []error{registry.ErrClosed, registry.ErrPermission, registry.ErrUnauthenticated, registry.ErrQuota} {
		synctest.Test(t, func(t *testing.T) {
			r := &reluctant{Registry: client(t), refusals: []error{refusal}}
			err := registry.KeepSession(t.Context(), r, ttl, func(context.Context, registry.Session) error { return nil })
			require.ErrorIs(t, err, refusal)
		})
	}
}

func TestKeepSession_EndsTheContextOfFWhenTheRegistryIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := client(t)
		time.AfterFunc(time.Minute, func() { _ = reg.Close(context.Background()) })
		err := registry.KeepSession(t.Context(), reg, ttl, func(ctx context.Context, x registry.Session) error {
			<-ctx.Done()
			assert.ErrorIs(t, context.Cause(ctx), registry.ErrClosed)
			assert.ErrorContains(t, context.Cause(ctx), "session "+string(x.ID())+" closed")
			return errEnough
		})
		require.Equal(t, errEnough, err)
	})
}

func TestKeepSession_ReturnsWhenFHasClosedTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		err := registry.KeepSession(t.Context(), client(t), ttl, func(ctx context.Context, x registry.Session) error {
			assert.NoError(t, x.Close(ctx))
			return errEnough
		})
		require.Equal(t, errEnough, err)
	})
}

func TestKeepSession_ClosesTheSessionWhenFPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		reg := registrytest.Client(t, s, "a")
		require.PanicsWithValue(t, "f", func() {
			_ = registry.KeepSession(t.Context(), reg, ttl, func(context.Context, registry.Session) error { panic("f") })
		})
		require.Zero(t, s.Counts("a").Sessions)
	})
}

func TestKeepSession_PausesBetweenSessionsThatAreLostAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errEnough)
		defer cancel()
		calls := 0
		err := registry.KeepSession(ctx, registrytest.Client(t, s, "a"), ttl, func(_ context.Context, x registry.Session) error {
			calls++
			s.ExpireSession(x.ID())
			return nil
		})
		require.Equal(t, errEnough, err)
		require.Less(t, calls, 300)
		require.Greater(t, calls, 100)
	})
}

func TestKeepSession_ShortensThePauseAfterALongSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		calls := 0
		var lost time.Time
		err := registry.KeepSession(t.Context(), registrytest.Client(t, s, "a"), ttl, func(_ context.Context, x registry.Session) error {
			switch calls++; calls {
			case 21:
				time.Sleep(x.TTL())
				lost = time.Now()
			case 22:
				return errEnough
			}
			s.ExpireSession(x.ID())
			return nil
		})
		require.Equal(t, errEnough, err)
		require.Less(t, time.Since(lost), 10*time.Millisecond)
	})
}
