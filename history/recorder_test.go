package history

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

var errAway = errors.New("database is away")

// testSink is a Ring of which calls can fail.
type testSink struct {
	*Ring
	mu      sync.Mutex
	calls   []time.Duration // since the start of the test, of each Write
	sizes   []int
	began   time.Time
	fail    func(b Batch) error // may be nil. The batch is not stored if it fails
	lose    bool                // the batch is stored, and Write fails
	trims   []time.Duration
	more    int // calls of Trim that return true
	trimErr error
}

func newTestSink() *testSink { return &testSink{Ring: NewRing(100_000), began: time.Now()} }

func (s *testSink) Write(ctx context.Context, b Batch) error {
	s.mu.Lock()
	s.calls = append(s.calls, time.Since(s.began))
	s.sizes = append(s.sizes, len(b.Fires)+len(b.Runs))
	fail, lose := s.fail, s.lose
	s.mu.Unlock()
	if fail != nil {
		if err := fail(b); err != nil {
			return err
		}
	}
	if err := s.Ring.Write(ctx, b); err != nil || !lose {
		return err
	}
	return errors.New("connection lost after the commit")
}

func (s *testSink) Trim(context.Context, time.Time) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trims = append(s.trims, time.Since(s.began))
	s.more--
	return s.more >= 0, s.trimErr
}

func (s *testSink) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *testSink) sum(t *testing.T) (sum Fire) {
	fires, err := s.Reader("billing", "").Fires(t.Context(), FiresQuery{Job: "settle", Limit: 1 << 30})
	require.NoError(t, err)
	for _, f := range fires {
		sum.merge(&f)
	}
	return sum
}

func (s *testSink) failures(t *testing.T) int {
	runs, err := s.Reader("billing", "").Failures(t.Context(), RunsQuery{Limit: 1 << 30})
	require.NoError(t, err)
	return len(runs)
}

func logTo(w *bytes.Buffer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == "component" {
			return slog.Attr{}
		}
		return a
	}}))
}

func shutDown(t *testing.T, r *Recorder) {
	require.NoError(t, r.Shutdown(context.Background()))
	require.Zero(t, r.Stats().Pending)
}

func TestRecorder_WritesWithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := newTestSink()
		r := New(sink, Options{})
		time.Sleep(time.Minute)
		for shard := range 10 {
			r.Add(runOf(0, shard, 10, Failed))
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, time.Minute+time.Second, sink.calls[0], "the first record waits a second")
		require.LessOrEqual(t, len(sink.calls), 10)
		require.EqualValues(t, 10, sink.sum(t).Failed)
		require.Equal(t, 10, sink.failures(t))
		shutDown(t, r)
	})
}

func TestRecorder_WritesAtOnceWhenTheQueueIsHalfFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := newTestSink()
		r := New(sink, Options{Keep: KeepFires, Queue: 4000})
		for fire := range 2000 {
			r.Add(runOf(fire, 0, 10, Succeeded))
		}
		synctest.Wait()
		require.NotEmpty(t, sink.sizes)
		require.Equal(t, batchMost, sink.sizes[0])
		shutDown(t, r)
		require.EqualValues(t, 2000, sink.sum(t).OK)
	})
}

func TestRecorder_SetsTheGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := NewRing(10)
		r := New(ring, Options{Namespace: "billing"})
		run := runOf(0, 0, 1, Failed)
		run.Namespace, run.Group = "", ""
		r.Add(run)
		r.AddSkipped(Fire{Job: "settle", Fire: run.Fire, Skipped: 2})
		shutDown(t, r)
		fires, err := ring.Reader("billing", "default").Fires(t.Context(), FiresQuery{Job: "settle"})
		require.NoError(t, err)
		require.Len(t, fires, 1)
		require.EqualValues(t, 2, fires[0].Skipped)
		require.EqualValues(t, 1, fires[0].Failed)
	})
}

