package faults_test

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
	"github.com/rota-dev/rota/registry/faults"
	"github.com/rota-dev/rota/registry/memory"
)

var fresh = registry.ReadOptions{Fresh: true}

// inBubble calls f in a bubble with a wrapped handle, and another handle on the same server.
func inBubble(t *testing.T, f func(t *testing.T, in *faults.Injector, a, b registry.Registry)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server, in := memory.New(), faults.New(1)
		a, b := in.Wrap("a", server.Client("a")), server.Client("b")
		f(t, in, a, b)
		require.NoError(t, a.Close(t.Context()))
	})
}

func create(t *testing.T, r registry.Registry, key registry.Key, value string) registry.Rev {
	t.Helper()
	return registrytest.Commit(t, r, registry.Create(key, []byte(value)))
}

func read(t *testing.T, r registry.Registry, key registry.Key, o registry.ReadOptions) string {
	t.Helper()
	e, err := r.Get(t.Context(), key, o)
	require.NoError(t, err)
	return string(e.Value)
}

func revOf(t *testing.T, r registry.Registry, key registry.Key) registry.Rev {
	t.Helper()
	e, err := r.Get(t.Context(), key, fresh)
	require.NoError(t, err)
	return e.Modified
}

func TestLostTxn_HasAnUnknownOutcome(t *testing.T) {
	for fault, applied := range map[faults.Fault]bool{faults.LoseRequest: false, faults.LoseReply: true} {
		t.Run(fault.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, in *faults.Injector, a, b registry.Registry) {
				c := in.Add(faults.Rule{Fault: fault, Ops: faults.Txn, Times: 1})
				_, err := a.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create("k", nil)}})
				require.ErrorIs(t, err, registry.ErrUnknownOutcome)
				require.ErrorIs(t, err, faults.ErrInjected)
				assert.Equal(t, 1, c.Injected())
				_, err = b.Get(t.Context(), "k", fresh)
				assert.Equal(t, applied, err == nil, "%v", err)
				create(t, a, "other", "")
				assert.Equal(t, 1, c.Injected())
			})
		})
	}
}

func TestLostTxn_IsCheckedBeforeTheFault(t *testing.T) {
	inBubble(t, func(t *testing.T, in *faults.Injector, a, _ registry.Registry) {
		c := in.Add(faults.Rule{Fault: faults.LoseReply})
		_, err := a.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create("no key", nil)}})
		require.ErrorIs(t, err, registry.ErrInvalidKey)
		_, err = a.Get(t.Context(), "no key", fresh)
		require.ErrorIs(t, err, registry.ErrInvalidKey)
		assert.Zero(t, c.Injected())
	})
}

func TestEndedContext_IsCheckedBeforeTheFault(t *testing.T) {
	inBubble(t, func(t *testing.T, in *faults.Injector, a, _ registry.Registry) {
		c := in.Add(faults.Rule{Fault: faults.LoseReply})
		cause := errors.New("the caller has ended")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		_, err := a.Txn(ctx, registry.Txn{Then: []registry.Op{registry.Create("k", nil)}})
		require.ErrorIs(t, err, registry.ErrNotApplied)
		require.ErrorIs(t, err, cause)
		_, err = a.Get(ctx, "k", fresh)
		require.ErrorIs(t, err, registry.ErrUnavailable)
		require.ErrorIs(t, err, cause)
		assert.Zero(t, c.Injected())
	})
}

func TestLostReply_OfOpenSession_LeavesASessionThatExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, in := memory.New(), faults.New(1)
		a := in.Wrap("a", server.Client("a"))
		in.Add(faults.Rule{Fault: faults.LoseReply, Ops: faults.OpenSession, Times: 1})
		_, err := a.OpenSession(t.Context(), registry.SessionOptions{TTL: 10 * time.Second})
		require.ErrorIs(t, err, registry.ErrUnavailable)
		require.ErrorIs(t, err, faults.ErrInjected)
		time.Sleep(9 * time.Second)
		assert.Equal(t, 1, server.Counts("a").Sessions)
		time.Sleep(2 * time.Second)
		assert.Zero(t, server.Counts("a").Sessions)
		require.NoError(t, a.Close(t.Context()))
	})
}

