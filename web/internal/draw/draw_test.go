package draw

import (
	"bytes"
	"encoding/xml"
	"flag"
	"fmt"
	"html/template"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/history"
	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/web/internal/past"
)

var update = flag.Bool("update", false, "write the files in testdata instead of comparing them")

var (
	start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	times = view.Times{Now: start.Add(2 * time.Hour), Mode: "relative", Zone: time.UTC}
)

// allStates is a grid with a fire for each state, of n shards.
func allStates(n int) past.Grid {
	g := past.Grid{Job: "settle", Shards: n, Of: past.Range{First: 0, Last: n - 1}}
	g.Rows, _ = past.Split(g.Of)
	for s := range past.States {
		g.Fires = append(g.Fires, past.Fire{Fire: start.Add(time.Duration(s) * 5 * time.Minute), State: past.State(s), Text: fmt.Sprintf("text %d", s)})
		g.Notes = append(g.Notes, "")
	}
	g.Cells = make([][]past.Cell, len(g.Rows))
	for j, row := range g.Rows {
		for s := range past.States {
			c := past.Cell{State: past.State((s + j) % past.States)}
			c.Counts[c.State] = row.Len()
			g.Cells[j] = append(g.Cells[j], c)
		}
	}
	return g
}

// incident is the page of a fire with a failover, a retry, a run that goes on, and a success that was only counted.
func incident() past.OneFire {
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	try := func(shard, attempt int, instance string, from, to time.Time, state past.State, how history.Outcome) past.Try {
		return past.Try{State: state, Run: history.Run{Job: "settle", Fire: start, Shard: shard, Attempt: attempt, Instance: instance, Started: from, Ended: to, Outcome: how}}
	}
	failed := try(7, 1, "web-1", at(1), at(4), past.Failed, history.Failed)
	failed.Error, failed.Output = "dial tcp 10.1.2.3:5432: i/o timeout", "line 1\nline 2\n"
	return past.OneFire{
		Job: "settle", Fire: start, Number: 4, Begin: start, End: at(20),
		Whole: past.Fire{Fire: start, State: past.Failed, Text: "2 of 4 ok, 1 failed, 1 crashed, 1 repeated"},
		Rows: []past.ShardRuns{
			{Shard: 7, State: past.Failed, Late: time.Second, Tries: []past.Try{failed}},
			{Shard: 3, State: past.Running, Tries: []past.Try{
				try(3, 1, "web-2", at(1), at(2), past.Failed, history.Failed),
				try(3, 2, "web-2", time.Time{}, time.Time{}, past.Running, ""),
			}},
			{Shard: 5, State: past.Repeated, Tries: []past.Try{
				try(5, 1, "web-2", time.Time{}, at(10), past.Crashed, history.Crashed),
				try(5, 2, "web-1", at(12), at(15), past.Repeated, history.Succeeded),
			}, Gaps: []past.Gap{{From: at(10), To: at(12), Failover: true, Text: "web-2 crashed, web-1 took over"}}},
			{Shard: 6, State: past.Unkept, Note: "ok (run not kept)"},
		},
	}
}

func TestDrawings(t *testing.T) {
	f := incident()
	var strip past.Strip
	strip.Job, strip.Fires = "settle", allStates(1).Fires
	for name, drawing := range map[string]template.HTML{
		"strip.svg":       Strip(strip, Links{Base: "jobs/settle/"}, times),
		"strip-brief.svg": BriefStrip(strip, Links{Base: "jobs/settle/"}, times),
		"strip-empty.svg": Strip(past.Strip{Job: "settle"}, Links{}, times),
		"grid.svg":        Grid(allStates(past.States), Links{}, times),
		"grid-ranges.svg": Grid(allStates(1000), Links{Query: "zone=utc"}, times),
		"grid-empty.svg":  Grid(past.Grid{Job: "settle"}, Links{}, times),
		"bars.svg":        Bars("settle", f.Rows, f.Begin, f.End, Links{Base: "../"}, times),
		"bars-empty.svg":  Bars("settle", nil, time.Time{}, time.Time{}, Links{Base: "../"}, times),
		"legend.svg":      Legend(),
	} {
		requireClean(t, name, string(drawing))
		got := strings.ReplaceAll(string(drawing), "><", ">\n<") + "\n"
		path := filepath.Join("testdata", name)
		if *update {
			require.NoError(t, os.MkdirAll("testdata", 0o755))
			require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
		}
		want, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, string(want), got, "%s: run with -update if the change is meant, and look at it", name)
	}
}

