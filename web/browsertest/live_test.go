package browsertest

import (
	"flag"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/memory"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/web"
)

// awaitText waits until a reader sees a text on the page, which nobody loads again, and returns how long that took.
func (b *tab) awaitText(text string) time.Duration {
	b.t.Helper()
	begin := time.Now()
	run(b, chromedp.Poll[bool](`document.body.innerText.includes(`+quote(text)+`)`, chromedp.WithPollingMutation(), chromedp.WithPollingTimeout(browserTimeout)))
	return time.Since(begin)
}

// pauseFor pauses a job for a reason, which the job's page shows.
func (f *fleet) pauseFor(t testing.TB, job, reason string) {
	t.Helper()
	require.NoError(t, f.op.As("robin", reason).Pause(t.Context(), job))
}

func TestLive_ShowsAChange(t *testing.T) {
	f := startFleet(t)
	at := f.mount(t, web.Look)
	b := openTab(t, look{})
	b.visit(at + "jobs/settle")
	b.awaitText("Followed.")
	var took []time.Duration
	for i := range 5 {
		reason := fmt.Sprintf("reason number %d", i)
		f.pauseFor(t, "settle", reason)
		took = append(took, b.awaitText(reason))
	}
	t.Logf("a change is on the page after %v", took)
}

// The records do not change while a run writes its log.
func TestLive_FollowsTheLogOfARun(t *testing.T) {
	f := startFleet(t)
	if f.exported == nil {
		return
	}
	at := f.mount(t, web.Reveal)
	b := openTab(t, look{})
	b.visit(at + "jobs/export/fires/~1/shards/0")
	b.awaitText("Followed.")
	var took []time.Duration
	for i := range 7 {
		line := fmt.Sprintf("copied %d rows of <b>the ledger</b>", i)
		f.exported <- line
		took = append(took, b.awaitText(line))
	}
	t.Logf("a line of a log is on the page after %v", took)
	eval[bool](b, `(() => { window.first = document.querySelector(".log li"); getSelection().selectAllChildren(window.first); return true; })()`)
	selected := eval[string](b, `getSelection().toString()`)
	f.exported <- "the last line"
	b.awaitText("the last line")
	assert.True(t, eval[bool](b, `document.querySelector(".log li") === window.first`), "lines that are there stay")
	assert.Equal(t, selected, eval[string](b, `getSelection().toString()`), "the selection")
}

func TestLive_KeepsWhatTheViewerDoes(t *testing.T) {
	f := startFleet(t)
	at := f.mount(t, web.Look)
	b := openTab(t, look{})
	b.visit(at)
	b.awaitText("Followed.")
	b.do(chromedp.Focus(chromedp.CSS("#q")), insert("inv"), chromedp.KeyEvent(kb.ArrowLeft))
	eval[bool](b, `(() => {
		window.kept = document.querySelector("#q");
		window.rows = document.querySelectorAll("tbody tr").length;
		return true;
	})()`)
	require.NoError(t, f.op.As("robin", "").Pause(t.Context(), "settle"))
	b.awaitText("paused by robin")
	assert.True(t, eval[bool](b, `document.activeElement === window.kept && window.kept.isConnected`), "the focus")
	assert.Equal(t, "inv", eval[string](b, `window.kept.value`), "typed text")
	assert.Equal(t, 2, eval[int](b, `window.kept.selectionStart`), "the caret")

	eval[bool](b, `getSelection().selectAllChildren(document.querySelector("h1")); true`)
	selected := eval[string](b, `getSelection().toString()`)
	require.NotEmpty(t, selected)
	require.NoError(t, f.op.Resume(t.Context(), "settle"))
	run(b, chromedp.Poll[bool](`!document.body.innerText.includes("paused by robin")`, chromedp.WithPollingMutation(), chromedp.WithPollingTimeout(browserTimeout)))
	assert.Equal(t, selected, eval[string](b, `getSelection().toString()`), "the selection")
	assert.Equal(t, 1, eval[int](b, `document.querySelectorAll("#q").length`))
	assert.Equal(t, eval[int](b, `window.rows`), eval[int](b, `document.querySelectorAll("tbody tr").length`))
}

