package postgres_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/postgres"
	"github.com/rota-dev/rota/registry/postgres/internal/pgserver"
)

const patience = 30 * time.Second

// create creates a key, and returns the number of the commit.
func create(t *testing.T, c registry.Registry, key registry.Key) uint64 {
	rev, err := registry.Apply(t.Context(), c, registry.Txn{Then: []registry.Op{registry.Create(key, []byte("v"))}})
	require.NoError(t, err)
	return rev.Seq
}

// watch returns a function that waits for the next batch.
func watch(t *testing.T, c registry.Registry, dir registry.Key) (next func() registry.Batch) {
	w, err := c.Watch(t.Context(), dir, registry.WatchOptions{})
	require.NoError(t, err)
	return func() registry.Batch {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		b, err := w.Next(ctx)
		require.NoError(t, err)
		return b
	}
}

func TestRestart_LeavesAGapOfNumbersAndRestartsWatches(t *testing.T) {
	s := startServer(t)
	o := newRegistry(t, s)
	c := open(t, o)
	session, err := c.OpenSession(t.Context(), registry.SessionOptions{TTL: time.Minute})
	require.NoError(t, err)
	before := create(t, c, "d/a")
	next := watch(t, c, "d")
	require.Equal(t, registry.Snapshot, next().Kind)

	s.Kill()
	require.NoError(t, s.Continue(t.Context()))
	after := create(t, c, "d/b")
	assert.GreaterOrEqual(t, after, before+1_000_000)
	b := next()
	assert.Equal(t, registry.Snapshot, b.Kind, "the numbers of commits that were lost may have been delivered")
	assert.NoError(t, session.Err())
	state, _ := session.State()
	assert.NotEqual(t, registry.SessionLost, state)
}

func TestWatch_GoesOnWithoutNotifications(t *testing.T) {
	s := sharedServer(t)
	o := newRegistry(t, s)
	c := open(t, o)
	next := watch(t, c, "d")
	require.Equal(t, registry.Snapshot, next().Kind)
	create(t, c, "d/first")
	next()
	t.Run("when the connection that receives them is cut", func(t *testing.T) {
		for i := range 3 {
			exec(t, s, o, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN \"rota.%' OR query = 'SELECT 1' AND application_name = 'rota'")
			key := registry.Key(fmt.Sprintf("d/cut%d", i))
			create(t, c, key)
			require.Equal(t, key, next().Puts[0].Key)
		}
	})
	t.Run("when another handle sends none", func(t *testing.T) {
		o := o
		o.PollOnly = true
		create(t, open(t, o), "d/silent")
		require.Equal(t, registry.Key("d/silent"), next().Puts[0].Key)
	})
}

func TestWatch_BehindAPooler(t *testing.T) {
	s := sharedServer(t)
	o := newRegistry(t, s)
	_ = s.Exec(t.Context(), database, "CREATE ROLE "+pgserver.Role+" LOGIN") // it may exist
	exec(t, s, o, strings.ReplaceAll(fmt.Sprintf(grants, o.Schema), "$ROLE", pgserver.Role))
	o.Endpoints, o.Username = []string{startPooler(t, s).Addr()}, pgserver.Role
	var log logged
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	c := open(t, o)
	next := watch(t, c, "d")
	next()
	create(t, c, "d/k")
	require.Equal(t, registry.Key("d/k"), next().Puts[0].Key)
	require.Eventually(t, func() bool { return strings.Count(log.String(), "a pooler does not forward") == 1 }, patience, 20*time.Millisecond)

	log = logged{}
	o.ListenEndpoints = []string{s.Addr()}
	open(t, o)
	require.Eventually(t, func() bool {
		return exec(t, s, o, "SELECT count(*) FROM pg_stat_activity WHERE usename = 'app' AND query = 'LISTEN \""+o.Schema+".changes\"'")[0][0] != "0"
	}, patience, 20*time.Millisecond)
	require.NotContains(t, log.String(), "pooler")
}