func TestHold_AppliesTheTxnLater(t *testing.T) {
	inBubble(t, func(t *testing.T, in *faults.Injector, a, b registry.Registry) {
		in.Add(faults.Rule{Fault: faults.Hold, Key: "late", For: time.Minute})
		held := in.Add(faults.Rule{Fault: faults.Hold, Key: "held"})
		for _, key := range []registry.Key{"late", "held"} {
			_, err := a.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create(key, nil)}})
			require.ErrorIs(t, err, registry.ErrUnknownOutcome)
			_, err = b.Get(t.Context(), key, fresh)
			require.ErrorIs(t, err, registry.ErrNotFound)
		}
		held.End()
		read(t, b, "held", fresh)
		time.Sleep(59 * time.Second)
		_, err := b.Get(t.Context(), "late", fresh)
		require.ErrorIs(t, err, registry.ErrNotFound)
		time.Sleep(2 * time.Second)
		read(t, b, "late", fresh)
	})
}

func TestDelayedRequest_ArrivesThoughItsCallerGaveUp(t *testing.T) {
	inBubble(t, func(t *testing.T, in *faults.Injector, a, b registry.Registry) {
		in.Add(faults.Rule{Fault: faults.DelayRequest, Ops: faults.Txn, For: 2 * time.Second})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := a.Txn(ctx, registry.Txn{Then: []registry.Op{registry.Create("k", nil)}})
		require.ErrorIs(t, err, registry.ErrUnknownOutcome)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = b.Get(t.Context(), "k", fresh)
		require.ErrorIs(t, err, registry.ErrNotFound)
		time.Sleep(2 * time.Second)
		read(t, b, "k", fresh)
	})
}

func TestStale_NeverGoesBackInTime(t *testing.T) {
	inBubble(t, func(t *testing.T, in *faults.Injector, a, b registry.Registry) {
		y := create(t, b, "y", "1")
		x := create(t, b, "x", "1")
		plain := registry.ReadOptions{}
		c := in.Add(faults.Rule{Fault: faults.Stale})
		assert.Equal(t, "1", read(t, a, "x", plain))
		x = registrytest.Commit(t, b, registry.Set("x", x, []byte("2")))
		assert.Equal(t, "1", read(t, a, "x", plain), "an old answer")
		assert.Equal(t, 1, c.Injected())
		assert.Equal(t, "1", read(t, a, "y", plain), "y was written before: it shows nothing newer than x")
		assert.Equal(t, "1", read(t, a, "x", plain))

		registrytest.Commit(t, b, registry.Set("y", y, []byte("2")))
		assert.Equal(t, "2", read(t, a, "y", fresh))
		assert.Equal(t, "2", read(t, a, "x", plain), "the fresh read has shown a newer state")
		x = registrytest.Commit(t, b, registry.Set("x", x, []byte("3")))
		assert.Equal(t, "2", read(t, a, "x", plain))
		create(t, a, "own", "")
		assert.Equal(t, "3", read(t, a, "x", plain), "a handle sees its own write, and all before it")

		x = registrytest.Commit(t, b, registry.Set("x", x, []byte("4")))
		_, err := a.Get(t.Context(), "none", plain)
		require.ErrorIs(t, err, registry.ErrNotFound)
		assert.Equal(t, "4", read(t, a, "x", plain), "the key may have been deleted meanwhile")
		_, err = a.Get(t.Context(), "none", plain)
		require.ErrorIs(t, err, registry.ErrNotFound)
		create(t, b, "none", "")
		_, err = a.Get(t.Context(), "none", plain)
		require.ErrorIs(t, err, registry.ErrNotFound, "an old answer")

		w, err := a.Watch(t.Context(), "", registry.WatchOptions{})
		require.NoError(t, err)
		defer w.Close()
		_, err = w.Next(t.Context())
		require.NoError(t, err)
		read(t, a, "none", plain)
		l, err := a.List(t.Context(), "", plain)
		require.NoError(t, err)
		registrytest.Commit(t, b, registry.Set("x", x, []byte("5")))
		again, err := a.List(t.Context(), "", plain)
		require.NoError(t, err)
		assert.Equal(t, l, again)
		_, err = w.Next(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "5", read(t, a, "x", plain), "a plain read is at least as new as a batch")

		x = registrytest.Commit(t, b, registry.Set("x", revOf(t, b, "x"), []byte("6")))
		assert.Equal(t, "5", read(t, a, "x", plain), "an old answer")
		read(t, a, "own", fresh)
		assert.Equal(t, "6", read(t, a, "x", plain), "a fresh read brings the handle up to date, even if it shows an old entry")

		c.End()
		registrytest.Commit(t, b, registry.Set("x", x, []byte("7")))
		assert.Equal(t, "7", read(t, a, "x", plain))
	})
}

