package browsertest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/memory"
	"github.com/chromedp/cdproto/runtime"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/history"
	memoryregistry "github.com/rota-dev/rota/registry/memory"
	"github.com/rota-dev/rota/schedule"
	"github.com/rota-dev/rota/web"
)

var openFlag = flag.Duration("open", 75*time.Second, "how long TestOpen_StaysFlatBesideAHundredFiresASecond keeps its pages open, such as 1h")

// startBusy starts a fleet in which a hundred jobs fire each second, and one in ten fails.
func startBusy(t testing.TB) *fleet {
	server, ring := memoryregistry.New(), history.NewRing(100_000)
	ex, err := executor.New(server.Client("web-1"), namespace, executor.Options{Instance: "web-1", Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	require.NoError(t, err)
	for i := range 100 {
		require.NoError(t, ex.Register(executor.Job{
			Name: fmt.Sprintf("job-%02d", i), Schedule: schedule.Every(time.Second),
			Handler: executor.HandlerFunc(func(_ context.Context, r *executor.Run) error {
				if i%10 == 0 && r.FireTime.Second()%10 == 0 {
					return errors.New("HTTP 503")
				}
				return nil
			}),
		}))
	}
	recorder := history.New(ring, history.Options{Namespace: namespace, Instance: "web-1"})
	t.Cleanup(func() { _ = recorder.Shutdown(context.Background()) })
	ex.Observe(recorder.Observer())
	require.NoError(t, ex.Start(t.Context()))
	t.Cleanup(func() { _ = ex.Shutdown(context.Background()) })
	return &fleet{op: newOperator(t, server.Client("console")), history: ring.Reader(namespace, "")}
}

// sample holds the counters of a tab, and its requests a second since the last sample.
type sample struct {
	heap, nodes, listeners, documents, requests float64
}

func (b *tab) sample(since time.Time) sample {
	b.t.Helper()
	call(b, heapprofiler.CollectGarbage, cdp.Empty{})
	heap := call(b, runtime.GetHeapUsage, cdp.Empty{})
	dom := call(b, memory.GetDOMCounters, cdp.Empty{})
	requests := float64(len(b.takeRequests())) / time.Since(since).Seconds()
	return sample{heap.UsedSize, float64(dom.Nodes), float64(dom.JsEventListeners), float64(dom.Documents), requests}
}

// A page that stays open beside a fleet of a hundred fires a second holds no more memory, nodes and listeners after a while, and asks no
// more often.
func TestOpen_StaysFlatBesideAHundredFiresASecond(t *testing.T) {
	f := startBusy(t)
	at := f.mount(t, web.Admin)
	pages := []string{"", "jobs/job-00", "timeline"}
	var tabs []*tab
	for _, path := range pages {
		b := openTab(t, look{})
		b.visit(at + path)
		b.awaitText("Followed.")
		tabs = append(tabs, b)
	}
	begin, every := time.Now(), max(2500*time.Millisecond, *openFlag/60)
	samples := make([][]sample, len(tabs))
	last := slices.Repeat([]time.Time{begin}, len(tabs))
	tick := time.NewTicker(every)
	defer tick.Stop()
	for time.Since(begin) < *openFlag {
		<-tick.C
		for i, b := range tabs {
			at := time.Now()
			samples[i] = append(samples[i], b.sample(last[i]))
			last[i] = at
		}
	}
	for i, path := range pages {
		all := samples[i]
		third := len(all) / 3
		require.Positive(t, third, "%d samples of %q", len(all), path)
		early, late := medianOf(all[third:2*third]), medianOf(all[2*third:])
		t.Logf("%q: %d samples; the second third %+v, the last %+v", path, len(all), early, late)
		assert.Less(t, late.heap, early.heap*1.25+1<<20, "%q: bytes of the heap", path)
		assert.Less(t, late.nodes, early.nodes*1.25+200, "%q: nodes", path)
		assert.LessOrEqual(t, late.listeners, early.listeners+2, "%q: listeners", path)
		assert.LessOrEqual(t, late.documents, early.documents+2, "%q: documents", path)
		assert.Less(t, late.requests, early.requests*1.5+0.5, "%q: requests a second", path)
		assert.Less(t, late.requests, 2.0, "%q: requests a second, of which the snapshots allow one", path)
		assert.Positive(t, late.requests, "%q follows the fleet", path)
	}
}

// medianOf returns the medians of samples.
func medianOf(all []sample) sample {
	of := func(get func(sample) float64) float64 {
		var values []float64
		for _, s := range all {
			values = append(values, get(s))
		}
		slices.Sort(values)
		return values[len(values)/2]
	}
	return sample{
		of(func(s sample) float64 { return s.heap }), of(func(s sample) float64 { return s.nodes }), of(func(s sample) float64 { return s.listeners }),
		of(func(s sample) float64 { return s.documents }), of(func(s sample) float64 { return s.requests }),
	}
}