func TestFailover(t *testing.T) {
	primary := startServer(t)
	o := newRegistry(t, primary)
	standby, err := primary.StartStandby()
	require.NoError(t, err)
	t.Cleanup(standby.Remove)
	t.Run("a standby is not read", func(t *testing.T) {
		for _, readOnly := range []bool{false, true} {
			o := o
			o.Endpoints, o.ReadOnly = []string{standby.Addr()}, readOnly
			_, err := postgres.Open(t.Context(), o)
			require.ErrorIs(t, err, registry.ErrUnavailable)
			require.ErrorContains(t, err, "is a standby")
		}
		for _, call := range []string{"get('d', 'k')", "list('d')", "changes(ARRAY['d'], ARRAY[1::bigint])"} {
			require.Eventually(t, func() bool { // the standby may be behind
				_, err := standby.Query(t.Context(), database, "SELECT * FROM "+o.Schema+"."+call)
				return err != nil && strings.Contains(err.Error(), "the server is a standby")
			}, patience, 50*time.Millisecond, "a pooler may move a connection to a standby")
		}
	})
	o.Endpoints = []string{standby.Addr(), primary.Addr()}
	c := open(t, o)
	session, err := c.OpenSession(t.Context(), registry.SessionOptions{TTL: 20 * time.Second})
	require.NoError(t, err)
	next := watch(t, c, "d")
	next()
	before := create(t, c, "d/before")
	next()
	require.Eventually(t, func() bool { // otherwise asynchronous replication loses it
		rows, err := standby.Query(t.Context(), database, "SELECT max(seq) FROM "+o.Schema+".log")
		return err == nil && rows[0][0] == fmt.Sprint(before)
	}, patience, 20*time.Millisecond)

	primary.Kill()
	require.NoError(t, standby.Exec(t.Context(), database, "SELECT pg_promote()"))
	after := create(t, c, "d/after")
	assert.GreaterOrEqual(t, after, before+1_000_000, "numbers that the old primary may have given out are not used again")
	b := next()
	assert.Equal(t, registry.Snapshot, b.Kind)
	for len(b.Puts) < 2 {
		b = next()
	}
	require.Eventually(t, func() bool {
		state, _ := session.State()
		return state == registry.SessionConnected
	}, patience, 20*time.Millisecond, "the session goes on")
	_, err = c.Txn(t.Context(), registry.Txn{If: []registry.Cond{registry.Alive(session.ID())}})
	assert.NoError(t, err)
}

// What docs/stores.md says of asynchronous replication: an acknowledged commit is lost, and numbers still grow.
func TestFailover_WithoutTheLastCommits(t *testing.T) {
	primary := startServer(t)
	o := newRegistry(t, primary)
	standby, err := primary.StartStandby()
	require.NoError(t, err)
	t.Cleanup(standby.Remove)
	o.Endpoints = []string{standby.Addr(), primary.Addr()}
	c := open(t, o)
	kept := create(t, c, "d/kept")
	require.Eventually(t, func() bool {
		rows, err := standby.Query(t.Context(), database, "SELECT max(seq) FROM "+o.Schema+".log")
		return err == nil && rows[0][0] == fmt.Sprint(kept)
	}, patience, 20*time.Millisecond)
	for _, statement := range []string{"ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()"} {
		require.NoError(t, standby.Exec(t.Context(), database, statement))
	}
	require.Eventually(t, func() bool { // it has stopped to follow
		rows, err := standby.Query(t.Context(), database, "SELECT count(*) FROM pg_stat_wal_receiver")
		return err == nil && rows[0][0] == "0"
	}, patience, 20*time.Millisecond)
	next := watch(t, c, "d")
	next()
	lost := create(t, c, "d/lost")
	require.Equal(t, registry.Key("d/lost"), next().Puts[0].Key)

	primary.Kill()
	require.NoError(t, standby.Exec(t.Context(), database, "SELECT pg_promote()"))
	after := create(t, c, "d/after")
	assert.Greater(t, after, lost, "no number is used again")
	_, err = c.Get(t.Context(), "d/lost", registry.ReadOptions{Fresh: true})
	require.ErrorIs(t, err, registry.ErrNotFound, "it was acknowledged")
	e, err := c.Get(t.Context(), "d/kept", registry.ReadOptions{Fresh: true})
	require.NoError(t, err)
	assert.EqualValues(t, kept, e.Modified.Seq)
	b := next()
	require.Equal(t, registry.Snapshot, b.Kind)
	assert.False(t, slices.ContainsFunc(b.Puts, func(e registry.Entry) bool { return e.Key == "d/lost" }), "watchers list what is left")
}

func TestPause_OfTheServer(t *testing.T) {
	s := startServer(t)
	o := newRegistry(t, s)
	c := open(t, o)
	session, err := c.OpenSession(t.Context(), registry.SessionOptions{TTL: 2 * time.Second})
	require.NoError(t, err)
	create(t, c, "d/k")
	require.NoError(t, s.Pause())
	<-session.Lost()
	require.NoError(t, s.Resume())
	create(t, c, "d/l")
	require.Eventually(t, func() bool {
		_, err := c.Txn(t.Context(), registry.Txn{If: []registry.Cond{registry.Dead(session.ID())}})
		return err == nil
	}, patience, 20*time.Millisecond, "it has ended at the store too")
}