func TestCut_SuspendsAndLosesSessionsBeforeTheStoreEndsThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, in := memory.New(), faults.New(1)
		a := in.Wrap("a", server.Client("a"))
		s, err := a.OpenSession(t.Context(), registry.SessionOptions{TTL: 10 * time.Second})
		require.NoError(t, err)
		time.Sleep(time.Minute)

		cut := in.Add(faults.Rule{Fault: faults.Cut, Client: "a"})
		state, until := s.State()
		assert.Equal(t, registry.SessionSuspended, state)
		time.Sleep(time.Second)
		cut.End()
		synctest.Wait()
		state, later := s.State()
		assert.Equal(t, registry.SessionConnected, state, "the cut was shorter than the TTL")
		assert.False(t, later.Before(until))

		cut = in.Add(faults.Rule{Fault: faults.Cut, Client: "a", Ops: faults.Renewals})
		_, until = s.State()
		<-s.Lost()
		assert.Equal(t, until, time.Now())
		require.ErrorIs(t, s.Err(), registry.ErrSessionLost)
		assert.Equal(t, 1, server.Counts("a").Sessions, "lost by its owner first")
		time.Sleep(2 * time.Second)
		assert.Zero(t, server.Counts("a").Sessions)
		cut.End()
		state, _ = s.State()
		assert.Equal(t, registry.SessionLost, state, "a loss is final")
		require.NoError(t, a.Close(t.Context()))
	})
}

func TestCut_PausesWatchersAndLosesNoChange(t *testing.T) {
	inBubble(t, func(t *testing.T, in *faults.Injector, a, b registry.Registry) {
		x := create(t, b, "d/x", "1")
		w, err := a.Watch(t.Context(), "d", registry.WatchOptions{})
		require.NoError(t, err)
		defer w.Close()
		_, err = w.Next(t.Context())
		require.NoError(t, err)

		cut := in.Add(faults.Rule{Fault: faults.Cut})
		registrytest.Commit(t, b, registry.Delete("d/x", x))
		create(t, b, "d/y", "1")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = w.Next(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		create(t, b, "d/z", "1")
		cut.End()
		have := map[registry.Key]bool{}
		first := true
		for !have["d/z"] {
			batch, err := w.Next(t.Context())
			require.NoError(t, err)
			assert.Equal(t, first, batch.Kind == registry.Snapshot, "the first batch after a cut is a snapshot")
			first = false
			for _, e := range batch.Puts {
				have[e.Key] = true
			}
			assert.NotContains(t, have, registry.Key("d/x"))
		}
		assert.True(t, have["d/y"])
	})
}

func TestCut_BoundsCalls(t *testing.T) {
	inBubble(t, func(t *testing.T, in *faults.Injector, a, b registry.Registry) {
		create(t, b, "k", "1")
		cut := in.Add(faults.Rule{Fault: faults.Cut})
		began := time.Now()
		_, err := a.Get(t.Context(), "k", fresh)
		require.ErrorIs(t, err, registry.ErrUnavailable)
		assert.Equal(t, faults.CallTimeout, time.Since(began))
		_, err = a.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create("new", nil)}})
		require.ErrorIs(t, err, registry.ErrUnknownOutcome)
		assert.Equal(t, 2, cut.Injected())
		time.AfterFunc(time.Second, cut.End)
		assert.Equal(t, "1", read(t, a, "k", fresh), "a read continues after the cut")
		_, err = b.Get(t.Context(), "new", fresh)
		require.ErrorIs(t, err, registry.ErrNotFound)
	})
}

