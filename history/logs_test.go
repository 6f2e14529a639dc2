package history

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/handler"
	"github.com/rota-dev/rota/registry/memory"
	"github.com/rota-dev/rota/rotatest"
)

// logSink is a testSink that counts pieces and can fail to store them.
type logSink struct {
	*testSink
	pieces  []Log
	at      []time.Duration // of each call
	failLog func(pieces []Log) error
	hang    bool
}

func newLogSink() *logSink { return &logSink{testSink: newTestSink()} }

func (s *logSink) WriteLogs(ctx context.Context, pieces []Log) error {
	s.mu.Lock()
	s.pieces = append(s.pieces, pieces...)
	s.at = append(s.at, time.Since(s.began))
	fail, hang := s.failLog, s.hang
	s.mu.Unlock()
	if hang {
		<-ctx.Done()
		return ctx.Err()
	}
	if fail != nil {
		if err := fail(pieces); err != nil {
			return err
		}
	}
	return s.Ring.WriteLogs(ctx, pieces)
}

// lines returns the lines of the log of a run, as "kind text".
func (s *logSink) lines(t *testing.T, run string) (lines []string) {
	pieces, err := s.Reader("billing", "").(LogReader).Logs(t.Context(), LogQuery{Job: "settle", Run: run})
	require.NoError(t, err)
	for _, l := range LogLines(pieces) {
		lines = append(lines, l.Kind+" "+l.Text)
	}
	return lines
}

func infoOf(shard int) executor.RunInfo {
	r := runOf(0, shard, 0, Succeeded)
	return executor.RunInfo{Namespace: "billing", Group: "default", Job: r.Job, ID: r.ID, Instance: "a", Shard: shard, Shards: 64, FireTime: r.Fire, Attempt: 1, Fence: 1}
}

func loggerOf(t *testing.T, r *Recorder, shard int) *slog.Logger {
	h := r.Observer().RunLog(infoOf(shard))
	require.NotNil(t, h)
	return slog.New(h)
}

func endOf(r *Recorder, shard int, how Outcome, err error) {
	r.Observer().RunEnded(executor.RunEnded{Run: infoOf(shard), Ended: time.Now(), Outcome: how, Err: err})
}

func TestLogs_AreWrittenWhileTheRunGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := newLogSink()
		r := New(sink, Options{})
		log := loggerOf(t, r, 3)
		id := infoOf(3).ID
		time.Sleep(time.Minute)
		for n := range 5 {
			begun := time.Since(sink.began)
			log.Info("step", "n", n)
			time.Sleep(time.Second)
			synctest.Wait()
			require.Len(t, sink.lines(t, id), n+1, "a line is there within a second")
			require.LessOrEqual(t, sink.at[n]-begun, time.Second)
		}
		calls := len(sink.at)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Len(t, sink.at, calls, "nothing is written without new lines")
		endOf(r, 3, Failed, errors.New("exit code 3"))
		endOf(r, 4, Failed, errors.New("exit code 3"))
		shutDown(t, r)
		require.Equal(t, []string{"info step n=0", "info step n=1", "info step n=2", "info step n=3", "info step n=4", "end failed"}, sink.lines(t, id))
		require.Empty(t, sink.lines(t, infoOf(4).ID), "a run that logs nothing has no log")
		require.Zero(t, r.Stats().LogWaiting)
		require.Empty(t, r.logs.open)
	})
}

