package postgres_test

import (
	"fmt"
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
