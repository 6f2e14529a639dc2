package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/history"
)

var quiet = slog.New(slog.DiscardHandler)

// requireEqualReaders compares the answers of two readers.
func requireEqualReaders(t *testing.T, want, got history.Reader) {
	ctx := t.Context()
	compare := func(what string, want, got any, errs ...error) {
		for _, err := range errs {
			require.NoError(t, err, what)
		}
		require.Equal(t, want, got, what)
	}
	for _, n := range []int{0, 3} {
		jobs := []string{"settle", "export", "none", "export"}
		wantLatest, err1 := want.LatestFires(ctx, jobs, n)
		gotLatest, err2 := got.LatestFires(ctx, jobs, n)
		compare("latest fires", wantLatest, gotLatest, err1, err2)
	}
	for _, job := range []string{"settle", "export", "none"} {
		for _, q := range []history.CellsQuery{
			{Job: job, Since: start, Until: start.Add(time.Hour), EndShard: 100},
			{Job: job, Since: start, Until: start.Add(time.Hour), EndShard: 100, Width: 3},
			{Job: job, Since: start.Add(2 * time.Second), Until: start.Add(5 * time.Second), FirstShard: 1, EndShard: 4, Width: 2},
			{Job: job, Since: start, EndShard: 100},
		} {
			wantCells, err1 := want.Cells(ctx, q)
			gotCells, err2 := got.Cells(ctx, q)
			compare(fmt.Sprintf("cells %+v", q), wantCells, gotCells, err1, err2)
		}
		for _, q := range []history.FiresQuery{
			{Job: job, Until: start.Add(4 * time.Second)},
			{Job: job, Since: start.Add(2 * time.Second), Until: start.Add(4 * time.Second), Limit: 2},
			{Job: job, Trigger: 1},
			{Job: job, Trigger: 1<<64 - 1},
		} {
			wantFires, err1 := want.Fires(ctx, q)
			gotFires, err2 := got.Fires(ctx, q)
			compare(fmt.Sprintf("fires %+v", q), wantFires, gotFires, err1, err2)
		}
		wantLast, err1 := want.Last(ctx, job)
		gotLast, err2 := got.Last(ctx, job)
		compare("last runs", wantLast, gotLast, err1, err2)
		for _, since := range []time.Time{{}, start.Add(4 * time.Second)} {
			for _, limit := range []int{0, 3} {
				for _, by := range []bool{false, true} {
					q := history.FiresQuery{Job: job, Since: since, ByInstance: by, Limit: limit}
					wantFires, err1 := want.Fires(ctx, q)
					gotFires, err2 := got.Fires(ctx, q)
					compare(fmt.Sprintf("fires %+v", q), wantFires, gotFires, err1, err2)
					q.Covering = start.Add(5 * time.Second)
					wantFires, err1 = want.Fires(ctx, q)
					gotFires, err2 = got.Fires(ctx, q)
					compare(fmt.Sprintf("fires %+v", q), wantFires, gotFires, err1, err2)
				}
				q := history.RunsQuery{Job: job, Since: since, Limit: limit}
				wantRuns, err1 := want.Slowest(ctx, q)
				gotRuns, err2 := got.Slowest(ctx, q)
				compare(fmt.Sprintf("slowest %+v", q), wantRuns, gotRuns, err1, err2)
				for _, q.Job = range []string{job, ""} {
					wantRuns, err1 = want.Failures(ctx, q)
					gotRuns, err2 = got.Failures(ctx, q)
					compare(fmt.Sprintf("failures %+v", q), wantRuns, gotRuns, err1, err2)
				}
			}
		}
		for fire := range 8 {
			for _, shards := range [][]int{nil, {3}, {4, 0, 3, 3, 77}} {
				at := start.Add(time.Duration(fire) * time.Second)
				wantRuns, err1 := want.RunsOfShards(ctx, job, at, shards)
				gotRuns, err2 := got.RunsOfShards(ctx, job, at, shards)
				compare(fmt.Sprintf("runs of fire %d, shards %v", fire, shards), wantRuns, gotRuns, err1, err2)
			}
			for trigger := range uint64(2) {
				at := start.Add(time.Duration(fire) * time.Second)
				wantRuns, err1 := want.Runs(ctx, job, at, trigger)
				gotRuns, err2 := got.Runs(ctx, job, at, trigger)
				compare(fmt.Sprintf("runs of fire %d, trigger %d", fire, trigger), wantRuns, gotRuns, err1, err2)
			}
		}
	}
}

