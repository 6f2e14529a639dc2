package sqltest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/history"
)

// logOf returns a piece of the log of a run of job "settle".
func logOf(fire, shard, piece int, text string) history.Log {
	r := runOf(fire, shard, 0, history.Succeeded)
	return history.Log{
		Namespace: r.Namespace, Group: r.Group, Job: r.Job, Fire: r.Fire, Run: r.ID, Instance: r.Instance, Fence: r.Fence, Shard: shard, Attempt: 1,
		Piece: piece, Line: int64(piece), Byte: int64(100 * piece), Lines: strings.Count(text, "\n"), Text: text, Written: r.Fire.Add(time.Duration(piece) * time.Second),
	}
}

func logsOf(t testing.TB, r history.Reader, q history.LogQuery) []history.Log {
	pieces, err := r.(history.LogReader).Logs(context.Background(), q)
	require.NoError(t, err)
	return pieces
}

func TestStore_ReadsLogsAsARing(t *testing.T) {
	forEachDatabase(t, func(t *testing.T, d *database) {
		db := d.migrated(t)
		store, ring := d.store(t, db, history.SQLOptions{}), history.NewRing(100_000)
		rnd := rand.New(rand.NewPCG(1, 2))
		var pieces []history.Log
		next := map[string]int{} // piece of each run
		for n := range 800 {
			p := logOf(rnd.IntN(4), rnd.IntN(3), 0, fmt.Sprintf("line %d '\"\\ ? $1 𝄞 \x1b[31m\n", n))
			p.Job = []string{"settle", "export"}[rnd.IntN(2)]
			p.Namespace = []string{"billing", "other"}[rnd.IntN(2)]
			run := fmt.Sprint(p.Namespace, p.Job, p.Run)
			p.Piece, p.Line, p.Written = next[run], int64(next[run]), start.Add(time.Duration(n/20)*time.Second)
			if next[run]++; p.Piece > 19 {
				continue
			}
			if p.Fire.Second()%2 == 1 {
				p.Trigger = 7
			}
			if p.Piece > 10 {
				p.Head, p.From = 2, p.Piece-p.Piece%3
			}
			if p.Piece == 19 {
				p.Outcome = history.Failed
			}
			pieces = append(pieces, p)
		}
		for len(pieces) > 0 {
			n := min(len(pieces), 1+rnd.IntN(40))
			for range 1 + rnd.IntN(2) { // the outcome of the first call may be unknown
				require.NoError(t, store.WriteLogs(t.Context(), pieces[:n]))
			}
			for i := range n { // one by one, as the ring deletes in the order of the pieces
				require.NoError(t, ring.WriteLogs(t.Context(), pieces[i:i+1]))
			}
			pieces = pieces[n:]
		}
		for _, job := range []string{"settle", "export", "none"} {
			for _, q := range []history.LogQuery{
				{},
				{Limit: 7},
				{Latest: true},
				{Fire: start.Add(2 * time.Second)},
				{Fire: start.Add(2 * time.Second), Trigger: 7},
				{Trigger: 7, Latest: true},
				{Shards: []int{1, 3}},
				{Shards: []int{}},
				{Since: start.Add(10 * time.Second)},
				{Since: start.Add(10 * time.Second), Limit: 3},
				{Run: runOf(1, 2, 0, history.Succeeded).ID},
				{Limit: 1 << 20},
			} {
				q.Job = job
				want, got := logsOf(t, ring.Reader("billing", ""), q), logsOf(t, store.Reader("billing", "default"), q)
				require.Equal(t, want, got, "%+v", q)
			}
		}
		require.NotZero(t, count(t, db, "SELECT count(*) FROM rota_log WHERE failure"))
	})
}

