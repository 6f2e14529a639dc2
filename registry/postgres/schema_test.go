package postgres_test

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
)

// These tests call the functions of the schema, while no handle is open.

func TestTick(t *testing.T) {
	s := sharedServer(t)
	o := newRegistry(t, s)
	tick := func(seen, elapsed int) string {
		return exec(t, s, o, fmt.Sprintf("SELECT lease FROM rota.tick(%d, %d)", seen, elapsed))[0][0]
	}
	assert.Equal(t, "0", tick(-1, 0), "shows the lease clock")
	assert.Equal(t, "500000", tick(0, 500_000), "advances by what has elapsed")
	assert.Equal(t, "500000", tick(0, 500_000), "does not advance for a caller that has not seen the present time")
	assert.Equal(t, "1250000", tick(500_000, 60_000_000), "advances by 750 ms at most, for a caller that was paused")
	assert.Equal(t, "1250000", tick(1_250_000, -5), "never goes back")
}

func TestStartCommit_OfAnotherServerProcess(t *testing.T) {
	s := sharedServer(t)
	o := newRegistry(t, s)
	exec(t, s, o, "SELECT rota.reap(false); SELECT rota.open_session('a', 5000000)")
	before := exec(t, s, o, "SELECT rota.last()")[0][0]
	exec(t, s, o, "UPDATE rota.state SET started = now(), lease = 70; UPDATE rota.session SET deadline = 1")
	exec(t, s, o, "SELECT rota.reap(false)")
	require.Equal(t, [][]string{{"5750070"}}, exec(t, s, o, "SELECT deadline FROM rota.session"), "each session has its whole TTL again before any expires")
	rows := exec(t, s, o, "SELECT rota.last() = 1000000 + "+before+", compacted = rota.last(), started = pg_postmaster_start_time() FROM rota.state")
	require.Equal(t, [][]string{{"t", "t", "t"}}, rows)
	require.Equal(t, [][]string{{"1"}}, exec(t, s, o, "SELECT count(*) FROM rota.log"))
	exec(t, s, o, "SELECT rota.reap(false)")
	require.Equal(t, [][]string{{"0"}}, exec(t, s, o, "SELECT rota.last() - 1000000 - "+before), "only once")
}

func TestReap(t *testing.T) {
	s := sharedServer(t)
	o := newRegistry(t, s)
	count := func(table string) string { return exec(t, s, o, "SELECT count(*) FROM rota."+table)[0][0] }
	exec(t, s, o, "SELECT rota.reap(false)") // the first commit of the server
	exec(t, s, o, "INSERT INTO rota.session SELECT 's' || i, 1000000, CASE WHEN i <= 300 THEN -1 ELSE 1000000 END FROM generate_series(1, 301) i")
	exec(t, s, o, `INSERT INTO rota.kv SELECT 'd', '~' || i, '', 1, 1, now(), 's' || i, gen_random_uuid() FROM generate_series(1, 301) i`)
	require.Equal(t, [][]string{{"t"}}, exec(t, s, o, "SELECT rota.reap(false)"), "it ends a bounded number")
	require.Equal(t, "101", count("session"))
	require.Equal(t, [][]string{{"f"}}, exec(t, s, o, "SELECT rota.reap(false)"))
	require.Equal(t, "1", count("session"))
	require.Equal(t, [][]string{{"~301"}}, exec(t, s, o, "SELECT name FROM rota.kv"), "owned keys end with their sessions")

	t.Run("shortens the log in bounded steps", func(t *testing.T) {
		exec(t, s, o, "INSERT INTO rota.log SELECT l.seq + i, 'd', '{k}' FROM (SELECT rota.last() AS seq OFFSET 0) l, generate_series(1, 40000) i")
		steps := 1
		for ; exec(t, s, o, "SELECT rota.reap(false)")[0][0] == "t"; steps++ {
			require.Less(t, steps, 20)
		}
		require.Greater(t, steps, 1)
		rows := exec(t, s, o, "SELECT count(*) BETWEEN 20000 AND 22001, min(seq) > (SELECT compacted FROM rota.state) FROM rota.log")
		require.Equal(t, [][]string{{"t", "t"}}, rows)
	})
	t.Run("compares the size with the quota", func(t *testing.T) {
		exec(t, s, o, "UPDATE rota.state SET quota = 1; SELECT rota.reap(false)")
		require.Equal(t, [][]string{{"t"}}, exec(t, s, o, "SELECT is_full FROM rota.state"))
		exec(t, s, o, "UPDATE rota.state SET quota = 1000000000; SELECT rota.reap(false)")
		require.Equal(t, [][]string{{"f"}}, exec(t, s, o, "SELECT is_full FROM rota.state"))
	})
}