// randomRun returns a run with random fields. Its duration is different from that of others.
func randomRun(rnd *rand.Rand, n int) history.Run {
	outcomes := []history.Outcome{
		history.Succeeded, history.Succeeded, history.Failed, history.TimedOut, history.Panicked, history.HandedBack, history.LostSession,
		history.Abandoned, history.Cancelled, history.Crashed,
	}
	r := runOf(rnd.IntN(8), rnd.IntN(5), 0, outcomes[rnd.IntN(len(outcomes))])
	r.Job = []string{"settle", "export"}[rnd.IntN(2)]
	r.Namespace = []string{"billing", "billing", "other"}[rnd.IntN(3)]
	r.Instance = []string{"a", "b"}[rnd.IntN(2)]
	r.Attempt = 1 + rnd.IntN(2)
	r.ID = fmt.Sprintf("%s/%d/%d/%d", r.Job, r.Shard, n, r.Attempt)
	r.Ended = r.Started.Add(time.Duration(n)*time.Millisecond + 1234*time.Nanosecond)
	r.ItemsFetched, r.ItemsProcessed = int64(rnd.IntN(9)), int64(rnd.IntN(5))
	if rnd.IntN(4) == 0 {
		r.Trigger = 1
	}
	if r.Outcome == history.Crashed {
		r.Started = time.Time{}
		r.Ended = r.Ended.Add(time.Duration(n) * time.Hour) // those with no duration are in order of their fires
		r.Fire = r.Fire.Add(time.Duration(n) * time.Microsecond)
	}
	if r.Outcome.IsFailure() {
		r.Error = fmt.Sprint("error ", n)
		code := rnd.IntN(3)
		r.ExitCode, r.Output, r.TraceID, r.Kind = &code, strings.Repeat("x\n", rnd.IntN(3000)), "4bf92f3577b34da6a3ce929d0e0e4736", "mail"
	}
	return r
}

func TestStore_AnswersAsARing(t *testing.T) {
	forEachDatabase(t, func(t *testing.T, d *database) {
		db := d.migrated(t)
		store, ring := d.store(t, db, history.SQLOptions{}), history.NewRing(100_000)
		rec := history.New(history.Tee(ring, store), history.Options{Keep: history.KeepAll})
		rnd := rand.New(rand.NewPCG(1, 2))
		for n := range 700 {
			rec.Add(randomRun(rnd, n))
			if n%100 == 0 {
				rec.AddSkipped(history.Fire{Namespace: "billing", Group: "default", Job: "settle", Fire: start.Add(time.Minute), Instance: "a", Skipped: 21, SkippedFrom: start.Add(-time.Duration(n) * time.Second), SkippedBy: history.Skips{Misfire: 1, Disabled: 2, Unoffered: 3, Expired: 4, Overlap: 5, Upstream: 6}})
				rec.AddEnded(history.Fire{
					Namespace: "billing", Group: "default", Job: "export", Fire: start.Add(time.Duration(n%200) * time.Second), Instance: []string{"a", "c"}[n/100%2],
					Shards: 5, Ended: start.Add(time.Duration(n)*time.Second + 1234*time.Nanosecond), FailedShards: rnd.IntN(3), SkippedShards: rnd.IntN(3),
				})
			}
		}
		shutDown(t, rec)
		require.Zero(t, rec.Stats().Dropped)
		for _, namespace := range []string{"billing", "other", "none"} {
			requireEqualReaders(t, ring.Reader(namespace, ""), store.Reader(namespace, "default"))
		}
		t.Run("with other settings of the driver", func(t *testing.T) {
			var db *sql.DB
			var err error
			switch d.dialect {
			case history.Postgres: // as behind a proxy that pools transactions
				db, err = sql.Open("pgx", fmt.Sprintf("postgres://rota@%s/%s?sslmode=disable&timezone=Asia/Tokyo&default_query_exec_mode=simple_protocol", d.server.Addr(), d.name))
			case history.MySQL:
				db, err = sql.Open("mysql", fmt.Sprintf("root@tcp(%s)/%s?parseTime=true&loc=Asia%%2FTokyo&interpolateParams=true&time_zone=%%27%%2B05:00%%27", d.server.Addr(), d.name))
			default:
				db, err = sql.Open("sqlite", "file:"+d.name+"?_time_format=sqlite&_timezone=Asia/Tokyo")
			}
			require.NoError(t, err)
			defer db.Close()
			other := d.store(t, db, history.SQLOptions{})
			b := history.Batch{Runs: []history.Run{runOf(5, 63, 999_999, history.Failed)}}
			require.NoError(t, other.Write(t.Context(), b))
			require.NoError(t, ring.Write(t.Context(), b))
			requireEqualReaders(t, ring.Reader("billing", ""), other.Reader("billing", ""))
		})
	})
}

