package web

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/history"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry/memory"
	"github.com/rota-dev/rota/schedule"
)

// pageLimit bounds each page of a large fleet, in bytes.
const pageLimit = 200 << 10

// largePages are the pages of a large fleet. "big" has 10,000 shards, of which one in seven fails.
var largePages = []string{
	"/", "/?from=5000", "/?q=tenant-00", "/?state=ok", "/instances", "/doctor", "/timeline", "/timeline?kind=decision", "/timeline?job=big", "/acts", "/acts?job=big",
	"/jobs/big", "/jobs/big/explain", "/jobs/big/explain?shard=7", "/jobs/big/grid", "/jobs/big/grid?shards=0-63", "/jobs/big/fires/~1", "/jobs/big/fires/~1?from=5000",
	"/jobs/big/fires/~1/shards/7", "/jobs/big/act/trigger", "/jobs/big/act/override",
}

// newLarge returns the console of a fleet with 10,000 jobs and one of 10,000 shards, which has run.
func newLarge(t testing.TB) *Console {
	server, ring := memory.New(), history.NewRing(100_000)
	discard := slog.New(slog.DiscardHandler)
	ex, err := executor.New(server.Client("a"), "large", executor.Options{Instance: "a", Logger: discard})
	require.NoError(t, err)
	ok := executor.HandlerFunc(func(context.Context, *executor.Run) error { return nil })
	jobs := []executor.Job{{Name: "big", Shards: 10_000, Handler: executor.HandlerFunc(func(_ context.Context, r *executor.Run) error {
		if r.Shard%7 == 0 {
			return errors.New(strings.Repeat("dial tcp: i/o timeout ", 50))
		}
		return nil
	})}}
	for i := range 10_000 {
		jobs = append(jobs, executor.Job{Name: fmt.Sprintf("tenant-%04d-%s", i, strings.Repeat("x", 40)), Schedule: schedule.Cron("0 3 * * *").In("Asia/Shanghai"), Handler: ok})
	}
	require.NoError(t, ex.Register(jobs...))
	recorder := history.New(ring, history.Options{Namespace: "large", Queue: 100_000, Logger: discard})
	ex.Observe(recorder.Observer())
	require.NoError(t, ex.Start(t.Context()))
	t.Cleanup(func() { _ = ex.Shutdown(context.Background()) })
	op := ex.Operator()
	await := func(what string, holds func(operator.GroupStatus) bool) {
		require.Eventually(t, func() bool {
			st, err := op.Group(t.Context())
			return err == nil && holds(st)
		}, 5*time.Minute, 100*time.Millisecond, what)
	}
	await("all jobs are planned", func(st operator.GroupStatus) bool {
		return len(st.Jobs) == 10_001 && st.Jobs[10_000].Shards == 1 && st.Jobs[0].Shards == 10_000
	})
	_, err = op.Trigger(t.Context(), "big", "", nil)
	require.NoError(t, err)
	await("big has run", func(st operator.GroupStatus) bool {
		return st.Jobs[0].Counts.Succeeded+st.Jobs[0].Counts.Failed == 10_000 && st.Jobs[0].Running == 0
	})
	require.NoError(t, recorder.Shutdown(context.Background()))
	return consoleOfAdmin(t, op, Options{History: ring.Reader("large", "")})
}

// consoleOfAdmin returns a console that takes everybody for an administrator.
func consoleOfAdmin(t testing.TB, op *operator.Operator, o Options) *Console {
	o.Acts, o.Logger, o.Authorize = true, slog.New(slog.DiscardHandler), func(*http.Request) (User, error) { return User{"lee", Admin}, nil }
	c, err := New(op, o)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// definedPages are the pages of a fleet with many jobs that were defined as data.
var definedPages = []string{
	"/", "/instances", "/doctor", "/acts", "/definitions", "/definitions?kind=note", "/definitions?kind=other", "/definitions?prefix=tenant-09", "/definitions?prefix=tenant-099",
	"/jobs/tenant-00007", "/jobs/tenant-00007/explain", "/jobs/tenant-00007/act/delete", "/act/define?kind=note",
}

// newDefined returns the console of a fleet with a kind, of which n jobs are defined that rest.
func newDefined(t testing.TB, n int) *Console {
	server, discard := memory.New(), slog.New(slog.DiscardHandler)
	ex, err := executor.New(server.Client("a"), "large", executor.Options{Instance: "a", Logger: discard})
	require.NoError(t, err)
	require.NoError(t, ex.RegisterKind(executor.Kind{Name: "note", Handler: executor.HandlerFunc(func(context.Context, *executor.Run) error { return nil })}))
	require.NoError(t, ex.Start(t.Context()))
	t.Cleanup(func() { _ = ex.Shutdown(context.Background()) })
	op, defs := ex.Operator(), make([]operator.Definition, n)
	for i := range defs {
		defs[i] = operator.Definition{Name: fmt.Sprintf("tenant-%05d", i), Kind: "note", Schedule: schedule.At(time.Now().Add(24 * time.Hour)), Param: strings.Repeat("p", 100)}
	}
	_, err = op.DefineAll(t.Context(), defs)
	require.NoError(t, err)
	return consoleOfAdmin(t, op, Options{})
}

// Each page of 10,000 jobs, of a job of 10,000 shards, and of jobs that are defined as data, is small.
// In a bubble no call takes longer than its timeout, however slow the machine is.
func TestPages_OfALargeFleetAreSmall(t *testing.T) {
	t.Run("registered jobs", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { areSmall(t, newLarge(t), largePages) })
	})
	t.Run("defined jobs", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { areSmall(t, newDefined(t, 3_000), definedPages) })
	})
}

