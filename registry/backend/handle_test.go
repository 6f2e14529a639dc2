package backend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
)

const bound = 5 * time.Second // of each call

var errCause = errors.New("cause")

// inBubble runs f as a subtest with a handle, and requires that its Close leaves nothing.
func inBubble(t *testing.T, name string, f func(t *testing.T, h *Handle)) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := NewHandle(Config{CallTimeout: bound, Logger: slog.New(slog.DiscardHandler)})
			f(t, h)
			_ = h.Close(t.Context(), nil)
			h.mu.Lock()
			defer h.mu.Unlock()
			require.Empty(t, h.calls, "nothing is kept of calls that have ended")
			require.Empty(t, h.watchers, "nothing is kept of watchers that have ended")
		})
	})
}

func TestHandle_Begin(t *testing.T) {
	for name, f := range map[string]func(t *testing.T, h *Handle){
		"a call ends with its caller's context, and has its cause": func(t *testing.T, h *Handle) {
			ctx, cancel := context.WithCancelCause(t.Context())
			call, end, err := h.Begin(ctx)
			require.NoError(t, err)
			defer end()
			cancel(errCause)
			<-call.Done()
			require.ErrorIs(t, CallError(call, errors.New("remark")), errCause)
		},
		"a call that has ended keeps nothing alive that waits for its context": func(t *testing.T, h *Handle) {
			call, end, err := h.Begin(t.Context())
			require.NoError(t, err)
			end()
			require.ErrorIs(t, call.Err(), context.Canceled)
		},
		"a call ends with its caller's deadline": func(t *testing.T, h *Handle) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			call, end, err := h.Begin(ctx)
			require.NoError(t, err)
			defer end()
			start := time.Now()
			<-call.Done()
			require.Equal(t, time.Second, time.Since(start))
			require.ErrorIs(t, CallError(call, call.Err()), context.DeadlineExceeded)
		},
		"a call without a deadline ends after the bound": func(t *testing.T, h *Handle) {
			call, end, err := h.Begin(t.Context())
			require.NoError(t, err)
			defer end()
			start := time.Now()
			<-call.Done()
			require.Equal(t, bound, time.Since(start))
			err = CallError(call, errors.New("remark"))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.EqualError(t, err, "no answer in 5s (remark)")
			require.Equal(t, err, CallError(call, err), "the cause is added once")
		},
		"the bound of a call begins again with each answer that it notes": func(t *testing.T, h *Handle) {
			start := time.Now()
			err := h.Call(t.Context(), func(ctx context.Context) error {
				for range 3 {
					time.Sleep(bound - time.Second)
					NoteAnswer(ctx)
				}
				<-ctx.Done()
				NoteAnswer(ctx)
				return ctx.Err()
			})
			require.ErrorIs(t, err, registry.ErrUnavailable)
			require.ErrorContains(t, err, "no answer in 5s")
			require.Equal(t, 4*bound-3*time.Second, time.Since(start))
		},
		"the error of a call whose context has not ended is unchanged": func(t *testing.T, h *Handle) {
			call, end, err := h.Begin(t.Context())
			require.NoError(t, err)
			defer end()
			answer := errors.New("answer")
			require.Equal(t, answer, CallError(call, answer))
			require.NoError(t, CallError(call, nil))
		},
		"Close ends pending calls and refuses new ones": func(t *testing.T, h *Handle) {
			call, end, err := h.Begin(t.Context())
			require.NoError(t, err)
			defer end()
			require.NoError(t, h.Close(t.Context(), nil))
			<-call.Done()
			require.ErrorIs(t, CallError(call, call.Err()), registry.ErrClosed)
			require.ErrorIs(t, context.Cause(h.Context()), registry.ErrClosed)
			_, _, err = h.Begin(t.Context())
			require.ErrorIs(t, err, registry.ErrClosed)
			require.EqualError(t, err, "registry closed")
			require.False(t, h.Go(func() { t.Error("it runs") }))
		},
		"a context that has ended begins no call": func(t *testing.T, h *Handle) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_, _, err := h.Begin(ctx)
			require.ErrorIs(t, err, context.Canceled)
		},
	} {
		inBubble(t, name, f)
	}
}