func TestLogs_HaveTheFormOfText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := newLogSink()
		masked := func(text string) string { return strings.ReplaceAll(text, "secret-token", "***") }
		r := New(sink, Options{Logs: LogOptions{Mask: masked, Level: slog.LevelDebug, Skip: func(job string) bool { return job == "payroll" }}})
		log := loggerOf(t, r, 0)
		log.Debug("a secret-token", "err", errors.New("with secret-token"))
		log.With("a", "b c").WithGroup("g").Warn("grouped", "n", 1, slog.Group("h", "x", time.Second), "empty", "")
		log.Error("two\nlines\n", "at", start)
		log.Info("bytes \xff\x00")
		log.Info("output", "stream", "stdout", "line", "printed", "cut", 7)
		log.Info("output", "stream", "stderr", "line", "secret-token")
		log.Info("output", "n", 1, "x", 2)
		log.Log(t.Context(), slog.LevelDebug-1, "below the level")
		log.Info(strings.Repeat("x", maxLogLine+10))
		log.Info("")
		endOf(r, 0, Succeeded, nil)
		info := infoOf(1)
		info.Job = "payroll"
		require.Nil(t, r.Observer().RunLog(info), "the output of the job is secret")
		shutDown(t, r)
		require.Equal(t, []string{
			`debug a *** err="with ***"`, `warn grouped a="b c" g.n=1 g.h.x=1s g.empty=""`, "error two", "error lines", "error  at=2026-03-01T12:00:00Z",
			"info bytes \uFFFD\uFFFD", "stdout printed [and 7 bytes]", "stderr ***", "info output n=1 x=2", "info " + strings.Repeat("x", maxLogLine) + " [and 10 bytes]",
			"info ", "end succeeded",
		}, sink.lines(t, infoOf(0).ID))
	})
}

// A piece whose outcome is unknown is written again under the same key.
func TestLogs_AreIdempotentAndInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := newLogSink()
		n := 0
		sink.failLog = func(pieces []Log) error {
			if n++; n%3 != 0 {
				_ = sink.Ring.WriteLogs(t.Context(), pieces)
				return errors.New("connection lost after the commit")
			}
			return nil
		}
		r := New(sink, Options{Logger: slog.New(slog.DiscardHandler)})
		var want [2][]string
		for n := range 200 {
			for shard := range 2 {
				loggerOf(t, r, shard).Info("line", "n", n)
				want[shard] = append(want[shard], fmt.Sprintf("info line n=%d", n))
			}
			time.Sleep(50 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		sink.set(func() { sink.failLog = nil })
		endOf(r, 0, Succeeded, nil)
		shutDown(t, r)
		require.Equal(t, append(want[0], "end succeeded"), sink.lines(t, infoOf(0).ID))
		require.Equal(t, want[1], sink.lines(t, infoOf(1).ID))
		texts := map[string]string{}
		for _, p := range sink.pieces {
			key := fmt.Sprint(p.Run, " ", p.Piece)
			if text, again := texts[key]; again {
				require.Equal(t, text, p.Text)
			}
			texts[key] = p.Text
		}
		require.Greater(t, len(sink.pieces), len(texts), "some were written again")
		require.Zero(t, r.Stats().Dropped)
	})
}

// A sink that hangs or is full delays no line and no record; lines that do not fit are dropped and counted.
func TestLogs_DelayNoRun(t *testing.T) {
	for _, hang := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			sink := newLogSink()
			sink.hang = hang
			sink.failLog = func([]Log) error { return errors.New("disk full") }
			var text bytes.Buffer
			r := New(sink, Options{Logger: logTo(&text), Logs: LogOptions{Memory: 1 << 20}})
			began := time.Now()
			for shard := range 64 {
				log := loggerOf(t, r, shard)
				for n := range 1000 {
					log.Info("a line of a log that has a hundred bytes or so, such as those of a program that prints much", "n", n)
				}
			}
			require.Zero(t, time.Since(began), "a line takes no time")
			for shard := range 64 {
				run := runOf(0, shard, 10, Failed)
				r.Add(run)
			}
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			require.Equal(t, 64, sink.failures(t), "records are written nevertheless")
			stats := r.Stats()
			require.Positive(t, stats.Dropped.LogLines)
			require.Positive(t, stats.Dropped.LogBytes)
			require.LessOrEqual(t, stats.LogWaiting, int64(1<<20))
			require.Zero(t, stats.LogPieces)
			require.NoError(t, r.Shutdown(t.Context()))
			require.Zero(t, r.Stats().LogWaiting)
			require.Contains(t, text.String(), `level=WARN msg="logs of runs not written: retrying"`)
			require.Equal(t, 1, strings.Count(text.String(), "logs of runs not written"))
			require.Contains(t, text.String(), "log_lines=")
		})
	}
}