func areSmall(t *testing.T, c *Console, pages []string) {
	t.Helper()
	for _, path := range pages {
		w := httptest.NewRecorder()
		c.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		assert.Equal(t, http.StatusOK, w.Code, path)
		assert.Less(t, w.Body.Len(), pageLimit, path)
	}
}

// cpuTime returns the processor time of this process.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func BenchmarkPages_OfALargeFleet(b *testing.B) { benchmarkPages(b, newLarge(b), largePages) }

func BenchmarkPages_OfDefinedJobs(b *testing.B) {
	benchmarkPages(b, newDefined(b, 100_000), definedPages)
}

func benchmarkPages(b *testing.B, c *Console, pages []string) {
	for _, path := range pages {
		b.Run(strings.ReplaceAll(path, "/", " "), func(b *testing.B) {
			size, before := 0, cpuTime()
			for b.Loop() {
				w := httptest.NewRecorder()
				c.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
				size = w.Body.Len()
			}
			b.ReportMetric(float64(cpuTime()-before)/float64(time.Millisecond)/float64(b.N), "cpu-ms/op") // of the whole process, which other load does not change
			b.ReportMetric(float64(size)/1024, "KiB")
		})
	}
}

// Fifty browsers, each with a stream, that fetch their pages at each change, cost the store no more requests than one.
func TestStreams_CostTheStoreNoMoreThanOne(t *testing.T) {
	cost := func(browsers int) (counts memory.Counts, events int) {
		onFleet(t, func(k *kit) {
			op, err := operator.New(k.fleet.Server().Client("console"), "rotatest", "")
			require.NoError(t, err)
			k.op = op.WithCompiler(executor.Compile)
			k.console = k.newConsole(Options{})
			ctx, cancel := context.WithCancel(context.Background())
			fetched := make(chan int, browsers)
			for range browsers {
				go func() { fetched <- k.browse(ctx, "/jobs/settle") }()
			}
			k.fleet.Sleep(5 * time.Minute)
			counts = k.fleet.Server().Counts("console")
			cancel()
			for range browsers {
				events = <-fetched
			}
			k.console.Close()
			synctest.Wait()
		})
		return counts, events
	}
	one, eventsOfOne := cost(1)
	fifty, eventsOfFifty := cost(50)
	assert.Greater(t, eventsOfOne, 20, "the pages follow the fleet")
	assert.InDelta(t, eventsOfOne, eventsOfFifty, float64(eventsOfOne)/10, "a browser that fetches misses an event now and then")
	assert.Equal(t, one.Watches, fifty.Watches)
	assert.Equal(t, one.Commits, fifty.Commits)
	assert.LessOrEqual(t, fifty.Reads, one.Reads+one.Reads/10, "one costs %+v", one)
}

// browse follows the events of a page like the script: at each one, it fetches the page of the fleet and another one. It returns the
// number of events.
func (k *kit) browse(ctx context.Context, path string) (events int) {
	read, write := io.Pipe()
	go func() {
		k.console.ServeHTTP(&streamWriter{write, http.Header{}}, httptest.NewRequest(http.MethodGet, "/events", nil).WithContext(ctx))
		_ = write.Close()
	}()
	for lines := bufio.NewScanner(read); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "data:") {
			events++
			for _, p := range []string{"/", path} {
				k.get(p)
			}
		}
	}
	return events
}

// streamWriter is the response of a stream.
type streamWriter struct {
	io.Writer
	header http.Header
}

func (w *streamWriter) Header() http.Header { return w.header }
func (w *streamWriter) WriteHeader(int)     {}
func (w *streamWriter) Flush()              {}

// SetWriteDeadline implements what a stream calls before it writes.
func (w *streamWriter) SetWriteDeadline(time.Time) error { return nil }