// While the sink hangs, adding takes no time at all, failed runs are kept, and the rest is counted.
func TestRecorder_NeverBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		sink := newTestSink()
		hang := make(chan struct{})
		sink.fail = func(Batch) error { <-hang; return errAway }
		r := New(sink, Options{Logger: logTo(&log)})
		began := time.Now()
		const fires = 50_000
		for fire := range fires {
			how := Succeeded
			if fire%100 == 0 {
				how = Failed
			}
			r.Add(runOf(fire, 0, 10, how))
			if fire == fires/2 {
				require.Zero(t, time.Since(began))
				time.Sleep(10 * time.Second) // the sink hangs now
				began = time.Now()
			}
		}
		require.Zero(t, time.Since(began))
		require.LessOrEqual(t, r.Stats().Pending, defaultQueue+batchMost)
		sink.set(func() { sink.fail = nil })
		close(hang)
		shutDown(t, r)
		stats := r.Stats()
		require.EqualValues(t, fires, stats.Added)
		require.Equal(t, fires/100, sink.failures(t))
		require.Zero(t, stats.Dropped.Failures)
		require.Positive(t, stats.Dropped.Folded)
		sum := sink.sum(t)
		require.EqualValues(t, fires, sum.Runs()+stats.Dropped.Runs, "%+v", stats)
		require.Contains(t, log.String(), "history records dropped")
	})
}

func TestRecorder_RetriesUntilTheSinkIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		sink := newTestSink()
		sink.fail = func(Batch) error { return errAway }
		r := New(sink, Options{Logger: logTo(&log)})
		time.Sleep(2 * time.Minute)
		for shard := range 300 {
			r.Add(runOf(0, shard, 10, Failed))
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		calls := len(sink.calls)
		require.Greater(t, calls, 20)
		require.Less(t, calls, 80, "the pauses grow")
		require.Equal(t, 1, sink.sizes[calls-1], "and the batches shrink")
		sink.set(func() { sink.fail = nil })
		time.Sleep(longestPause * 3 / 2)
		synctest.Wait()
		require.Equal(t, 300, sink.failures(t))
		require.EqualValues(t, 300, sink.sum(t).Failed)
		require.Zero(t, r.Stats().Dropped)
		shutDown(t, r)
		require.Equal(t, 1, strings.Count(log.String(), "history not written: retrying"))
		require.Equal(t, 1, strings.Count(log.String(), "history is written again"))
	})
}

// The sink stores each batch but fails, as if the connection was cut after the commit.
func TestRecorder_CountsOnceWhenTheOutcomeIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := newTestSink()
		sink.lose = true
		r := New(sink, Options{Logger: slog.New(slog.DiscardHandler)})
		for i := range 600 {
			r.Add(runOf(i%7, i, i%50, []Outcome{Succeeded, Failed}[i%2]))
			time.Sleep(20 * time.Millisecond)
		}
		sink.set(func() { sink.lose = false })
		shutDown(t, r)
		sum := sink.sum(t)
		require.EqualValues(t, 300, sum.OK)
		require.EqualValues(t, 300, sum.Failed)
		require.Equal(t, 300, sink.failures(t))
		require.Zero(t, r.Stats().Dropped)
	})
}

func TestRecorder_DropsARecordThatTheSinkRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		sink := newTestSink()
		sink.fail = func(b Batch) error {
			for _, r := range b.Runs {
				if r.Shard == 77 {
					return errors.New("value refused")
				}
			}
			return nil
		}
		r := New(sink, Options{Logger: logTo(&log)})
		for i := range 2000 {
			r.Add(runOf(i%3, i, 10, Failed))
			time.Sleep(50 * time.Millisecond)
		}
		shutDown(t, r)
		require.Equal(t, Dropped{Refused: 1}, r.Stats().Dropped)
		require.Equal(t, 1999, sink.failures(t))
		require.EqualValues(t, 2000, sink.sum(t).Failed)
		require.Contains(t, log.String(), `msg="history record refused: dropped" record=settle/77/`)
	})
}

func TestRecorder_RefusesNothingWhileTheSinkIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := newTestSink()
		r := New(sink, Options{Logger: slog.New(slog.DiscardHandler)})
		for range 20 { // the sink comes and goes
			sink.set(func() { sink.fail = func(Batch) error { return errAway } })
			r.Add(runOf(0, 0, 10, Failed))
			time.Sleep(time.Minute)
			sink.set(func() { sink.fail = nil })
			time.Sleep(time.Minute)
		}
		require.Zero(t, r.Stats().Dropped)
		shutDown(t, r)
	})
}

func TestRecorder_LogsDropsOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		sink := newTestSink()
		sink.fail = func(Batch) error { return errAway }
		r := New(sink, Options{Queue: 10, Logger: logTo(&log)})
		for i := range 600 {
			r.Add(runOf(i, 0, 10, Failed))
			time.Sleep(time.Second)
		}
		synctest.Wait()
		lines := strings.Count(log.String(), "\n")
		require.GreaterOrEqual(t, lines, 9)
		require.LessOrEqual(t, lines, 11)
		require.Contains(t, log.String(), `error="database is away"`)
		sink.set(func() { sink.fail = nil })
		shutDown(t, r)
		d := r.Stats().Dropped
		require.EqualValues(t, 600, int64(sink.failures(t))+d.Failures)
		require.EqualValues(t, 600, sink.sum(t).Failed+d.Runs)
	})
}

func TestRecorder_Shutdown(t *testing.T) {
	t.Run("writes what is pending at once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			sink := newTestSink()
			r := New(sink, Options{})
			for i := range 3000 {
				r.Add(runOf(i%3, i, 10, Failed))
			}
			began := time.Now()
			shutDown(t, r)
			require.Zero(t, time.Since(began))
			require.Equal(t, 3000, sink.failures(t))
			require.NoError(t, r.Shutdown(t.Context()), "and may be called again")
		})
	})
	t.Run("ends with its context", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			sink := newTestSink()
			sink.fail = func(Batch) error { return errAway }
			r := New(sink, Options{Logger: logTo(&log)})
			r.Add(runOf(0, 0, 10, Failed))
			time.Sleep(time.Hour)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			began := time.Now()
			err := r.Shutdown(ctx)
			require.ErrorIs(t, err, ErrNotWritten)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, ": 2: ")
			require.Equal(t, 5*time.Second, time.Since(began))
			require.Greater(t, len(sink.calls), 2)
			synctest.Wait()
			require.Contains(t, log.String(), `msg="history records not written before the end" records=2 error="database is away"`)
		})
	})
	t.Run("does not wait for the pause after a failure, and tries once more at once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			sink := newTestSink()
			sink.fail = func(Batch) error { return errAway }
			r := New(sink, Options{Logger: slog.New(slog.DiscardHandler)})
			r.Add(runOf(0, 0, 10, Failed))
			time.Sleep(time.Hour)
			synctest.Wait()
			sink.fail = nil
			began := time.Now()
			shutDown(t, r)
			require.Zero(t, time.Since(began))
			require.Equal(t, 1, sink.failures(t))
		})
	})
	t.Run("does not wait for a sink that hangs", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			sink := newTestSink()
			hang := make(chan struct{})
			sink.fail = func(Batch) error { <-hang; return errAway }
			r := New(sink, Options{Logger: slog.New(slog.DiscardHandler)})
			r.Add(runOf(0, 0, 10, Failed))
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			require.ErrorIs(t, r.Shutdown(ctx), ErrNotWritten)
			close(hang)
		})
	})
	t.Run("counts later runs", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := New(newTestSink(), Options{Logger: slog.New(slog.DiscardHandler)})
			shutDown(t, r)
			r.Add(runOf(0, 0, 10, Failed))
			require.Equal(t, Stats{Added: 1, Dropped: Dropped{Runs: 1}}, r.Stats())
		})
	})
}

func TestRecorder_Trims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := newTestSink()
		sink.more = 3
		r := New(sink, Options{Logger: slog.New(slog.DiscardHandler)})
		time.Sleep(trimEvery + time.Second)
		synctest.Wait()
		require.GreaterOrEqual(t, len(sink.trims), 4, "a call as long as there is more, and perhaps another round")
		require.Equal(t, 3*trimPause, sink.trims[3]-sink.trims[0])
		sink.set(func() { sink.trimErr = errAway })
		time.Sleep(10 * trimEvery)
		synctest.Wait()
		require.InDelta(t, 14, len(sink.trims), 6)
		shutDown(t, r)
	})
}