var forbidden = regexp.MustCompile(`(?i)\sstyle=|<style|<script|\son[a-z]+=|javascript:`)

// requireClean requires markup that is well formed and that a strict content policy allows.
func requireClean(t *testing.T, name, markup string) {
	t.Helper()
	require.NotRegexp(t, forbidden, markup, name)
	d := xml.NewDecoder(strings.NewReader(markup))
	for {
		_, err := d.Token()
		if err == io.EOF {
			return
		}
		require.NoError(t, err, "%s: %.500s", name, markup)
	}
}

func TestShapes_DifferWithoutColours(t *testing.T) {
	seen := map[shape]past.State{}
	for i, s := range shapes {
		switch before, found := seen[s]; {
		case past.State(i) == past.Absent:
			require.Empty(t, s.path)
		case found:
			// These two differ by the width of the stroke, which the style sheet sets.
			require.Equal(t, []past.State{past.OK, past.Skipped}, []past.State{before, past.State(i)})
		default:
			seen[s] = past.State(i)
		}
	}
}

// The style sheet has each state: one that it lacks would be a black blob.
func TestStyleSheet_HasEachState(t *testing.T) {
	css, err := os.ReadFile("../../static/draw.css")
	require.NoError(t, err)
	for i := range past.States {
		if s := past.State(i); s != past.Absent {
			require.Contains(t, string(css), "path."+s.Name()+" {", "%v", s)
		}
	}
	require.Less(t, len(css), 4<<10)
}

var hostile = []string{
	`"><script>alert(1)</script>`, `' onload='alert(1)`, `</title></svg><img src=x onerror=alert(1)>`, "{{.}}", "a&b<c>", `javascript:alert(1)`, "\x00\xff",
	"../../../etc", "a/b?c#d", "\u202e",
}

func TestNames_CannotBecomeMarkup(t *testing.T) {
	for _, name := range hostile {
		g := allStates(3)
		g.Job, g.Fires[1].Text, g.Notes[1] = name, name, name
		f := incident()
		f.Job, f.Note = name, name
		for i := range f.Rows {
			f.Rows[i].Note = name
			for j := range f.Rows[i].Tries {
				try := &f.Rows[i].Tries[j]
				try.Instance, try.Error, try.Output, try.Outcome, try.ID, try.TraceID, try.Reason = name, name, name, history.Outcome(name), name, name, name
			}
			for j := range f.Rows[i].Gaps {
				f.Rows[i].Gaps[j].Text = name
			}
		}
		l := Links{Base: "../" + escape(name) + "/"}
		strip := past.Strip{Job: name, Fires: g.Fires}
		pages := map[string]string{
			"grid":  execute(t, "grid-content", GridPageOf(g, true, l, times)),
			"fire":  execute(t, "fire-content", FirePageOf(f, true, l, times)),
			"run":   execute(t, "run-content", RunPageOf(past.Run{Job: name, Fire: start, ShardRuns: f.Rows[0], Begin: f.Begin, End: f.End}, true, l, times)),
			"strip": string(Strip(strip, l, times)) + string(BriefStrip(strip, l, times)),
		}
		for page, text := range pages {
			require.NotContains(t, text, "<script", "%s of %q", page, name)
			require.NotContains(t, text, "<img", "%s of %q", page, name)
			require.NotRegexp(t, `href="javascript:`, text, "%s of %q", page, name)
			require.NotRegexp(t, `<[a-z]+ [^>]*\son(load|error)=`, regexp.MustCompile(`"[^"]*"`).ReplaceAllString(text, `""`), "%s of %q", page, name)
		}
	}
}