func TestStore_HoldsHostileTexts(t *testing.T) {
	texts := []string{
		"it's \"quoted\" \\ `so` ${x} $1 ? :a %s", "'); DROP TABLE rota_run; --", "\x00 NUL", "not UTF-8: \xff\xfe \xf0\x9d\x84", "𝄞 😀 four bytes", "line\r\nbreak\ttab\x1b[31m",
		" spaces ", "ends with a space ", "ends with a space", "CASE", "case", "é", "e\u0301", "\u202e\ufeff\u2028", strings.Repeat("𝄞", 3000), strings.Repeat("x", 5000),
		strings.Repeat("x", 5001), strings.Repeat("\x00", 5000), strings.Repeat("\xff", 5000), strings.Repeat("'", 5000), strings.Repeat("\\", 5000),
	}
	forEachDatabase(t, func(t *testing.T, d *database) {
		db := d.migrated(t)
		store, ring := d.store(t, db, history.SQLOptions{}), history.NewRing(10_000)
		rec := history.New(history.Tee(ring, store), history.Options{})
		for i, text := range texts {
			r := runOf(0, i, i, history.Failed)
			r.Error, r.Output, r.TraceID, r.Reason, r.Kind = text, text, text, text, text
			rec.Add(r)
			r = runOf(1, i, i, history.Outcome(text))
			r.Namespace, r.Group, r.Job, r.ID, r.Instance = text, text, text, text, text
			r.Fence, r.Trigger = 1<<64-1, 1<<64-1
			rec.Add(r)
			r.Namespace, r.Group = "billing", "default" // texts of which a database may ignore the difference
			r.Job = "settle"
			rec.Add(r)
		}
		shutDown(t, rec)
		require.Zero(t, rec.Stats().Dropped)
		requireEqualReaders(t, ring.Reader("billing", ""), store.Reader("billing", ""))
		require.Equal(t, 2*len(texts), failuresOf(t, store.Reader("billing", "")))
		for _, text := range texts {
			got, err := store.Reader(text, text).Last(t.Context(), text)
			require.NoError(t, err)
			want, err := ring.Reader(text, text).Last(t.Context(), text)
			require.NoError(t, err)
			require.Len(t, got, 1, "%.50q", text)
			require.Equal(t, want, got)
		}
	})
}