func TestLogs_DropOnlyAPieceThatTheSinkRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := newLogSink()
		sink.failLog = func(pieces []Log) error {
			for _, p := range pieces {
				if strings.Contains(p.Text, "bad") {
					return errors.New("refused")
				}
			}
			return nil
		}
		r := New(sink, Options{Logger: slog.New(slog.DiscardHandler)})
		for shard := range 20 {
			loggerOf(t, r, shard).Info([]string{"good", "bad"}[shard/19])
		}
		time.Sleep(5 * time.Minute)
		for shard := range 20 {
			endOf(r, shard, Succeeded, nil)
		}
		shutDown(t, r)
		for shard := range 19 {
			require.Equal(t, []string{"info good", "end succeeded"}, sink.lines(t, infoOf(shard).ID))
		}
		require.Equal(t, []string{"missing 1 line (34 bytes) is missing", "end succeeded"}, sink.lines(t, infoOf(19).ID))
		require.Equal(t, Dropped{LogLines: 1, LogBytes: 34}, r.Stats().Dropped)
	})
}

// The bounds of a fire, and of a job and second, around which the number of bytes is.
func TestLogs_AreBoundedByFireAndSecond(t *testing.T) {
	const shards, lines = 20, 20
	size := len(appendLogLine(nil, start, "info", "0123456789"))
	all := shards * lines * size
	for _, tt := range []struct{ fire, second int }{
		{1, 1 << 20},
		{size + logPieceCost - 1, 1 << 20},
		{64 << 10, leastLogRate},
		{8 << 10, 1 << 20},
		{all + shards*logPieceCost - 1, 1 << 20},
		{all + shards*logPieceCost, 1 << 20},
	} {
		t.Run(fmt.Sprintf("%+v", tt), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sink := newLogSink()
				r := New(sink, Options{Logger: slog.New(slog.DiscardHandler), Logs: LogOptions{Fire: tt.fire, JobPerSecond: tt.second}})
				for shard := range shards {
					for range lines {
						loggerOf(t, r, shard).Info("0123456789")
					}
				}
				seconds := map[time.Duration]int{}
				written, pieces := 0, 0
				for range 600 {
					time.Sleep(100 * time.Millisecond)
					synctest.Wait()
					sink.set(func() {
						for _, p := range sink.pieces[pieces:] {
							written += len(p.Text)
							seconds[sink.at[len(sink.at)-1].Truncate(time.Second)] += len(p.Text)
						}
						pieces = len(sink.pieces)
					})
				}
				require.LessOrEqual(t, written+pieces*logPieceCost, max(tt.fire, 0))
				for second, bytes := range seconds {
					require.LessOrEqual(t, bytes, tt.second, second)
				}
				require.EqualValues(t, all-written, r.Stats().Dropped.LogBytes)
				require.Equal(t, tt.fire >= all+shards*logPieceCost || tt.second == leastLogRate, written == all)
				if tt.second == leastLogRate {
					require.Greater(t, len(seconds), 1)
				}
				shutDown(t, r)
			})
		})
	}
}

// Fire bounds the lines that are kept. A run that prints more keeps its last lines.
func TestLogs_OfARunThatPrintsOnAndOnHaveItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := NewRing(100_000)
		r := New(ring, Options{Logger: slog.New(slog.DiscardHandler), Logs: LogOptions{Fire: 256 << 10}})
		log := loggerOf(t, r, 0)
		const lines = 6000
		for n := range lines {
			log.Info(fmt.Sprintf("%06d %s", n, strings.Repeat("x", 993))) // 10 KB a second
			time.Sleep(100 * time.Millisecond)
		}
		r.Observer().RunEnded(executor.RunEnded{Run: infoOf(0), Ended: time.Now(), Outcome: Failed, Err: errors.New("no")})
		require.NoError(t, r.Shutdown(t.Context()))
		pieces, err := ring.Reader("billing", "").(LogReader).Logs(t.Context(), LogQuery{Job: "settle", Limit: 1 << 20})
		require.NoError(t, err)
		all := LogLines(pieces)
		require.Equal(t, "000000", all[0].Text[:6])
		require.Equal(t, fmt.Sprintf("%06d", lines-1), all[len(all)-2].Text[:6])
		require.Equal(t, LogEnd, all[len(all)-1].Kind)
		require.Zero(t, r.Stats().Dropped.LogLines)
		size := 0
		for i := range pieces {
			size += len(pieces[i].Text) + logPieceCost
		}
		require.Less(t, size, defaultLogRun+defaultLogRun/8)
	})
}

