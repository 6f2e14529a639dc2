package ledger

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/conformance/child"
	"github.com/rota-dev/rota/internal/test/long"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry/postgres"
	"github.com/rota-dev/rota/registry/postgres/internal/pgserver"
)

var (
	rounds = flag.Int("ledger.rounds", long.Pick(4, 60), "rounds of faults")
	pause  = flag.Duration("ledger.stop", long.Pick(5*time.Second, time.Minute), "how long a process is stopped between CompleteTx and COMMIT")
)

func TestMain(m *testing.M) {
	if text := os.Getenv(assignmentVariable); text != "" {
		if err := runWorker(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	m.Run()
}

const patience = 3 * time.Minute

// bench is a fleet and its server.
type bench struct {
	t       *testing.T
	server  *pgserver.Server
	log     string
	workers map[string]*child.Process
	stdins  map[string]io.Closer
}

func newBench(t *testing.T) *bench {
	s, err := pgserver.Start("fsync=on")
	require.NoError(t, err)
	t.Cleanup(s.Remove)
	require.NoError(t, postgres.Migrate(t.Context(), optionsOf(s.Addr())))
	b := &bench{t: t, server: s, log: t.TempDir(), workers: map[string]*child.Process{}, stdins: map[string]io.Closer{}}
	b.query(createLedger)
	return b
}

func (b *bench) query(sql string) [][]string {
	rows, err := b.server.Query(b.t.Context(), database, sql)
	require.NoError(b.t, err, sql)
	return rows
}

// start starts a worker, whose log is a file.
func (b *bench) start(name, holdAt string) {
	text, err := json.Marshal(assignment{Addr: b.server.Addr(), Instance: name, HoldAt: holdAt})
	require.NoError(b.t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), assignmentVariable+"="+string(text))
	log, err := os.OpenFile(b.log+"/"+name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(b.t, err)
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	in, err := cmd.StdinPipe()
	require.NoError(b.t, err)
	p, err := child.Start(cmd)
	require.NoError(b.t, err)
	b.t.Cleanup(p.Kill)
	b.workers[name], b.stdins[name] = p, in
}

// fault injects one fault, and ends it.
func (b *bench) fault(kind, victim string) {
	switch kind {
	case "kill":
		b.workers[victim].Kill()
		b.start(victim, "")
	case "stop":
		require.NoError(b.t, b.workers[victim].Pause())
		wait(b.t.Context(), sessionT+rand.N(sessionT))
		require.NoError(b.t, b.workers[victim].Resume())
	case "restart":
		b.server.Kill()
		require.NoError(b.t, b.server.Continue(b.t.Context()))
	case "immediate stop":
		require.NoError(b.t, b.server.Shutdown(syscall.SIGQUIT))
		require.NoError(b.t, b.server.Continue(b.t.Context()))
	}
}

func (b *bench) count() string { return b.query("SELECT count(*) FROM ledger")[0][0] }

// awaitMore waits until a number of rows have been added.
func (b *bench) awaitMore(n int) {
	var before int
	_, err := fmt.Sscan(b.count(), &before)
	require.NoError(b.t, err)
	require.Eventually(b.t, func() bool {
		var now int
		_, err := fmt.Sscan(b.count(), &now)
		return err == nil && now >= before+n
	}, patience, 100*time.Millisecond, "the fleet goes on")
}

// shutDown waits until each shard has gone on, ends the fleet, and returns how many runs have succeeded.
func (b *bench) shutDown() uint64 {
	b.awaitMore(3 * shards)
	for name, p := range b.workers {
		require.NoError(b.t, b.stdins[name].Close())
		select {
		case <-p.Done():
		case <-time.After(patience):
			require.Fail(b.t, "worker "+name+" does not end")
		}
	}
	reg, err := openPatiently(b.t.Context(), b.server.Addr())
	require.NoError(b.t, err)
	defer reg.Close(context.Background())
	o, err := operator.New(reg, namespace, "")
	require.NoError(b.t, err)
	st, err := o.Status(b.t.Context(), jobName)
	require.NoError(b.t, err)
	return st.Counts.Succeeded
}

// judge checks the ledger.
func (b *bench) judge(succeeded uint64) {
	assert.Empty(b.t, b.query("SELECT key, count(*), string_agg(instance || attempt, ',') FROM ledger GROUP BY key HAVING count(*) > 1"), "work that was done twice")
	assert.Empty(b.t, b.query(`
		SELECT s, f FROM generate_series(0, (SELECT max(shard) FROM ledger)) s,
			generate_series((SELECT min(fire) FROM ledger), (SELECT min(last) FROM (SELECT max(fire) AS last FROM ledger GROUP BY shard) l), '2 seconds') f
		WHERE f > (SELECT min(fire) FROM ledger l WHERE l.shard = s) AND NOT EXISTS (SELECT FROM ledger l WHERE l.shard = s AND l.fire = f)`), "work that was lost")
	assert.Equal(b.t, fmt.Sprint(succeeded), b.count(), "runs that succeeded have a row")
	b.t.Logf("%s rows; of second and later attempts: %s; ended by an earlier attempt's transaction: %d", b.count(),
		b.query("SELECT count(*) FROM ledger WHERE attempt > 1")[0][0], strings.Count(b.logs(), "completed by a transaction of an earlier run"))
}

func (b *bench) logs() string {
	var all strings.Builder
	for name := range b.workers {
		text, err := os.ReadFile(b.log + "/" + name)
		require.NoError(b.t, err)
		all.Write(text)
	}
	return all.String()
}

func TestLedger_HasEachWorkOnce(t *testing.T) {
	b := newBench(t)
	names := []string{"a", "b", "c"}
	for _, name := range names {
		b.start(name, "")
	}
	b.awaitMore(2 * shards)
	kinds := []string{"kill", "stop", "restart", "immediate stop"}
	for round := range *rounds {
		kind, victim := kinds[round%len(kinds)], names[rand.IntN(len(names))]
		t.Logf("round %d: %s %s", round+1, kind, victim)
		linger(t.Context(), 2*time.Second)
		b.fault(kind, victim)
		b.awaitMore(shards)
	}
	b.judge(b.shutDown())
}

func TestStopBeforeCommit_DelaysNoOtherShard(t *testing.T) {
	b := newBench(t)
	for _, name := range []string{"a", "b"} {
		b.start(name, "yes")
	}
	var held [][]string
	require.Eventually(t, func() bool {
		held = b.query("SELECT key, instance FROM holding")
		return len(held) == 1
	}, patience, 20*time.Millisecond)
	key, victim := held[0][0], held[0][1]
	require.NoError(t, b.workers[victim].Pause())
	stopped := time.Now()
	b.query("CREATE TABLE stopped AS SELECT clock_timestamp() AS at")
	progress := func() bool { // of all other shards, by fires that came due since
		return b.query("SELECT count(DISTINCT shard) FROM ledger WHERE shard <> 0 AND fire > (SELECT at FROM stopped)")[0][0] == fmt.Sprint(shards-1)
	}
	require.Eventually(t, progress, patience, 100*time.Millisecond)
	wait(t.Context(), time.Until(stopped.Add(*pause)))
	late := b.query(`SELECT coalesce(max(extract(epoch FROM at - fire)), 0)::numeric(9, 3), count(*) FROM ledger
		WHERE shard <> 0 AND fire > (SELECT at FROM stopped) + interval '10 seconds'`)
	t.Logf("the process was stopped for %v; other shards, from 10 s after: at most %s s late, %s rows", time.Since(stopped).Round(time.Second), late[0][0], late[0][1])
	require.Equal(t, [][]string{{"0"}}, b.query("SELECT count(*) FROM ledger WHERE shard = 0 AND (key = '"+key+"' OR fire > (SELECT at FROM stopped))"), "its shard waits")
	require.NoError(t, b.workers[victim].Resume())
	require.Eventually(t, func() bool {
		return b.query("SELECT count(*) FROM ledger WHERE shard = 0 AND fire > (SELECT at FROM stopped)")[0][0] != "0"
	}, patience, 100*time.Millisecond, "its shard goes on")
	require.Equal(t, [][]string{{"1"}}, b.query("SELECT count(*) FROM ledger WHERE key = '"+key+"'"))
	b.judge(b.shutDown())
}