func TestStore_StoresARecordOnce(t *testing.T) {
	forEachDatabase(t, func(t *testing.T, d *database) {
		db := d.migrated(t)
		store := d.store(t, db, history.SQLOptions{})
		var b history.Batch
		for i := range 300 {
			b.Runs = append(b.Runs, runOf(i/10, i, i, history.Failed))
			b.Fires = append(b.Fires, history.Fire{Namespace: "billing", Group: "default", Job: "settle", Fire: start, Instance: "a", Part: uint64(i), Failed: 1})
		}
		for range 3 {
			require.NoError(t, store.Write(t.Context(), b))
		}
		overlapping := history.Batch{Runs: append(b.Runs[:3:3], runOf(0, 1000, 1, history.Failed), b.Runs[5]), Fires: b.Fires[2:4]}
		require.NoError(t, store.Write(t.Context(), overlapping))
		require.Equal(t, 301, failuresOf(t, store.Reader("billing", "")))
		sum, fires := sumOf(t, store.Reader("billing", ""))
		require.EqualValues(t, 300, sum.Failed)
		require.Equal(t, 1, fires)
		require.Equal(t, 300, count(t, db, "SELECT failed FROM rota_fire"), "the view has the sum")
		require.NoError(t, store.Write(t.Context(), history.Batch{}))
	})
}

// The leader records a run as crashed when the session of its owner has ended. The owner may live.
func TestStore_PrefersTheOwnersRecordOfARunToTheLeaders(t *testing.T) {
	crashed := runOf(0, 1, 0, history.Crashed)
	crashed.Started, crashed.Shards, crashed.Reason, crashed.Fence = time.Time{}, 0, "", 0 // the leader does not know them
	crashed.Ended, crashed.Error = start.Add(time.Minute), "the session of the instance ended before the run did"
	own := func(how history.Outcome) history.Run {
		r, code := runOf(0, 1, 1234, how), 3
		r.Output, r.TraceID, r.ItemsFetched, r.ItemsProcessed = "disk full", "4bf92f3577b34da6a3ce929d0e0e4736", 7, 5
		if how.IsFailure() {
			r.Error, r.ExitCode = "exit code 3", &code
		}
		return r
	}
	neighbour, later := runOf(0, 2, 50, history.Failed), own(history.Failed)
	later.Error = "another text"
	cases := []struct {
		name    string
		batches [][]history.Run
		want    history.Run
	}{
		{"that it writes later", [][]history.Run{{crashed}, {own(history.Succeeded)}}, own(history.Succeeded)},
		{"a failure", [][]history.Run{{crashed}, {own(history.Failed)}}, own(history.Failed)},
		{"a run after the loss of its session", [][]history.Run{{crashed}, {own(history.LostSession)}}, own(history.LostSession)},
		{"that it has written before", [][]history.Run{{own(history.Succeeded)}, {crashed}}, own(history.Succeeded)},
		{"in one batch, later", [][]history.Run{{crashed, neighbour, own(history.Succeeded)}}, own(history.Succeeded)},
		{"in one batch, before", [][]history.Run{{own(history.Succeeded), neighbour, crashed}}, own(history.Succeeded)},
		{"of a batch that is written again", [][]history.Run{{crashed}, {own(history.Succeeded), crashed}, {crashed}, {own(history.Succeeded), crashed}}, own(history.Succeeded)},
		{"but not a second one of the owner", [][]history.Run{{own(history.Succeeded)}, {later}, {later, later}}, own(history.Succeeded)},
		{"and of two of leaders the first", [][]history.Run{{crashed}, {func() history.Run { r := crashed; r.Error = "again"; return r }()}}, crashed},
	}
	forEachDatabase(t, func(t *testing.T, d *database) {
		db := d.migrated(t)
		store := d.store(t, db, history.SQLOptions{})
		for _, c := range cases {
			d.exec(t, db, "DELETE FROM rota_run")
			ring := history.NewRing(10)
			for _, runs := range c.batches {
				require.NoError(t, history.Tee(store, ring).Write(t.Context(), history.Batch{Runs: runs}), c.name)
			}
			runs, err := store.Reader("billing", "").Runs(t.Context(), "settle", start, 0)
			require.NoError(t, err)
			require.Equal(t, c.want, runs[0], c.name)
			requireEqualReaders(t, ring.Reader("billing", ""), store.Reader("billing", ""))
		}
	})
}