func TestHandle_Close(t *testing.T) {
	for name, f := range map[string]func(t *testing.T, h *Handle){
		"closes sessions, then connections, then waits for goroutines": func(t *testing.T, h *Handle) {
			order := make(chan string, 3)
			s, err := h.NewSession(Grant{ID: "a", TTL: time.Minute, Sent: Now(), Renew: neverAnswer, End: func(context.Context) error {
				order <- "session"
				return nil
			}})
			require.NoError(t, err)
			require.True(t, h.Go(func() {
				<-h.Context().Done()
				time.Sleep(time.Second)
				order <- "goroutine"
			}))
			require.NoError(t, h.Close(t.Context(), func(context.Context) { order <- "connection" }))
			for _, want := range []string{"session", "connection", "goroutine"} {
				require.Equal(t, want, <-order)
			}
			require.Equal(t, registry.SessionClosed, state(s))
		},
		"returns when its context ends, with the sessions that it could not close": func(t *testing.T, h *Handle) {
			for _, id := range []registry.SessionID{"a", "b"} {
				_, err := h.NewSession(Grant{ID: id, TTL: time.Minute, Sent: Now(), Renew: neverAnswer, End: neverAnswer})
				require.NoError(t, err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			start := time.Now()
			err := h.Close(ctx, nil)
			require.Equal(t, time.Second, time.Since(start))
			require.ErrorIs(t, err, registry.ErrUnavailable)
			require.ErrorContains(t, err, "close session a")
			require.ErrorContains(t, err, "close session b")
		},
		"waits for another Close": func(t *testing.T, h *Handle) {
			h.Go(func() {
				<-h.Context().Done()
				time.Sleep(time.Second)
			})
			start := time.Now()
			go func() { _ = h.Close(t.Context(), nil) }()
			synctest.Wait()
			require.NoError(t, h.Close(t.Context(), nil))
			require.Equal(t, time.Second, time.Since(start))
		},
		"forgets sessions that have ended at the store, or long ago": func(t *testing.T, h *Handle) {
			open := func(end func(context.Context) error) *Session {
				s, err := h.NewSession(Grant{ID: "a", TTL: time.Second, Sent: Now(), Renew: func(context.Context) error { return nil }, End: end})
				require.NoError(t, err)
				return s
			}
			ended := open(func(context.Context) error { return nil })
			require.NoError(t, ended.Close(t.Context()))
			silent := open(neverAnswer)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			require.Error(t, silent.Close(ctx))
			alive := open(func(context.Context) error { return nil })
			require.ElementsMatch(t, []*Session{silent, alive}, h.openSessions(), "Close has to try again")
			time.Sleep(10 * time.Second)
			require.ElementsMatch(t, []*Session{alive, open(neverAnswer)}, h.openSessions())
			ctx, cancel = context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			require.Error(t, h.Close(ctx, nil))
		},
	} {
		inBubble(t, name, f)
	}
}

func TestHandle_Get(t *testing.T) {
	const key = registry.Key("a")
	stored := registry.Entry{Key: key, Value: []byte("value")}
	for name, f := range map[string]func(t *testing.T, h *Handle){
		"checks the key before it reads": func(t *testing.T, h *Handle) {
			_, err := h.Get(t.Context(), "a//b", registry.ReadOptions{}, func(context.Context) (registry.Entry, error) {
				t.Error("it reads")
				return stored, nil
			})
			require.ErrorIs(t, err, registry.ErrInvalidKey)
		},
		"fills a buffer that has room": func(t *testing.T, h *Handle) {
			read := func(context.Context) (registry.Entry, error) { return stored, nil }
			buf := make([]byte, 0, len(stored.Value))
			e, err := h.Get(t.Context(), key, registry.ReadOptions{Buffer: buf}, read)
			require.NoError(t, err)
			require.Equal(t, stored, e)
			require.Same(t, &buf[:1][0], &e.Value[0])
			e, err = h.Get(t.Context(), key, registry.ReadOptions{Buffer: buf[:0:3]}, read)
			require.NoError(t, err)
			require.Same(t, &stored.Value[0], &e.Value[0])
		},
		"names the key, and keeps the class of an error": func(t *testing.T, h *Handle) {
			_, err := h.Get(t.Context(), key, registry.ReadOptions{}, func(context.Context) (registry.Entry, error) {
				return registry.Entry{}, registry.ErrNotFound
			})
			require.EqualError(t, err, "get a: not found")
		},
		"is unavailable after any other error": func(t *testing.T, h *Handle) {
			_, err := h.Get(t.Context(), key, registry.ReadOptions{}, func(context.Context) (registry.Entry, error) {
				return registry.Entry{}, errCause
			})
			require.ErrorIs(t, err, registry.ErrUnavailable)
			require.ErrorIs(t, err, errCause)
		},
		"has the cause if its context has ended": func(t *testing.T, h *Handle) {
			_, err := h.Get(t.Context(), key, registry.ReadOptions{}, func(ctx context.Context) (registry.Entry, error) {
				<-ctx.Done()
				return registry.Entry{}, errors.New("connection closed")
			})
			require.EqualError(t, err, "get a: registry unavailable: no answer in 5s (connection closed)")
		},
	} {
		inBubble(t, name, f)
	}
}

func TestHandle_List(t *testing.T) {
	inBubble(t, "checks the directory, and names it", func(t *testing.T, h *Handle) {
		_, err := h.List(t.Context(), "~a", func(context.Context) (registry.Listing, error) {
			t.Error("it lists")
			return registry.Listing{}, nil
		})
		require.ErrorIs(t, err, registry.ErrInvalidKey)
		_, err = h.List(t.Context(), "a", func(context.Context) (registry.Listing, error) { return registry.Listing{}, errCause })
		require.EqualError(t, err, `list "a": registry unavailable: cause`)
	})
	inBubble(t, "returns the listing", func(t *testing.T, h *Handle) {
		want := registry.Listing{Rev: rev(3), Atomic: true, Entries: []registry.Entry{entry("a/b", 3)}}
		got, err := h.List(t.Context(), "a", func(context.Context) (registry.Listing, error) { return want, nil })
		require.NoError(t, err)
		require.Equal(t, want, got)
	})
	inBubble(t, "does not list once its context has ended", func(t *testing.T, h *Handle) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errCause)
		_, err := h.List(ctx, "a", func(context.Context) (registry.Listing, error) {
			t.Error("it lists")
			return registry.Listing{}, nil
		})
		require.EqualError(t, err, `list "a": registry unavailable: cause`)
	})
}