func TestCut_BeginsAtACallAndLasts(t *testing.T) {
	inBubble(t, func(t *testing.T, in *faults.Injector, a, b registry.Registry) {
		create(t, b, "k", "1")
		in.Add(faults.Rule{Fault: faults.Cut, Ops: faults.Calls, Skip: 1, Times: 1, For: 2 * time.Second})
		began := time.Now()
		read(t, a, "k", fresh)
		assert.Zero(t, time.Since(began))
		read(t, a, "k", fresh)
		assert.Equal(t, 2*time.Second, time.Since(began))
	})
}

func TestRule_IsActiveFromUntil(t *testing.T) {
	inBubble(t, func(t *testing.T, in *faults.Injector, a, b registry.Registry) {
		create(t, b, "k", "1")
		in.Add(faults.Rule{Fault: faults.LoseRequest, From: time.Second, Until: 2 * time.Second})
		in.Add(faults.Rule{Fault: faults.Cut, From: 3 * time.Second, Until: 4 * time.Second})
		read(t, a, "k", fresh)
		time.Sleep(time.Second)
		_, err := a.Get(t.Context(), "k", fresh)
		require.ErrorIs(t, err, registry.ErrUnavailable)
		time.Sleep(time.Second)
		read(t, a, "k", fresh)
		time.Sleep(time.Second)
		began := time.Now()
		read(t, a, "k", fresh)
		assert.Equal(t, time.Second, time.Since(began))
	})
}

func TestClose_DuringACut_ReportsThatSessionsMayLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, in := memory.New(), faults.New(1)
		a := in.Wrap("a", server.Client("a"))
		s, err := a.OpenSession(t.Context(), registry.SessionOptions{TTL: 10 * time.Second})
		require.NoError(t, err)
		in.Add(faults.Rule{Fault: faults.Cut})
		began := time.Now()
		require.ErrorIs(t, a.Close(t.Context()), registry.ErrUnavailable)
		assert.Equal(t, faults.CallTimeout, time.Since(began))
		require.ErrorIs(t, s.Err(), registry.ErrClosed)
		time.Sleep(11 * time.Second)
		assert.Zero(t, server.Counts("a").Sessions)
	})
}

func TestSessionClose_DuringACut_LeavesTheSessionToExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, in := memory.New(), faults.New(1)
		a := in.Wrap("a", server.Client("a"))
		s, err := a.OpenSession(t.Context(), registry.SessionOptions{TTL: 10 * time.Second})
		require.NoError(t, err)
		in.Add(faults.Rule{Fault: faults.Cut})
		require.ErrorIs(t, s.Close(t.Context()), registry.ErrUnavailable)
		require.ErrorIs(t, s.Err(), registry.ErrClosed)
		assert.Equal(t, 1, server.Counts("a").Sessions)
		time.Sleep(11 * time.Second)
		assert.Zero(t, server.Counts("a").Sessions)
		require.NoError(t, a.Close(t.Context()))
	})
}