func TestStore_CountsOnceWhenConnectionsAreCutAfterCommits(t *testing.T) {
	forEachDatabase(t, func(t *testing.T, d *database) {
		db := d.migrated(t)
		var sink history.Sink
		var cuts func() int64
		const n = 5
		if d.server != nil {
			var proxied *sql.DB
			proxied, cuts = d.cutAfterCommits(t, n)
			sink = d.store(t, proxied, history.SQLOptions{})
		} else { // there is no connection
			var done atomic.Int64
			store := d.store(t, db, history.SQLOptions{})
			cuts = done.Load
			sink = history.SinkFunc(func(ctx context.Context, b history.Batch) error {
				if err := store.Write(ctx, b); err != nil || done.Load() == n {
					return err
				}
				done.Add(1)
				return errors.New("cut")
			})
		}
		rec := history.New(sink, history.Options{Logger: quiet, Queue: 1000})
		for i := range 3000 {
			rec.Add(runOf(i%5, i, i%50, []history.Outcome{history.Succeeded, history.Failed}[i%2]))
			if i%300 == 0 {
				<-time.After(50 * time.Millisecond)
			}
		}
		shutDown(t, rec)
		require.EqualValues(t, n, cuts())
		reader := d.store(t, db, history.SQLOptions{}).Reader("billing", "")
		stats := rec.Stats()
		sum, _ := sumOf(t, reader)
		require.EqualValues(t, 3000, sum.Runs()+stats.Dropped.Runs)
		require.EqualValues(t, 1500, int64(failuresOf(t, reader))+stats.Dropped.Failures)
	})
}

// waitUntil waits for a condition that a recorder fulfils in the background.
func waitUntil(t *testing.T, what string, condition func() bool) {
	for end := time.Now().Add(30 * time.Second); !condition(); <-time.After(10 * time.Millisecond) {
		require.True(t, time.Now().Before(end), "in vain: %s", what)
	}
}

func TestStore_LosesNoFailureWhileTheDatabaseIsStopped(t *testing.T) {
	forEachDatabase(t, func(t *testing.T, d *database) {
		db := d.migrated(t)
		store := d.store(t, db, history.SQLOptions{})
		rec := history.New(store, history.Options{Logger: quiet, Queue: 1000})
		added, failures := 0, 0
		add := func(n int) {
			for range n {
				how := history.Succeeded
				if added%20 == 0 {
					how = history.Failed
					failures++
				}
				rec.Add(runOf(added, 0, 5, how))
				added++
			}
		}
		add(1000)
		waitUntil(t, "records written", func() bool { return rec.Stats().Written > 0 })
		resume := d.stop(t)
		add(5000)
		<-time.After(2 * time.Second)
		stats := rec.Stats()
		require.LessOrEqual(t, stats.Pending, 1500)
		require.Positive(t, stats.Dropped.Folded)
		resume()
		add(100)
		shutDown(t, rec)
		stats = rec.Stats()
		require.Zero(t, stats.Dropped.Failures)
		require.Zero(t, stats.Dropped.Refused)
		sum, fires := sumOf(t, store.Reader("billing", ""))
		require.EqualValues(t, added, int64(fires)+stats.Dropped.Fires)
		require.EqualValues(t, added, sum.Runs()+stats.Dropped.Runs)
		require.Equal(t, failures, failuresOf(t, store.Reader("billing", "")))
	})
}