func TestCommits_AreDurableWhateverTheRolesDefaultIs(t *testing.T) {
	s := sharedServer(t)
	o := newRegistry(t, s)
	for level, want := range map[string]string{"off": "on", "local": "on", "remote_write": "on", "on": "on", "remote_apply": "remote_apply"} {
		for _, call := range []string{"start_commit()", "open_session('x', 1)", "renew_session('x')"} {
			rows := exec(t, s, o, "BEGIN; SET LOCAL synchronous_commit = "+level+"; SELECT rota."+call+"; SELECT current_setting('synchronous_commit')")
			require.Equal(t, want, rows[0][0], "%s in a role with %s", call, level)
		}
	}
	rows := exec(t, s, o, "BEGIN; SELECT rota.tick(0, 1); SELECT current_setting('synchronous_commit')")
	require.Equal(t, "off", rows[0][0], "a lost tick does no harm")
}

func TestFunctions_AreSafeToCall(t *testing.T) {
	s := sharedServer(t)
	o := newRegistry(t, s)
	names := func(where string) string {
		return exec(t, s, o, "SELECT string_agg(proname, ' ') FROM pg_proc WHERE pronamespace = '"+o.Schema+"'::regnamespace AND "+where)[0][0]
	}
	t.Run("none is for everybody", func(t *testing.T) {
		require.Empty(t, names("EXISTS (SELECT FROM aclexplode(coalesce(proacl, acldefault('f', proowner))) a WHERE a.grantee = 0)"))
	})
	t.Run("each finds the functions of the server, whatever the path of the caller is", func(t *testing.T) {
		require.Empty(t, names("NOT coalesce('search_path=pg_catalog, pg_temp' = ANY (proconfig), false)"))
		o := o
		o.Username = newRole(t, s, o, fmt.Sprintf(grants, o.Schema)+`CREATE SCHEMA $ROLE;
			CREATE FUNCTION $ROLE.cardinality(uuid[]) RETURNS integer LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''hostile''; END';
			CREATE FUNCTION $ROLE.same(text, text) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''hostile''; END';
			CREATE OPERATOR $ROLE.= (FUNCTION = $ROLE.same, LEFTARG = text, RIGHTARG = text);
			GRANT USAGE ON SCHEMA $ROLE TO $ROLE; ALTER ROLE $ROLE SET search_path = $ROLE, pg_catalog`)
		defer exec(t, s, o, "DROP SCHEMA "+o.Username+" CASCADE")
		c := open(t, o)
		create(t, c, "d/k")
		_, err := c.Get(t.Context(), "d/k", registry.ReadOptions{})
		require.NoError(t, err)
	})
}

// TestCalls_AreBoundedWhileATableIsLocked locks tables as VACUUM FULL does.
func TestCalls_AreBoundedWhileATableIsLocked(t *testing.T) {
	s := sharedServer(t)
	o := newRegistry(t, s)
	tx := begin(t, s, "")
	require.NoError(t, tx.exec("LOCK TABLE "+o.Schema+".kv, "+o.Schema+".log, "+o.Schema+".session, "+o.Schema+".state, "+o.Schema+".ended"))
	var all sync.WaitGroup
	for _, call := range []string{
		"get('d', 'k')", "list('d')", "changes(ARRAY['d'], ARRAY[1::bigint])", "open_session('s', 1)", "renew_session('s')", "tick(0, 1)",
		"prune_ends('')", "commit(false, ARRAY[gen_random_uuid()], '{}', '{}', '{}', '{}', '{}', '{}', '{}')", "end_session(false, 's')", "reap(false)",
		"fence_runs(ARRAY['s'], ARRAY['w'], ARRAY[1::bigint])",
	} {
		all.Go(func() {
			began := time.Now()
			err := s.Exec(t.Context(), database, "SELECT "+o.Schema+"."+call)
			assert.ErrorContains(t, err, "lock timeout", call)
			assert.Less(t, time.Since(began), patience, call)
		})
	}
	all.Wait()
	tx.rollback()
	create(t, open(t, o), "d/k")
}