// A form is a question about what the viewer saw. It does not change below the hand.
func TestLive_LeavesAFormAlone(t *testing.T) {
	f := startFleet(t)
	at := f.mount(t, web.Admin)
	form, other := openTab(t, look{}), openTab(t, look{})
	form.visit(at + "jobs/settle/act/pause")
	other.visit(at + "jobs/settle")
	before := eval[string](form, "document.body.innerHTML")
	form.takeRequests()
	f.pauseFor(t, "settle", "a change meanwhile")
	other.awaitText("a change meanwhile")
	assert.Equal(t, before, eval[string](form, "document.body.innerHTML"))
	assert.Empty(t, form.takeRequests())
}

// The answer of an act stays until the viewer leaves the page, and is shown once.
func TestLive_ShowsTheAnswerOfAnActOnce(t *testing.T) {
	f := startFleet(t)
	at := f.mount(t, web.Admin)
	b := openTab(t, look{})
	b.visit(at + "jobs/settle/act/pause")
	b.follow(chromedp.Focus(chromedp.CSS("[name=reason]")), chromedp.KeyEvent(kb.Enter))
	require.Contains(t, b.text("main"), "Paused settle.")
	for i := range 2 {
		reason := fmt.Sprintf("reason number %d", i)
		f.pauseFor(t, "settle", reason)
		b.awaitText(reason)
		assert.Equal(t, 1, strings.Count(b.text("main"), "Paused settle."))
	}
}

// countStreams counts streams, and refuses them while refuse is set.
type countStreams struct {
	open, most atomic.Int64
	refuse     atomic.Bool
}

func (c *countStreams) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/events") {
			next.ServeHTTP(w, r)
			return
		}
		if c.refuse.Load() {
			http.Error(w, "no streams", http.StatusServiceUnavailable)
			return
		}
		c.most.Store(max(c.most.Load(), c.open.Add(1)))
		defer c.open.Add(-1)
		next.ServeHTTP(w, r)
	})
}

// A proxy that ends streams leaves polling, for every tab.
func TestLive_PollsWithoutAStream(t *testing.T) {
	f := startFleet(t)
	var streams countStreams
	streams.refuse.Store(true)
	at := f.mount(t, web.Look, streams.wrap)
	first := newTab(t, look{})
	second := first.open()
	for _, b := range []*tab{first, second} {
		b.visit(at + "jobs/settle")
	}
	f.pauseFor(t, "settle", "without a stream")
	first.awaitText("without a stream")
	second.awaitText("without a stream")
}

// Tabs of one browser share a stream, since browsers bound the connections to a host. When the tab that has it is closed, another takes over.
func TestLive_TabsShareAStream(t *testing.T) {
	f := startFleet(t)
	var streams countStreams
	at := f.mount(t, web.Look, streams.wrap)
	owner := openTab(t, look{}) // of the cookies and the storage
	first := owner.open()
	first.visit(at + "jobs/settle")
	first.awaitText("Followed.")
	tabs := []*tab{owner.open(), owner.open(), owner.open()}
	for _, b := range tabs {
		b.visit(at + "jobs/settle")
	}
	f.pauseFor(t, "settle", "four tabs look")
	for _, b := range append(tabs, first) {
		b.awaitText("four tabs look")
	}
	assert.EqualValues(t, 1, streams.most.Load())
	first.close()
	f.pauseFor(t, "settle", "three tabs look")
	for _, b := range tabs {
		b.awaitText("three tabs look")
	}
}

// A page that is hidden costs nothing, and shows what has changed as soon as it is seen.
func TestLive_HiddenTabIsQuiet(t *testing.T) {
	f := startFleet(t)
	at := f.mount(t, web.Look)
	hidden, seen := openTab(t, look{}), openTab(t, look{})
	call(hidden, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{
		Source: `window.isHidden = false; Object.defineProperty(document, "hidden", {get: () => window.isHidden})`,
	})
	for _, b := range []*tab{hidden, seen} {
		b.visit(at + "jobs/settle")
		b.awaitText("Followed.")
	}
	f.pauseFor(t, "settle", "before it is hidden")
	hidden.awaitText("before it is hidden")
	eval[bool](hidden, `window.isHidden = true; document.dispatchEvent(new Event("visibilitychange")); true`)
	hidden.takeRequests()
	for i := range 3 {
		reason := fmt.Sprintf("hidden from one, %d", i)
		f.pauseFor(t, "settle", reason)
		seen.awaitText(reason)
	}
	assert.Empty(t, hidden.takeRequests())
	eval[bool](hidden, `window.isHidden = false; document.dispatchEvent(new Event("visibilitychange")); true`)
	hidden.awaitText("hidden from one, 2")
}