// Recorders of several processes write the same fires, two of them under one name of an instance, as after a restart.
func TestStore_IsSharedByRecorders(t *testing.T) {
	forEachDatabase(t, func(t *testing.T, d *database) {
		d.migrated(t)
		var wg sync.WaitGroup
		for process, instance := range []string{"a", "a", "b", "c"} {
			store := d.store(t, d.open(t), history.SQLOptions{})
			wg.Go(func() {
				rec := history.New(store, history.Options{Logger: quiet, Keep: history.KeepAll})
				for i := range 1000 {
					r := runOf(i%10, process*1000+i, i%50, []history.Outcome{history.Succeeded, history.Failed}[i%2])
					r.Instance = instance
					rec.Add(r)
					// All record a run that the leaders of two terms found crashed. It has one row.
					crashed := runOf(i%10, i, 0, history.Crashed)
					crashed.Instance = "gone"
					rec.Add(crashed)
				}
				shutDown(t, rec)
			})
		}
		wg.Wait()
		db := d.open(t)
		store := d.store(t, db, history.SQLOptions{})
		sum, _ := sumOf(t, store.Reader("billing", ""))
		require.EqualValues(t, 2000, sum.OK)
		require.EqualValues(t, 2000, sum.Failed)
		require.Equal(t, 4000, count(t, db, "SELECT count(*) FROM rota_run WHERE instance <> 'gone'"))
		require.Equal(t, 1000, count(t, db, "SELECT count(*) FROM rota_run WHERE instance = 'gone'"))
	})
}

func TestStore_DropsOnlyTheRowThatTheDatabaseRefuses(t *testing.T) {
	forEachDatabase(t, func(t *testing.T, d *database) {
		db := d.migrated(t)
		switch d.dialect {
		case history.SQLite:
			d.exec(t, db, "CREATE TRIGGER refuse BEFORE INSERT ON rota_run WHEN NEW.shard = 77 BEGIN SELECT RAISE(ABORT, 'refused'); END")
		default:
			d.exec(t, db, "ALTER TABLE rota_run ADD CONSTRAINT refuse CHECK (shard <> 77)")
		}
		store := d.store(t, db, history.SQLOptions{})
		rec := history.New(store, history.Options{Logger: quiet, Queue: 1000})
		for i := range 200 {
			rec.Add(runOf(0, i, 1, history.Failed))
		}
		shard := 200
		waitUntil(t, "a refused record", func() bool {
			rec.Add(runOf(0, shard, 1, history.Failed))
			shard++
			return rec.Stats().Dropped.Refused == 1
		})
		shutDown(t, rec)
		require.Equal(t, history.Dropped{Refused: 1}, rec.Stats().Dropped)
		require.Equal(t, shard-1, failuresOf(t, store.Reader("billing", "")))
	})
}

// trimAll runs rounds of Trim until one has nothing to do.
func trimAll(t *testing.T, store *history.SQLStore, now time.Time) (calls int) {
	for {
		calls++
		more, err := store.Trim(t.Context(), now)
		require.NoError(t, err)
		if !more {
			return calls
		}
	}
}

func TestStore_DeletesWhatIsOld(t *testing.T) {
	forEachDatabase(t, func(t *testing.T, d *database) {
		db := d.migrated(t)
		store := d.store(t, db, history.SQLOptions{Retention: time.Hour})
		require.Equal(t, 1, trimAll(t, store, start), "a store that wrote nothing deletes nothing")
		var b history.Batch
		for i := range 5000 {
			r := runOf(i, 0, 0, []history.Outcome{history.Succeeded, history.Failed}[i%2])
			b.Runs = append(b.Runs, r)
			b.Fires = append(b.Fires, history.Fire{Namespace: "billing", Group: "default", Job: "settle", Fire: r.Fire, Instance: "a", OK: 1})
		}
		other := runOf(0, 0, 0, history.Failed)
		other.Namespace = "other"
		require.NoError(t, d.store(t, db, history.SQLOptions{}).Write(t.Context(), history.Batch{Runs: []history.Run{other}}))
		require.NoError(t, store.Write(t.Context(), b))
		calls := trimAll(t, store, start.Add(time.Hour+4000*time.Second))
		require.GreaterOrEqual(t, calls, 8, "in small steps")
		_, fires := sumOf(t, store.Reader("billing", ""))
		require.Equal(t, 1000, fires)
		require.Equal(t, 1001, count(t, db, "SELECT count(*) FROM rota_run"), "and only in its own groups")
		require.Equal(t, 1, count(t, db, "SELECT count(*) FROM rota_run WHERE namespace = 'other'"))
	})
}