func TestRecorder_IsSafeForConcurrentUse(t *testing.T) {
	sink := newTestSink()
	r := New(sink, Options{Queue: 100_000})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 1000 {
				r.Add(runOf(i%10, g*1000+i, i%100, []Outcome{Succeeded, Failed}[i%2]))
				if i%100 == 0 {
					_ = r.Stats()
				}
			}
		})
	}
	wg.Wait()
	shutDown(t, r)
	sum := sink.sum(t)
	require.EqualValues(t, 8000, sum.Runs())
	require.Equal(t, 4000, sink.failures(t))
}

// tornWriter fails after n bytes, once.
type tornWriter struct {
	bytes.Buffer
	n int
}

func (w *tornWriter) Write(b []byte) (int, error) {
	if w.n > 0 {
		n, _ := w.Buffer.Write(b[:min(w.n, len(b))])
		w.n = 0
		return n, errors.New("disk is full")
	}
	return w.Buffer.Write(b)
}

func TestJSONLines_SurviveATornLine(t *testing.T) {
	w := &tornWriter{n: 60}
	sink := JSONLines(w)
	b := Batch{Runs: []Run{runOf(0, 0, 1, Failed)}}
	require.Error(t, sink.Write(t.Context(), b))
	require.NoError(t, sink.Write(t.Context(), b))
	require.NoError(t, sink.Write(t.Context(), b))
	lines := strings.Split(strings.TrimSuffix(w.String(), "\n"), "\n")
	require.Len(t, lines, 3)
	require.Len(t, lines[0], 60)
	require.Equal(t, lines[1], lines[2])
}

func TestTee_WritesToAll(t *testing.T) {
	a, b := newTestSink(), newTestSink()
	a.fail = func(Batch) error { return errAway }
	b.more = 1
	both := Tee(a, SinkFunc(func(ctx context.Context, batch Batch) error { return b.Write(ctx, batch) }), b)
	require.ErrorIs(t, both.Write(t.Context(), Batch{Runs: []Run{runOf(0, 0, 1, Failed)}}), errAway)
	require.Zero(t, a.failures(t))
	require.Equal(t, 1, b.failures(t))
	more, err := both.(Trimmer).Trim(t.Context(), start)
	require.NoError(t, err)
	require.True(t, more)
}

func TestRing_KeepsTheLatest(t *testing.T) {
	ring := NewRing(10)
	for fire := range 25 {
		b := Batch{Runs: []Run{runOf(fire, 0, 1, Failed)}, Fires: []Fire{{Namespace: "billing", Group: "default", Job: "settle", Fire: start.Add(time.Duration(fire) * time.Second), Part: 1}}}
		require.NoError(t, ring.Write(t.Context(), b))
		require.NoError(t, ring.Write(t.Context(), b))
	}
	fires, err := ring.Reader("billing", "").Fires(t.Context(), FiresQuery{Job: "settle"})
	require.NoError(t, err)
	require.Len(t, fires, 10)
	require.Equal(t, start.Add(24*time.Second), fires[0].Fire)
	runs, err := ring.Reader("billing", "").Failures(t.Context(), RunsQuery{})
	require.NoError(t, err)
	require.Len(t, runs, 10)
	require.Equal(t, start.Add(15*time.Second), runs[9].Fire)
	require.Len(t, ring.runKeys, 10)
	require.Len(t, ring.fireKeys, 10)
}

func BenchmarkRecorder_Add(b *testing.B) {
	r := New(SinkFunc(func(context.Context, Batch) error { return nil }), Options{})
	run := runOf(0, 0, 10, Succeeded)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		run.Shard, run.Fire, run.ID = i, start.Add(time.Duration(i/100)*time.Second), fmt.Sprint(i)
		r.Add(run)
	}
	_ = r.Shutdown(context.Background())
}