// A Recorder follows a run into a database of which connections are cut after commits: each line is there once.
func TestStore_KeepsEachLineOnceWhenConnectionsAreCutAfterCommits(t *testing.T) {
	for name, dialect := range map[string]history.Dialect{"PostgreSQL": history.Postgres, "MariaDB": history.MySQL} {
		t.Run(name, func(t *testing.T) {
			d := newDatabase(t, name, dialect)
			d.migrated(t)
			db, cuts := d.cutAfterCommits(t, 5)
			store := d.store(t, db, history.SQLOptions{})
			rec := history.New(store, history.Options{Logger: quiet})
			info := executor.RunInfo{Namespace: "billing", Group: "default", Job: "settle", ID: "run", Instance: "a", FireTime: start, Attempt: 1, Fence: 1}
			log := slog.New(rec.Observer().RunLog(info))
			n := 0
			waitUntil(t, "cuts", func() bool {
				log.Info("line", "n", n)
				n++
				return cuts() == 5 && rec.Stats().LogPieces > 3
			})
			rec.Observer().RunEnded(executor.RunEnded{Run: info, Ended: time.Now(), Outcome: history.Failed, Err: errors.New("x")})
			shutDown(t, rec)
			require.Zero(t, rec.Stats().Dropped)
			lines := history.LogLines(logsOf(t, d.store(t, d.open(t), history.SQLOptions{}).Reader("billing", ""), history.LogQuery{Job: "settle", Limit: 1 << 20}))
			missing := 0
			if len(lines) < n+1 { // beyond the bound of a run
				for i, l := range lines {
					if l.Kind == history.LogMissing {
						_, err := fmt.Sscanf(l.Text, "%d", &missing)
						require.NoError(t, err)
						lines = append(lines[:i], lines[i+1:]...)
						break
					}
				}
			}
			require.Len(t, lines, n+1-missing)
			require.Equal(t, fmt.Sprintf("line n=%d", n-1), lines[len(lines)-2].Text)
			require.Equal(t, "failed", lines[len(lines)-1].Text)
		})
	}
}

func TestStore_DeletesOldLogs(t *testing.T) {
	const fires = 300
	write := func(t *testing.T, store *history.SQLStore) {
		var pieces []history.Log
		for fire := range fires {
			ok, failed := logOf(fire, 0, 0, "0123456789\n"), logOf(fire, 1, 0, "0123456789\n")
			failed.Outcome = history.Failed
			pieces = append(pieces, ok, failed)
		}
		require.NoError(t, store.WriteLogs(t.Context(), pieces))
		require.NoError(t, store.WriteLogs(t.Context(), pieces[:1]))
	}
	const row = 11 + 128
	for name, tt := range map[string]struct {
		o          history.SQLOptions
		now        time.Duration // after the last fire
		ok, failed int
	}{
		"age":                         {history.SQLOptions{LogRetention: time.Hour}, time.Hour - 99*time.Second, 100, 100},
		"age, all":                    {history.SQLOptions{LogRetention: time.Hour}, 2 * time.Hour, 0, 0},
		"fires":                       {history.SQLOptions{LogFires: 7}, 2 * time.Hour, 7, fires},
		"fires of the last hour":      {history.SQLOptions{LogFires: 7}, time.Hour - 49*time.Second, 50, fires},
		"fewer fires than are kept":   {history.SQLOptions{LogFires: fires}, 2 * time.Hour, fires, fires},
		"the default":                 {history.SQLOptions{}, 2 * time.Hour, 20, fires},
		"bytes":                       {history.SQLOptions{LogFires: -1, LogBytesPerJob: 100 * row}, 0, 100, 100},
		"bytes, one row less":         {history.SQLOptions{LogFires: -1, LogBytesPerJob: 100*row - 1}, 0, 99, 99},
		"as many bytes as there are":  {history.SQLOptions{LogFires: -1, LogBytesPerJob: fires * row}, 0, fires, fires},
		"bytes of the group":          {history.SQLOptions{LogFires: -1, LogBytes: 100 * row}, 0, 50, 50},
		"no bounds":                   {history.SQLOptions{LogFires: -1, LogBytes: -1, LogBytesPerJob: -1, LogRetention: -1}, 10_000 * time.Hour, fires, fires},
		"a fire of which all is kept": {history.SQLOptions{LogFires: 1}, 2 * time.Hour, 1, fires},
	} {
		t.Run(name, func(t *testing.T) {
			forEachDatabase(t, func(t *testing.T, d *database) {
				db := d.migrated(t)
				other := d.store(t, db, history.SQLOptions{})
				p := logOf(0, 0, 0, "x\n")
				p.Namespace = "other"
				require.NoError(t, other.WriteLogs(t.Context(), []history.Log{p}))
				store := d.store(t, db, tt.o)
				write(t, store)
				trimAll(t, store, start.Add((fires-1)*time.Second+tt.now))
				// Those whose time is the bound are kept, which the failed ones of a fire share.
				require.Equal(t, tt.ok, count(t, db, "SELECT count(*) FROM rota_log WHERE namespace = 'billing' AND shard = 0"))
				require.Equal(t, tt.failed, count(t, db, "SELECT count(*) FROM rota_log WHERE namespace = 'billing' AND shard = 1"))
				require.Equal(t, 1, count(t, db, "SELECT count(*) FROM rota_log WHERE namespace = 'other'"))
			})
		})
	}
}