func TestStore_DeletesWhatIsTooMuch(t *testing.T) {
	forEachDatabase(t, func(t *testing.T, d *database) {
		db := d.migrated(t)
		store := d.store(t, db, history.SQLOptions{RowsPerJob: 1500, Retention: -1})
		var b history.Batch
		for i := range 4000 {
			r := runOf(i, 0, 0, history.Failed)
			b.Runs = append(b.Runs, r)
			b.Fires = append(b.Fires, history.Fire{Namespace: "billing", Group: "default", Job: "settle", Fire: r.Fire, Instance: "a", Failed: 1})
		}
		for i := range 100 {
			r := runOf(0, i, 0, history.Failed)
			r.Job = "export"
			b.Runs = append(b.Runs, r)
		}
		require.NoError(t, store.Write(t.Context(), b))
		trimAll(t, store, start)
		reader := store.Reader("billing", "")
		_, fires := sumOf(t, reader)
		require.Equal(t, 1500, fires)
		runs, err := reader.Slowest(t.Context(), history.RunsQuery{Job: "settle", Limit: 10_000})
		require.NoError(t, err)
		require.Len(t, runs, 1500)
		require.Equal(t, start.Add(2500*time.Second), runs[0].Fire, "the latest fires remain")
		require.Equal(t, 1600, count(t, db, "SELECT count(*) FROM rota_run"))
		require.Equal(t, 1, trimAll(t, store, start), "without new rows there is nothing to count")
	})
}

func TestStore_TrimsWhileAnotherDoes(t *testing.T) {
	forEachDatabase(t, func(t *testing.T, d *database) {
		db := d.migrated(t)
		var b history.Batch
		for i := range 3000 {
			b.Runs = append(b.Runs, runOf(i, 0, 0, history.Failed))
		}
		var stores []*history.SQLStore
		for range 3 {
			store := d.store(t, d.open(t), history.SQLOptions{Retention: time.Hour})
			require.NoError(t, store.Write(t.Context(), b))
			stores = append(stores, store)
		}
		var wg sync.WaitGroup
		for _, store := range stores {
			wg.Go(func() {
				for range 10 { // a deadlock or a lock of SQLite ends a round
					for more := true; more; {
						more, _ = store.Trim(t.Context(), start.Add(10*time.Hour))
					}
				}
			})
		}
		wg.Wait()
		require.Zero(t, count(t, db, "SELECT count(*) FROM rota_run"))
	})
}

// A call of Trim reads about as many rows as it deletes, however many there are. MariaDB would sort the table for a
// statement with a wide range.
func TestStore_TrimReadsFewRowsOfMariaDB(t *testing.T) {
	d := newDatabase(t, "MariaDB", history.MySQL)
	db := d.migrated(t)
	db.SetMaxOpenConns(1) // the counter is of a connection
	const rows = 100_000
	d.exec(t, db, fmt.Sprintf(`INSERT INTO rota_run (namespace, grp, job, fire, run_id, instance, trigger_no, shard, shards, attempt, reason, fence, ended_at, took_us,
		outcome, failure, error, output_tail, trace_id)
		SELECT 'billing', 'default', concat('job-', seq %% 10), '2026-03-01' + interval seq second, seq, 'a', 0, 0, 1, 1, 'scheduled', seq,
		'2026-03-01' + interval seq second, 0, 'succeeded', seq %% 100 = 0, '', '', '' FROM seq_1_to_%d`, rows))
	d.exec(t, db, "ANALYZE TABLE rota_run")
	store := d.store(t, db, history.SQLOptions{Retention: time.Hour, RowsPerJob: -1})
	require.NoError(t, store.Write(t.Context(), history.Batch{Runs: []history.Run{runOf(rows, 0, 1, history.Failed)}}))
	read := func() int {
		return count(t, db, "SELECT sum(variable_value) FROM information_schema.session_status WHERE variable_name IN ('Handler_read_next', 'Handler_read_rnd', 'Handler_read_rnd_next')")
	}
	for range 10 {
		before := read()
		_, err := store.Trim(t.Context(), start.Add(rows*time.Second))
		require.NoError(t, err)
		require.LessOrEqual(t, read()-before, 5000)
	}
	require.LessOrEqual(t, count(t, db, "SELECT count(*) FROM rota_run"), rows-8000)
}