var templates = template.Must(template.ParseFiles("../../pages/layout.tmpl", "../../pages/grid.tmpl", "../../pages/fire.tmpl", "../../pages/run.tmpl"))

func execute(t testing.TB, name string, page any) string {
	var out bytes.Buffer
	require.NoError(t, templates.ExecuteTemplate(&out, name, page))
	return out.String()
}

func TestPages(t *testing.T) {
	// has requires texts without printing the page.
	has := func(page string, texts ...string) {
		t.Helper()
		for _, text := range texts {
			assert.True(t, strings.Contains(page, text), text)
		}
	}
	grid := execute(t, "grid-content", GridPageOf(allStates(1000), true, Links{}, times))
	has(grid, `<a href="../settle">settle</a>`, "Shards 0-999 of 1000, 16 in a row", `href="grid?shards=16-31"`, `<title>2026-03-01 12:55:00 UTC: failed</title>`)
	has(execute(t, "grid-content", GridPageOf(allStates(12), true, Links{}, times)), `<title>2026-03-01 12:55:00 UTC: failed: text 11</title>`, `fires/2026-03-01T12:55:00Z/shards/0`)
	assert.False(t, strings.Contains(grid, "no history"))
	has(execute(t, "grid-content", GridPageOf(past.Grid{Job: "settle"}, false, Links{}, times)), "The console has no history")

	f := incident()
	f.Number = 400
	fire := execute(t, "fire-content", FirePageOf(f, true, Links{Base: "../"}, times))
	has(fire,
		`<a href="../../settle">settle</a>`, "Showing 1 to 4 of 400 shards", `href="../fires/2026-03-01T12:00:00Z?from=4"`, "dial tcp 10.1.2.3:5432: i/o timeout", "line 1\nline 2\n",
		"2s without a run: web-2 crashed, web-1 took over", `href="../fires/2026-03-01T12:00:00Z/shards/7"`, `href="../explain?at=2026-03-01T12:00:00Z"`, "late 1s",
	)
	run := execute(t, "run-content", RunPageOf(past.Run{Job: "settle", Fire: start, Trigger: 12, ShardRuns: f.Rows[0], Begin: f.Begin, End: f.End}, true, Links{Base: "../../../"}, times))
	has(run, `<a href="../../../fires/~12" title="2h ago">`, "<pre>dial tcp 10.1.2.3:5432: i/o timeout</pre>")
	assert.False(t, strings.Contains(run, "explain"))

	f.Rows[0].Tries[0].Hidden, f.Rows[0].Tries[0].Error, f.Rows[0].Tries[0].Output = true, "", ""
	fire = execute(t, "fire-content", FirePageOf(f, true, Links{Base: "../"}, times))
	has(fire, "need the role reveal", hidden)
}

// The tables have the facts of the drawings: each cell that is worth a look is named.
func TestGridTable_HasTheFactsOfTheDrawing(t *testing.T) {
	g := allStates(past.States)
	table := GridTable(g, Links{}, times)
	require.Len(t, table.Rows, past.States)
	last := table.Rows[0]
	assert.Equal(t, "2026-03-01 12:55:00 UTC", last.Cells[0].Text)
	assert.Equal(t, "failed: 0; crashed: 11; unfinished: 10; to run again: 9; not on record: 8; skipped: 7; due: 6; running: 5; ok after more attempts: 4; ok (run not kept): 3; ok: 2. text 11", last.Cells[2].Text)

	g.Cells[3][0] = past.Cell{State: past.Failed, Counts: past.Counts{past.OK: 1, past.Failed: 2}}
	g.Rows[3] = past.Range{First: 3, Last: 5}
	for j := range 3 {
		g.Cells[j][0] = past.Cell{State: past.OK, Counts: past.Counts{past.OK: 1}}
	}
	assert.True(t, strings.HasPrefix(describeColumn(&g, 0, true), "failed: 3-5 (2), 11; "), describeColumn(&g, 0, true))
	assert.True(t, strings.HasSuffix(describeColumn(&g, 0, true), "ok: 0-2"), describeColumn(&g, 0, true))
	for j := range g.Rows {
		g.Cells[j][0] = past.Cell{State: past.OK, Counts: past.Counts{past.OK: 1}}
	}
	g.Cells[5][0] = past.Cell{State: past.Failed, Counts: past.Counts{past.Failed: 1}}
	assert.Equal(t, "failed: 5; ok: the others", describeColumn(&g, 0, false))
}