func TestHandle_Txn(t *testing.T) {
	create := registry.Txn{Then: []registry.Op{registry.Create("a", nil)}}
	never := func(t *testing.T) func(context.Context, registry.Txn) (registry.Rev, error) {
		return func(context.Context, registry.Txn) (registry.Rev, error) {
			t.Error("it commits")
			return registry.Rev{}, nil
		}
	}
	answer := func(err error) func(context.Context, registry.Txn) (registry.Rev, error) {
		return func(context.Context, registry.Txn) (registry.Rev, error) { return registry.Rev{}, err }
	}
	for name, f := range map[string]func(t *testing.T, h *Handle){
		"checks the transaction before it is sent": func(t *testing.T, h *Handle) {
			_, err := h.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create("~a", nil)}}, never(t))
			require.ErrorIs(t, err, registry.ErrInvalidKey)
			_, err = h.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create("a", bytes.Repeat([]byte("x"), 1<<20))}}, never(t))
			require.ErrorIs(t, err, registry.ErrTooLarge)
		},
		"gives it an ID, unless it has one": func(t *testing.T, h *Handle) {
			var ids []registry.TxnID
			collect := func(_ context.Context, t registry.Txn) (registry.Rev, error) {
				ids = append(ids, t.ID)
				return rev(7), nil
			}
			own := create
			own.ID = registry.NewTxnID()
			for _, x := range []registry.Txn{create, create, own} {
				got, err := h.Txn(t.Context(), x, collect)
				require.NoError(t, err)
				require.Equal(t, rev(7), got)
			}
			require.NotZero(t, ids[0])
			require.NotEqual(t, ids[0], ids[1])
			require.Equal(t, own.ID, ids[2])
		},
		"returns a conflict as it is": func(t *testing.T, h *Handle) {
			want := registry.Conflict(create, 0)
			_, err := h.Txn(t.Context(), create, answer(want))
			require.Equal(t, want, err)
		},
		"keeps the class of an error": func(t *testing.T, h *Handle) {
			for _, class := range []error{registry.ErrNotApplied, registry.ErrSessionLost, registry.ErrQuota, registry.ErrPermission} {
				_, err := h.Txn(t.Context(), create, answer(fmt.Errorf("%w: %w", class, errCause)))
				require.ErrorIs(t, err, class)
				require.NotErrorIs(t, err, registry.ErrUnknownOutcome)
			}
		},
		"takes any other error for an unknown outcome": func(t *testing.T, h *Handle) {
			_, err := h.Txn(t.Context(), create, answer(errCause))
			require.ErrorIs(t, err, registry.ErrUnknownOutcome)
			require.ErrorIs(t, err, errCause)
		},
		"does not take the end of its context for a refusal": func(t *testing.T, h *Handle) {
			time.AfterFunc(time.Second, func() { _ = h.Close(t.Context(), nil) })
			_, err := h.Txn(t.Context(), create, func(ctx context.Context, _ registry.Txn) (registry.Rev, error) {
				<-ctx.Done()
				return registry.Rev{}, context.Cause(ctx)
			})
			require.ErrorIs(t, err, registry.ErrUnknownOutcome)
			require.ErrorIs(t, err, registry.ErrClosed)
		},
		"is not applied, and closed, if the handle is closed before it is sent": func(t *testing.T, h *Handle) {
			_, err := h.Txn(t.Context(), create, func(ctx context.Context, _ registry.Txn) (registry.Rev, error) {
				_ = h.Close(ctx, nil)
				return registry.Rev{}, NotApplied(context.Cause(ctx))
			})
			require.ErrorIs(t, err, registry.ErrNotApplied)
			require.ErrorIs(t, err, registry.ErrClosed)
			_, err = h.Txn(t.Context(), create, never(t))
			require.ErrorIs(t, err, registry.ErrClosed)
			require.False(t, registry.Retryable(err))
		},
		"is not applied, with the cause, if the context ends before it is sent": func(t *testing.T, h *Handle) {
			wait := func(ctx context.Context, _ registry.Txn) (registry.Rev, error) {
				<-ctx.Done()
				return registry.Rev{}, NotApplied(ctx.Err())
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(errCause) })
			_, err := h.Txn(ctx, create, wait)
			require.ErrorIs(t, err, registry.ErrNotApplied)
			require.ErrorIs(t, err, errCause)
			time.AfterFunc(time.Second, func() { _ = h.Close(t.Context(), nil) })
			_, err = h.Txn(t.Context(), create, wait)
			require.ErrorIs(t, err, registry.ErrNotApplied)
			require.ErrorIs(t, err, registry.ErrClosed)
		},
		"is not applied if its context has ended before": func(t *testing.T, h *Handle) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_, err := h.Txn(ctx, create, never(t))
			require.ErrorIs(t, err, registry.ErrNotApplied)
			require.ErrorIs(t, err, context.Canceled)
		},
	} {
		inBubble(t, name, f)
	}
}