// The page says that it does not follow the fleet when the console is away, and follows again when it is back.
func TestLive_SaysWhenTheConsoleIsAway(t *testing.T) {
	f := startFleet(t)
	var away atomic.Bool
	at := f.mount(t, web.Look, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if away.Load() {
				panic(http.ErrAbortHandler)
			}
			next.ServeHTTP(w, r)
		})
	})
	b := newTab(t, look{})
	b.visit(at + "jobs/settle")
	b.awaitText("Followed.")
	away.Store(true)
	f.pauseFor(t, "settle", "nobody sees this")
	b.awaitText("Not followed")
	away.Store(false)
	b.awaitText("nobody sees this")
	b.awaitText("Followed.")
}

var updatesFlag = flag.Int("updates", 40, "`number` of changes that TestLive_KeepsMemoryFlat shows; thousands take an hour")

// A page that stays open does not grow.
func TestLive_KeepsMemoryFlat(t *testing.T) {
	f := startFleet(t)
	at := f.mount(t, web.Look)
	b := openTab(t, look{})
	b.visit(at)
	b.awaitText("Followed.")
	update := func(n int) {
		for range n {
			require.NoError(t, f.op.As("robin", "").Pause(t.Context(), "settle"))
			b.awaitText("paused by robin")
			require.NoError(t, f.op.Resume(t.Context(), "settle"))
			run(b, chromedp.Poll[bool](`!document.body.innerText.includes("paused by robin")`, chromedp.WithPollingMutation(), chromedp.WithPollingTimeout(browserTimeout)))
		}
	}
	count := func() memory.GetDOMCountersResult {
		call(b, heapprofiler.CollectGarbage, cdp.Empty{})
		return call(b, memory.GetDOMCounters, cdp.Empty{})
	}
	update(*updatesFlag / 4)
	before := count()
	update(*updatesFlag / 2)
	after := count()
	t.Logf("before %+v, after %+v", before, after)
	assert.Less(t, after.Nodes, before.Nodes*5/4)
	assert.LessOrEqual(t, after.JsEventListeners, before.JsEventListeners)
	assert.LessOrEqual(t, after.Documents, before.Documents+1) // one that has just been parsed
}

// A viewer sees that an instance has gone, and to whom its shards have.
func TestLive_ShowsAKilledInstance(t *testing.T) {
	f := startFleet(t)
	at := f.mount(t, web.Look)
	instances, job := openTab(t, look{}), openTab(t, look{})
	instances.visit(at + "instances")
	job.visit(at + "jobs/settle")
	require.Contains(t, instances.text("main"), "web-3")
	require.Contains(t, job.text("main"), "web-3")
	f.kill("web-3")
	run(job, chromedp.Poll[bool](`!document.querySelector("#shards").innerText.includes("web-3")`, chromedp.WithPollingMutation(), chromedp.WithPollingTimeout(browserTimeout)))
	run(instances, chromedp.Poll[bool](`!/web-3.*ok/.test(document.querySelector("main").innerText)`, chromedp.WithPollingMutation(), chromedp.WithPollingTimeout(browserTimeout)))
}

// While the store is away, pages show what is known.
func TestLive_ShowsWhatIsKnownWithoutTheStore(t *testing.T) {
	f := startFleet(t)
	at := f.mount(t, web.Look)
	b := openTab(t, look{})
	require.EqualValues(t, http.StatusOK, b.visit(at))
	resume := f.stopStore()
	defer resume()
	require.EqualValues(t, http.StatusOK, b.visit(at))
	assert.Contains(t, b.text("main"), "failing: shards 7,41")
}