// TestCommit_UsesIndexesWhateverTheSizeWas counts the rows that commits read in large tables, by plans of a connection that saw small ones.
func TestCommit_UsesIndexesWhateverTheSizeWas(t *testing.T) {
	s := sharedServer(t)
	for name, before := range map[string]string{"never analyzed": "", "analyzed with one row": "ANALYZE rota.kv; ANALYZE rota.session;"} {
		t.Run(name, func(t *testing.T) {
			o := newRegistry(t, s)
			commit := func(kind int, name, session string) string {
				return fmt.Sprintf(`DO $$ BEGIN
					ASSERT (SELECT failed = 0 FROM rota.commit(false, ARRAY[gen_random_uuid()], '{1,1,1}', '{%d,1,3}', '{d,d,""}', '{%s,none,""}',
						ARRAY[coalesce((SELECT modified FROM rota.kv WHERE dir = 'd' AND name = '%[2]s'), 0), 0, 0], '{%[3]s,"",%[3]s}', ARRAY['', '', '']::bytea[]));
					END $$;`, kind, name, session)
			}
			rows := exec(t, s, o, "SELECT rota.open_session('s', 1000000);"+commit(5, "k", "s")+before+
				commit(6, "~k", "s")+commit(7, "k", "s")+commit(8, "~k", "s")+`
				INSERT INTO rota.kv SELECT 'd', 'k' || i, '', 1, 1, now(), NULL, gen_random_uuid() FROM generate_series(1, 3000) i;
				INSERT INTO rota.session SELECT 's' || i, 1000000, 1000000 FROM generate_series(1, 3000) i;`+
				commit(6, "~k", "s1")+commit(7, "k2", "s1")+commit(8, "k3", "s1")+`
				SELECT sum(pg_stat_get_xact_tuples_returned(c.oid)) FROM pg_class c LEFT JOIN pg_index i ON i.indexrelid = c.oid
				WHERE coalesce(i.indrelid, c.oid) IN ('rota.kv'::regclass, 'rota.session'::regclass)`)
			read, err := strconv.Atoi(rows[0][0])
			require.NoError(t, err)
			require.Less(t, read, 1000, "rows and index entries that all commits read")
		})
	}
}

func TestTable_RefusesRowsThatAreNoEntries(t *testing.T) {
	s := sharedServer(t)
	o := newRegistry(t, s)
	for _, row := range []string{"'d', 'a b', NULL", "'d/', 'k', NULL", "'/d', 'k', NULL", "'d', '~k', NULL", "'d', 'k', 's'", "'d', '', NULL"} {
		err := s.Exec(t.Context(), database, "INSERT INTO "+o.Schema+".kv (value, created, modified, written, txn, dir, name, owner) VALUES ('', 1, 1, now(), gen_random_uuid(), "+row+")")
		assert.ErrorContains(t, err, "violates check constraint", row)
	}
}

func TestTick_ExpiresSessionsOfHandlesThatAreGone(t *testing.T) {
	s := sharedServer(t)
	o := newRegistry(t, s)
	exec(t, s, o, "SELECT rota.open_session('gone', 1000000)")
	c := open(t, o)
	began := time.Now()
	require.Eventually(t, func() bool {
		_, err := c.Txn(t.Context(), registry.Txn{If: []registry.Cond{registry.Dead("gone")}})
		return err == nil
	}, patience, 10*time.Millisecond)
	assert.Greater(t, time.Since(began), time.Second, "not before its TTL")
}