func TestHandle_OpenSession(t *testing.T) {
	confirm := func(context.Context) error { return nil }
	grant := func(after time.Duration) func(context.Context, time.Duration) (Grant, error) {
		return func(_ context.Context, ttl time.Duration) (Grant, error) {
			time.Sleep(after)
			return Grant{ID: "a", TTL: ttl, Renew: confirm, End: confirm}, nil
		}
	}
	for name, f := range map[string]func(t *testing.T, h *Handle){
		"asks for the default TTL": func(t *testing.T, h *Handle) {
			for _, ask := range []time.Duration{0, -time.Second} {
				s, err := h.OpenSession(t.Context(), registry.SessionOptions{TTL: ask}, grant(0))
				require.NoError(t, err)
				require.Equal(t, registry.DefaultSessionTTL, s.TTL())
			}
		},
		"fails if the store grants none": func(t *testing.T, h *Handle) {
			s, err := h.OpenSession(t.Context(), registry.SessionOptions{}, func(context.Context, time.Duration) (Grant, error) {
				return Grant{}, errCause
			})
			require.EqualError(t, err, "open session: registry unavailable: cause")
			require.Nil(t, s)
		},
		"is safe counted from the request, not from the grant": func(t *testing.T, h *Handle) {
			start := time.Now()
			s, err := h.OpenSession(t.Context(), registry.SessionOptions{TTL: ttl}, grant(4*time.Second))
			require.NoError(t, err)
			require.Equal(t, 9*time.Second, safeUntil(s, start))
		},
		"is safe counted from a repeated request": func(t *testing.T, h *Handle) {
			start := time.Now()
			s, err := h.OpenSession(t.Context(), registry.SessionOptions{TTL: ttl}, func(ctx context.Context, ttl time.Duration) (Grant, error) {
				time.Sleep(time.Second)
				sent := Now()
				g, err := grant(time.Second)(ctx, ttl)
				g.Sent = sent
				return g, err
			})
			require.NoError(t, err)
			require.Equal(t, 10*time.Second, safeUntil(s, start))
		},
		"fails, and ends it, if that takes longer than the TTL": func(t *testing.T, h *Handle) {
			ended := false
			_, err := h.OpenSession(t.Context(), registry.SessionOptions{TTL: time.Second}, func(ctx context.Context, ttl time.Duration) (Grant, error) {
				g, err := grant(2*time.Second)(ctx, ttl)
				g.End = func(context.Context) error { ended = true; return nil }
				return g, err
			})
			require.ErrorIs(t, err, registry.ErrUnavailable)
			synctest.Wait()
			require.True(t, ended)
		},
		"fails if the handle is closed meanwhile": func(t *testing.T, h *Handle) {
			_, err := h.OpenSession(t.Context(), registry.SessionOptions{}, func(ctx context.Context, ttl time.Duration) (Grant, error) {
				_ = h.Close(ctx, nil)
				return grant(0)(ctx, ttl)
			})
			require.ErrorIs(t, err, registry.ErrClosed)
		},
		"reports disconnections to every session": func(t *testing.T, h *Handle) {
			a, err := h.OpenSession(t.Context(), registry.SessionOptions{}, grant(0))
			require.NoError(t, err)
			b, err := h.OpenSession(t.Context(), registry.SessionOptions{}, grant(0))
			require.NoError(t, err)
			h.Disconnected()
			require.Equal(t, registry.SessionSuspended, state(a))
			require.Equal(t, registry.SessionSuspended, state(b))
			h.Reconnected()
			synctest.Wait()
			require.Equal(t, registry.SessionConnected, state(a))
			require.Equal(t, registry.SessionConnected, state(b))
		},
	} {
		inBubble(t, name, f)
	}
}