func TestAddresses_ParseAgain(t *testing.T) {
	for _, c := range []struct {
		fire    time.Time
		trigger uint64
	}{{start, 0}, {start.Add(123456 * time.Microsecond), 0}, {time.Time{}, 12}, {time.Time{}, 1<<64 - 1}} {
		fire, trigger, err := ParseFireName(FireName(c.fire, c.trigger))
		require.NoError(t, err)
		assert.Equal(t, c.fire, fire)
		assert.Equal(t, c.trigger, trigger)
	}
	for _, s := range []string{"", "~", "~0", "~-1", "~x", "14:00", "2026", strings.Repeat("9", 1000)} {
		_, _, err := ParseFireName(s)
		assert.Error(t, err, "%.20q", s)
	}
	for s, want := range map[string]past.Range{"": {First: 0, Last: -1}, "7": {First: 7, Last: 7}, "7-7": {First: 7, Last: 7}, "0-156": {First: 0, Last: 156}} {
		got, err := ParseRange(s)
		require.NoError(t, err, s)
		assert.Equal(t, want, got, s)
	}
	for _, s := range []string{"x", "-", "-1", "3-2", "1-2-3", "1-", "01-2", "1 2", "1-2x", "99999999999999999999"} {
		_, err := ParseRange(s)
		assert.Error(t, err, s)
	}
}

// manyCells is a full grid of 10,000 shards. Odds is one in how many cells is not ok; its states and counts are random.
func manyCells(odds int) past.Grid {
	rnd := rand.New(rand.NewPCG(1, uint64(odds)))
	g := past.Grid{Job: "a-job-with-a-name-of-usual-length", Shards: 10_000, Of: past.Range{First: 0, Last: 9_999}}
	g.Rows, _ = past.Split(g.Of)
	for i := range past.MaxFires {
		g.Fires = append(g.Fires, past.Fire{Fire: start.Add(time.Duration(i) * time.Minute), State: past.Failed, Text: "9,990 of 10,000 ok, 10 failed, 3 crashed, 12 repeated, 100 skipped (misfire, disabled)"})
		g.Notes = append(g.Notes, "100 shards have no record of their own: 50 ok, 12 failed, crashed or unfinished runs, 38 skipped")
	}
	g.Cells = make([][]past.Cell, len(g.Rows))
	for j := range g.Rows {
		for range g.Fires {
			c := past.Cell{State: past.Unkept}
			c.Counts[past.Unkept] = g.Rows[j].Len()
			if rnd.IntN(odds) == 0 {
				c.State = past.State(1 + rnd.IntN(past.States-1))
				c.Counts[past.Unkept] -= 12
				c.Counts[c.State] += 12
			}
			g.Cells[j] = append(g.Cells[j], c)
		}
	}
	return g
}

const pageLimit = 200<<10 - 8<<10 // without the layout around it

func TestGridPage_IsSmall(t *testing.T) {
	for _, odds := range []int{1, 2, 3, 12, 13, 14, 100, 10_000} {
		text := execute(t, "grid-content", GridPageOf(manyCells(odds), true, Links{}, times))
		t.Logf("one cell of %d is not ok: %d KiB", odds, len(text)>>10)
		require.Less(t, len(text), pageLimit, "one cell of %d is not ok", odds)
	}
}