// Queries for pages read about as many rows as a page shows: the sums of the last fires of jobs, and counts of the runs of its fires. The
// number of rows in the tables does not matter.
func TestStore_ReadsFewRowsOfMariaDB(t *testing.T) {
	d := newDatabase(t, "MariaDB", history.MySQL)
	db := d.migrated(t)
	db.SetMaxOpenConns(1) // the counter is of a connection
	d.exec(t, db, `INSERT INTO rota_fire_part (namespace, grp, job, fire, trigger_no, instance, part, shards, ok, failed, unfinished, crashed, skipped, repeated,
		max_late_us, max_us, sum_us, failed_shards, skipped_shards)
		SELECT 'billing', 'default', concat('job-', seq % 10), '2026-03-01' + interval floor(seq / 20) second, 0, if(seq % 20 < 10, 'a', 'b'), 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
		FROM seq_1_to_50000`)
	d.exec(t, db, `INSERT INTO rota_run (namespace, grp, job, fire, run_id, instance, trigger_no, shard, shards, attempt, reason, fence, ended_at, took_us,
		outcome, failure, error, output_tail, trace_id)
		SELECT 'billing', 'default', 'job-3', '2026-03-01' + interval floor(seq / 1000) second, seq, 'a', 0, seq % 1000, 1000, 1, 'scheduled', seq,
		'2026-03-01' + interval seq second, 0, 'succeeded', false, '', '', '' FROM seq_1_to_50000`)
	d.exec(t, db, "ANALYZE TABLE rota_run, rota_fire_part")
	r := d.store(t, db, history.SQLOptions{}).Reader("billing", "")
	reads := func(condition string) int {
		return count(t, db, "SELECT CAST(sum(variable_value) AS signed) FROM information_schema.session_status WHERE variable_name "+condition)
	}
	midnight := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name string
		most int
		read func() (int, error)
		want int
	}{
		{"fires", 1000, func() (int, error) {
			fires, err := r.Fires(t.Context(), history.FiresQuery{Job: "job-3", Limit: 60})
			return len(fires), err
		}, 60},
		{"fires before an instant", 1000, func() (int, error) {
			fires, err := r.Fires(t.Context(), history.FiresQuery{Job: "job-3", Until: midnight.Add(1000 * time.Second), Limit: 60})
			return len(fires), err
		}, 60},
		{"latest fires of eight jobs", 8000, func() (n int, err error) {
			latest, err := r.LatestFires(t.Context(), []string{"job-0", "job-1", "job-2", "job-3", "job-4", "job-5", "job-6", "job-7"}, 60)
			for _, fires := range latest {
				n += len(fires)
			}
			return n, err
		}, 480},
		{"cells of two fires", 7000, func() (int, error) { // a row, and a row of the sums, for each run
			cells, err := r.Cells(t.Context(), history.CellsQuery{Job: "job-3", Since: midnight.Add(30 * time.Second), Until: midnight.Add(31 * time.Second), EndShard: 1000, Width: 16})
			return len(cells), err
		}, 126},
		{"runs of three shards", 1500, func() (int, error) {
			runs, err := r.RunsOfShards(t.Context(), "job-3", midnight.Add(30*time.Second), []int{1, 500, 999})
			return len(runs), err
		}, 3},
	} {
		before := reads("LIKE 'Handler_read%'")
		n, err := c.read()
		require.NoError(t, err, c.name)
		require.Equal(t, c.want, n, c.name)
		after := reads("LIKE 'Handler_read%'")
		t.Logf("%s: %d reads", c.name, after-before)
		require.LessOrEqual(t, after-before, c.most, c.name)
	}
}