func TestNewHandle_Defaults(t *testing.T) {
	h := NewHandle(Config{})
	require.Equal(t, registry.PortableLimits, h.Limits())
	require.Equal(t, DefaultCallTimeout, h.config.CallTimeout)
	require.NotNil(t, h.config.Logger)
}

func TestHandle_ReadOnlyRefusesWritesBeforeAnythingIsSent(t *testing.T) {
	h := NewHandle(Config{ReadOnly: true})
	defer h.Close(t.Context(), nil)
	_, err := h.Txn(t.Context(), registry.Txn{If: []registry.Cond{registry.Absent("k")}}, func(context.Context, registry.Txn) (registry.Rev, error) {
		t.Error("sent")
		return registry.Rev{}, nil
	})
	require.ErrorIs(t, err, registry.ErrReadOnly)
	require.NotErrorIs(t, err, registry.ErrUnknownOutcome)
	_, err = h.OpenSession(t.Context(), registry.SessionOptions{}, func(context.Context, time.Duration) (Grant, error) {
		t.Error("sent")
		return Grant{}, nil
	})
	require.ErrorIs(t, err, registry.ErrReadOnly)
	require.False(t, registry.Retryable(err))
	_, err = h.Get(t.Context(), "k", registry.ReadOptions{}, func(context.Context) (registry.Entry, error) { return registry.Entry{}, nil })
	require.NoError(t, err)
}