func TestLogs_AreNotWantedByOtherSinksAndSettings(t *testing.T) {
	plain := SinkFunc(func(context.Context, Batch) error { return nil })
	for _, tt := range []struct {
		sink Sink
		o    Options
		want bool
	}{
		{NewRing(1), Options{}, true},
		{Tee(plain, NewRing(1)), Options{}, true},
		{JSONLines(&bytes.Buffer{}), Options{}, true},
		{plain, Options{}, false},
		{Tee(plain, plain), Options{}, false},
		{NewRing(1), Options{Keep: KeepFires}, false},
		{NewRing(1), Options{Logs: LogOptions{Off: true}}, false},
	} {
		r := New(tt.sink, tt.o)
		require.Equal(t, tt.want, r.Observer().RunLog != nil)
		shutDown(t, r)
	}
}

// Memory stays flat under 200 MB of output of a run, and 10,000 shards that each print 64 KiB every minute, which bounds the store too.
func TestLogs_LeaveMemoryFlat(t *testing.T) {
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	text := strings.Repeat("x", 1000)
	record := slog.NewRecord(time.Now(), slog.LevelInfo, "output", 0)
	record.AddAttrs(slog.String("stream", "stdout"), slog.String("line", text))
	t.Run("of one run", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ring := NewRing(64)
			r := New(ring, Options{Namespace: "billing"})
			h := r.Observer().RunLog(infoOf(0))
			before := heap()
			for n := range 200 << 20 / 1000 {
				require.NoError(t, h.Handle(t.Context(), record))
				if n%20_000 == 0 {
					time.Sleep(time.Second)
					require.LessOrEqual(t, r.Stats().LogWaiting, int64(96<<10))
					require.Less(t, heap(), before+2<<20)
				}
			}
			endOf(r, 0, Succeeded, nil)
			shutDown(t, r)
			pieces, err := ring.Reader("billing", "").(LogReader).Logs(t.Context(), LogQuery{Job: "settle"})
			require.NoError(t, err)
			kept := 0
			for _, p := range pieces {
				kept += len(p.Text)
			}
			require.LessOrEqual(t, kept, defaultLogRun)
			require.Greater(t, kept, defaultLogRun/2)
			require.Zero(t, r.Stats().Dropped)
		})
	})
	t.Run("of 10,000 shards", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			const shards, minutes = 10_000, 2
			ring := NewRing(1024)
			r := New(ring, Options{Namespace: "billing", Logger: slog.New(slog.DiscardHandler)})
			var first uint64
			for minute := range minutes {
				for shard := range shards {
					info := infoOf(shard)
					info.FireTime = info.FireTime.Add(time.Duration(minute) * time.Minute)
					info.ID = fmt.Sprint(shard, "/", minute)
					h := r.Observer().RunLog(info)
					for range 64 << 10 / 1000 {
						require.NoError(t, h.Handle(t.Context(), record))
					}
					require.LessOrEqual(t, r.Stats().LogWaiting, int64(defaultLogMemory))
					if shard%1000 == 999 {
						time.Sleep(time.Second)
					}
				}
				time.Sleep(20 * time.Second)
				for shard := range shards {
					info := infoOf(shard)
					info.ID = fmt.Sprint(shard, "/", minute)
					r.Observer().RunEnded(executor.RunEnded{Run: info, Ended: time.Now(), Outcome: Succeeded})
				}
				time.Sleep(30 * time.Second)
				synctest.Wait()
				require.Empty(t, r.logs.open)
				require.Zero(t, r.Stats().LogWaiting)
				if now := heap(); first == 0 {
					first = now
				} else {
					require.Less(t, now, first+8<<20)
				}
			}
			require.LessOrEqual(t, r.Stats().LogPieces, int64(minutes*defaultLogFire/logPieceCost))
			shutDown(t, r)
		})
	})
}