// The largest page of a fire has three attempts of each shard, and texts as long as they may be together.
func TestFirePage_IsSmall(t *testing.T) {
	f := past.OneFire{Job: "settle", Fire: start, Number: 10_000, Begin: start, End: start.Add(time.Minute)}
	text := strings.Repeat("x", past.TextsOnPage/past.ShardsOnPage/past.TriesOfShard)
	for i := range past.ShardsOnPage {
		row := past.ShardRuns{Shard: 9_000 + i, State: past.Failed, Late: time.Second}
		for n := range past.TriesOfShard {
			row.Tries = append(row.Tries, past.Try{State: past.Failed, Run: history.Run{
				Job: "settle", Fire: start, Shard: row.Shard, Attempt: n + 1, Instance: "web-12345.internal.example", Started: start.Add(time.Duration(n) * time.Second), Ended: start.Add(9 * time.Second),
				Outcome: history.Failed, Error: text,
			}})
			row.Gaps = append(row.Gaps, past.Gap{From: start, To: start.Add(time.Duration(n) * time.Second), Failover: true, Text: "web-12345.internal.example crashed, web-12346.internal.example took over"})
		}
		f.Rows = append(f.Rows, row)
	}
	page := execute(t, "fire-content", FirePageOf(f, true, Links{Base: "../"}, times))
	t.Logf("%d KiB", len(page)>>10)
	require.Less(t, len(page), pageLimit)
}

// What is missing has a column of its own in each drawing, a row in each table, and does not change a strip that others see.
func TestMissing_IsInDrawingAndTable(t *testing.T) {
	g := allStates(2)
	gap := &past.Missing{From: start.Add(6 * time.Minute), To: start.Add(9 * time.Minute), Text: "4 fires <lost>"}
	g.Fires[3].Missing, g.Fires[5].Missing = gap, &past.Missing{From: start, To: start, Text: "1 fire skipped", Skipped: true}
	g.After = gap
	drawing := string(Grid(g, Links{}, times))
	assert.Equal(t, 2, strings.Count(drawing, `class="missing"`))
	assert.Equal(t, 1, strings.Count(drawing, `class="missing passed"`))
	assert.Contains(t, drawing, "2026-03-01 12:06:00 UTC to 2026-03-01 12:09:00 UTC: 4 fires &lt;lost&gt;")
	requireClean(t, "grid", drawing)
	table := GridTable(g, Links{}, times)
	require.Len(t, table.Rows, past.States+3)
	assert.Equal(t, "4 fires <lost>", table.Rows[0].Cells[2].Text)

	s := past.Strip{Job: "settle", After: gap}
	for range past.MaxFires {
		s.Fires = append(s.Fires, past.Fire{Fire: start, State: past.OK, Missing: gap})
	}
	assert.Equal(t, past.MaxFires+1, strings.Count(string(Strip(s, Links{}, times)), `class="missing"`))
	assert.Equal(t, briefFires, strings.Count(string(BriefStrip(s, Links{}, times)), `class="missing"`))
	assert.NotNil(t, s.Fires[past.MaxFires-briefFires].Missing)
	assert.Len(t, StripTable(s, Links{}, times).Rows, 2*past.MaxFires+1)
}

func TestBriefStrip_IsSmall(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	ok, random := past.Strip{Job: "settle"}, past.Strip{Job: "settle"}
	for i := range past.MaxFires {
		fire := past.Fire{Fire: start.Add(time.Duration(i) * time.Minute), State: past.OK, Text: "3 of 3 ok"}
		ok.Fires = append(ok.Fires, fire)
		fire.State = past.State(1 + rnd.IntN(past.States-1))
		random.Fires = append(random.Fires, fire)
	}
	t.Logf("%d and %d bytes", len(BriefStrip(ok, Links{Base: "jobs/settle/"}, times)), len(BriefStrip(random, Links{Base: "jobs/settle/"}, times)))
	require.Less(t, len(BriefStrip(ok, Links{Base: "jobs/settle/"}, times)), 1<<10)
	require.Less(t, len(BriefStrip(random, Links{Base: "jobs/settle/"}, times)), 3<<10)
}

func BenchmarkGridPage(b *testing.B) {
	g := manyCells(3)
	b.ReportAllocs()
	for b.Loop() {
		execute(b, "grid-content", GridPageOf(g, true, Links{}, times))
	}
}
