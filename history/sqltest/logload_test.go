package sqltest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/handler"
	"github.com/rota-dev/rota/history"
	"github.com/rota-dev/rota/registry/memory"
)

var (
	logLoadPrinted = flag.Int("logload.printed", 4, "MB that the program of TestLogLoad_OfOneRun prints; the full size is 200")
	logLoadShards  = flag.Int("logload.shards", 300, "shards of TestLogLoad_OfManyShards; the full size is 10000")
	logLoadFires   = flag.Int("logload.fires", 5, "fires of TestLogLoad_OfManyShards, in each of which every shard logs 64 KiB")
)

// heapWatch records the largest heap while a load runs.
type heapWatch struct {
	// running is locked for reading while a run is made, so that none makes garbage during a sample: what is live counts.
	running sync.RWMutex
	before  uint64
	most    uint64
	stop    func()
}

func watchHeap() *heapWatch {
	w := &heapWatch{before: liveHeap()}
	done := make(chan struct{})
	var task sync.WaitGroup
	task.Go(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			w.sample()
		}
	})
	w.stop = sync.OnceFunc(func() { close(done); task.Wait() })
	return w
}

func (w *heapWatch) sample() {
	w.running.Lock()
	defer w.running.Unlock()
	w.most = max(w.most, liveHeap())
}

func liveHeap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// grown returns by how much the live heap was larger at most than before the load.
func (w *heapWatch) grown() int64 {
	w.stop()
	return int64(w.most) - int64(w.before)
}

// mb returns bytes as text.
func mb(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }

// startExecutor starts an executor of one job that only a trigger runs, with an observer of a recorder.
func startExecutor(t *testing.T, rec *history.Recorder, job executor.Job) (ex *executor.Executor, shutDown func()) {
	t.Helper()
	ex, err := executor.New(memory.New().Client("a"), "billing", executor.Options{Instance: "a", Workers: 64, Logger: quiet, Observer: rec.Observer()})
	require.NoError(t, err)
	require.NoError(t, ex.Register(job))
	require.NoError(t, ex.Start(t.Context()))
	return ex, func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(t, ex.Shutdown(ctx))
	}
}

// logBytes returns the size of the logs in the table, as its bounds count it.
func logBytes(t *testing.T, d *database) int {
	return count(t, d.control(t), "SELECT coalesce(sum(bytes), 0) FROM rota_log")
}

// A program prints 200 MB: the memory of its owner is flat, the table has the begin and the end, and the program is not held up.
func TestLogLoad_OfOneRun(t *testing.T) {
	forEachDatabase(t, func(t *testing.T, d *database) {
		const bound = 64 << 10
		db := d.migrated(t)
		store := d.store(t, db, history.SQLOptions{})
		rec := history.New(store, history.Options{Namespace: "billing", Logger: quiet})
		ended := make(chan time.Duration, 1)
		lines := *logLoadPrinted * 1_000_000 / 100
		cmd := handler.Cmd{
			Script: fmt.Sprintf("yes %s | head -n %d; echo the last line", strings.Repeat("x", 99), lines),
			Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		}
		ex, stop := startExecutor(t, rec, executor.Job{Name: "settle", Handler: executor.HandlerFunc(func(ctx context.Context, r *executor.Run) error {
			began := time.Now()
			err := cmd.Handle(ctx, r)
			ended <- time.Since(began)
			return err
		})})
		heap := watchHeap()
		_, err := ex.Operator().Trigger(t.Context(), "settle", "", nil)
		require.NoError(t, err)
		took := <-ended
		heap.sample()
		stop()
		shutDown(t, rec)
		grown := heap.grown()

		bytes := logBytes(t, d)
		pieces := logsOf(t, store.Reader("billing", ""), history.LogQuery{Job: "settle", Limit: 1 << 20})
		all := history.LogLines(pieces)
		t.Logf("%d MB printed in %v; heap grew by %s at most; %d pieces, %d bytes in the table; lines dropped for lack of memory: %d",
			*logLoadPrinted, took.Round(time.Millisecond), mb(grown), len(pieces), bytes, rec.Stats().Dropped.LogLines)
		require.Less(t, grown, int64(8<<20))
		require.LessOrEqual(t, bytes, bound+bound/4)
		require.Equal(t, []string{history.LogStdout, strings.Repeat("x", 99)}, []string{all[0].Kind, all[0].Text})
		require.Equal(t, "the last line", all[len(all)-2].Text)
		require.Equal(t, history.LogEnd, all[len(all)-1].Kind)
		require.Equal(t, 1, countKind(all, history.LogMissing))
	})
}

func countKind(lines []history.LogLine, kind string) (n int) {
	for _, l := range lines {
		if l.Kind == kind {
			n++
		}
	}
	return n
}