// What handlers log, programs print and panics show, of a fleet.
func TestLogs_OfAFleet(t *testing.T) {
	rotatest.Run(t, func(f *rotatest.Fleet) {
		ring := NewRing(1000)
		rec := New(ring, Options{Namespace: rotatest.Namespace, Instance: "a"})
		f.T().Cleanup(func() { shutDown(t, rec) })
		f.Options.Observer = rec.Observer()
		f.Start("a", executor.Job{Name: "logs", Handler: executor.HandlerFunc(func(_ context.Context, r *executor.Run) error {
			r.Job, r.ID = "changed", "by the handler"
			r.Logger().Info("begun", "param", r.Param)
			return nil
		})}, executor.Job{Name: "panics", Handler: executor.HandlerFunc(func(context.Context, *executor.Run) error { panic("at once") })},
			executor.Job{Name: "silent", Handler: executor.HandlerFunc(func(context.Context, *executor.Run) error { return errors.New("failed") })})
		f.Settle()
		for _, job := range []string{"logs", "panics", "silent"} {
			f.Trigger(job, executor.Trigger{Param: "p"})
		}
		f.Sleep(5 * time.Second)
		linesOf := func(job string) (lines []LogLine) {
			pieces, err := ring.Reader(rotatest.Namespace, "").(LogReader).Logs(t.Context(), LogQuery{Job: job, Trigger: 1, Latest: true})
			require.NoError(t, err)
			return LogLines(pieces)
		}
		logs := linesOf("logs")
		require.Len(t, logs, 2)
		require.Equal(t, "begun param=p", logs[0].Text)
		require.Equal(t, "succeeded", logs[1].Text)
		panics := linesOf("panics")
		require.Greater(t, len(panics), 5)
		require.Equal(t, "handler panicked: at once", panics[0].Text)
		require.Equal(t, LogPanic, panics[0].Kind)
		require.Contains(t, fmt.Sprint(panics), "TestLogs_OfAFleet")
		require.Equal(t, LogLine{panics[len(panics)-1].At, LogEnd, "panicked"}, panics[len(panics)-1])
		require.Empty(t, linesOf("silent"))
	})
}

// The log of the process has bounds of its own.
func TestLogs_OfAProgram(t *testing.T) {
	for name, limit := range map[string]int{"logged": 0, "not logged": -1} {
		for _, own := range []bool{false, true} {
			t.Run(fmt.Sprint(name, own), func(t *testing.T) {
				ring, ended := NewRing(1000), make(chan struct{})
				rec := New(ring, Options{Namespace: "billing"})
				var log bytes.Buffer
				ex, err := executor.New(memory.New().Client("a"), "billing", executor.Options{Logger: logTo(&log), Observer: rec.Observer(), DrainTimeout: -1})
				require.NoError(t, err)
				cmd := handler.Shell(`for i in 1 2 3; do echo "out $i"; done; echo oops >&2; exit 3`)
				if cmd.LogLimit = limit; own {
					cmd.Logger = logTo(&log)
				}
				require.NoError(t, ex.Register(executor.Job{Name: "settle", Handler: cmd}))
				ex.Observe(executor.Observer{RunEnded: func(executor.RunEnded) { close(ended) }})
				require.NoError(t, ex.Start(t.Context()))
				_, err = ex.Trigger(t.Context(), "settle", executor.Trigger{})
				require.NoError(t, err)
				<-ended
				require.NoError(t, ex.Shutdown(context.Background()))
				shutDown(t, rec)
				pieces, err := ring.Reader("billing", "").(LogReader).Logs(t.Context(), LogQuery{Job: "settle"})
				require.NoError(t, err)
				got := map[string][]string{}
				for _, l := range LogLines(pieces) {
					got[l.Kind] = append(got[l.Kind], l.Text)
				}
				require.Equal(t, map[string][]string{LogStdout: {"out 1", "out 2", "out 3"}, LogStderr: {"oops"}, LogEnd: {"failed"}}, got)
				require.Equal(t, limit == 0, strings.Contains(log.String(), "line=oops"))
			})
		}
	}
}