// All pieces of a run that fails are kept as long, also those that were written before.
func TestStore_MarksTheLogOfAFailedRun(t *testing.T) {
	forEachDatabase(t, func(t *testing.T, d *database) {
		db := d.migrated(t)
		store := d.store(t, db, history.SQLOptions{})
		for piece := range 10 {
			a, b := logOf(0, 0, piece, "x\n"), logOf(0, 1, piece, "x\n")
			if piece == 9 {
				a.Outcome, b.Outcome = history.TimedOut, history.Succeeded
			}
			if piece >= 5 {
				a.Head, a.From = 2, piece-1
			}
			for range 2 {
				require.NoError(t, store.WriteLogs(t.Context(), []history.Log{a, b}))
			}
		}
		require.Equal(t, 4, count(t, db, "SELECT count(*) FROM rota_log WHERE failure"))
		require.Equal(t, 4, count(t, db, "SELECT count(*) FROM rota_log WHERE shard = 0"))
		require.Equal(t, 10, count(t, db, "SELECT count(*) FROM rota_log WHERE shard = 1 AND NOT failure"))
		lines := history.LogLines(logsOf(t, store.Reader("billing", ""), history.LogQuery{Job: "settle", Shards: []int{0}}))
		require.Len(t, lines, 6)
		require.Equal(t, "6 lines (698 bytes) are missing", lines[2].Text)
	})
}

// The leader records the runs that crashed. Their logs are kept as those of runs that failed; without the table, the records are.
func TestStore_MarksTheLogsOfCrashedRuns(t *testing.T) {
	forEachDatabase(t, func(t *testing.T, d *database) {
		db := d.migrated(t)
		store := d.store(t, db, history.SQLOptions{})
		var b history.Batch
		for shard := range 5 {
			require.NoError(t, store.WriteLogs(t.Context(), []history.Log{logOf(0, shard, 0, "x\n"), logOf(0, shard, 1, "x\n")}))
			b.Runs = append(b.Runs, runOf(0, shard, 0, []history.Outcome{history.Crashed, history.Succeeded}[shard%2]))
		}
		require.NoError(t, store.Write(t.Context(), b))
		require.Equal(t, 6, count(t, db, "SELECT count(*) FROM rota_log WHERE failure AND shard IN (0, 2, 4)"))
		require.Equal(t, 6, count(t, db, "SELECT count(*) FROM rota_log WHERE failure"))
		d.exec(t, db, "DROP TABLE rota_log")
		b.Runs[0].ID += "0"
		require.NoError(t, store.Write(t.Context(), b))
		require.Error(t, store.WriteLogs(t.Context(), []history.Log{logOf(0, 9, 0, "x\n")}))
		require.Equal(t, 6, count(t, db, "SELECT count(*) FROM rota_run"))
	})
}