// Many shards log 64 KiB each, several times, while the database works, is dead, and is full.
func TestLogLoad_OfManyShards(t *testing.T) {
	forEachDatabase(t, func(t *testing.T, d *database) {
		for name, disturb := range map[string]func(t *testing.T) (mend func()){
			"works": func(*testing.T) func() { return func() {} },
			"dead":  func(t *testing.T) func() { return d.stop(t) },
			"full":  func(t *testing.T) func() { return d.fill(t) },
		} {
			t.Run(name, func(t *testing.T) { loadShards(t, d, disturb) })
		}
	})
}

func loadShards(t *testing.T, d *database, disturb func(t *testing.T) (mend func())) {
	const fireBound, jobBound, memory = 4 << 20, 4 << 20, 16 << 20
	db := d.migrated(t)
	d.exec(t, db, "DELETE FROM rota_log")
	store := d.store(t, db, history.SQLOptions{LogBytesPerJob: jobBound, LogFires: 1})
	rec := history.New(store, history.Options{Namespace: "billing", Logger: quiet})
	heap := watchHeap()
	text := strings.Repeat("x", 1000)
	var mu sync.Mutex
	var took []time.Duration
	mend := disturb(t)
	began := time.Now()
	for fire := range *logLoadFires {
		var shards sync.WaitGroup
		turns := make(chan struct{}, 64) // workers
		for shard := range *logLoadShards {
			turns <- struct{}{}
			shards.Go(func() {
				defer func() { <-turns }()
				info := executor.RunInfo{
					Namespace: "billing", Group: "default", Job: "settle", ID: fmt.Sprint(fire, "/", shard), Instance: "a", Shard: shard,
					FireTime: start.Add(time.Duration(fire) * time.Hour), Attempt: 1, Fence: uint64(fire + 1),
				}
				heap.running.RLock()
				defer heap.running.RUnlock()
				before := time.Now()
				log := slog.New(rec.Observer().RunLog(info))
				for range 64 {
					log.Info(text)
				}
				rec.Observer().RunEnded(executor.RunEnded{Run: info, Ended: time.Now(), Outcome: history.Failed, Err: errors.New("no")})
				mu.Lock()
				defer mu.Unlock()
				took = append(took, time.Since(before))
			})
		}
		shards.Wait()
	}
	added := time.Since(began)
	heap.sample()
	mend()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	_ = rec.Shutdown(ctx)                        // a database that was away may not get all
	trimAll(t, store, time.Now().Add(time.Hour)) // the recorder may have just trimmed, and its next round is later
	grown, stats, bytes := heap.grown(), rec.Stats(), logBytes(t, d)
	slices.Sort(took)
	at := func(q float64) time.Duration { return took[int(q*float64(len(took)-1))].Round(time.Microsecond) }
	t.Logf("%d runs logged %s in %v: a run p50 %v, p99 %v, longest %v; heap grew by %s at most; %s in the table; pieces %d; lines dropped %d",
		len(took), mb(int64(len(took)*64*len(text))), added.Round(time.Millisecond), at(.5), at(.99), at(1), mb(grown), mb(int64(bytes)), stats.LogPieces, stats.Dropped.LogLines)
	const perRun, connections = 2 << 10, 16 << 20 // what a run has beside its lines while they wait, and what the driver has
	require.Less(t, grown, int64(memory+connections+len(took)*perRun))
	// Logs of failed runs have the bound of the job for themselves, and those of one fire stay together.
	require.LessOrEqual(t, bytes, 2*jobBound+fireBound)
	// A run that waits for the database would wait until it is mended, after all runs. A busy machine delays some.
	require.Less(t, at(.5), 50*time.Millisecond)
	require.Less(t, at(.99), 5*time.Second)
}

// fill makes each write fail as on a full disk, until the returned function is called.
func (d *database) fill(t *testing.T) (mend func()) {
	db := d.control(t)
	if d.dialect == history.SQLite {
		// PRAGMA max_page_count is of a connection.
		d.exec(t, db, "CREATE TRIGGER fill BEFORE INSERT ON rota_log BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END")
		return func() { d.exec(t, db, "DROP TRIGGER fill") }
	}
	if d.dialect == history.MySQL {
		d.exec(t, db, "CREATE TRIGGER fill BEFORE INSERT ON rota_log FOR EACH ROW SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1114, MESSAGE_TEXT = 'The table is full'")
		return func() { d.exec(t, db, "DROP TRIGGER fill") }
	}
	d.exec(t, db, "CREATE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$")
	d.exec(t, db, "CREATE TRIGGER fill BEFORE INSERT ON rota_log FOR EACH ROW EXECUTE FUNCTION fill()")
	return func() {
		d.exec(t, db, "DROP TRIGGER fill ON rota_log")
		d.exec(t, db, "DROP FUNCTION fill()")
	}
}
