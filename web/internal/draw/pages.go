package draw

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/history"
	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/web/internal/past"
)

// GridPage is the data of the template grid-content.
type GridPage struct {
	Job, JobLink   string
	Drawing        template.HTML
	Legend         template.HTML
	Table          Table
	Showing        string // the shards and the fires: "shards 0-9999, 157 in a row; 60 fires"
	All, Older     string // addresses, empty if the page shows all shards, or the oldest fires
	Latest         string // the address of the latest fires, empty if the page shows them
	WithoutHistory string // not empty if there is no history: why there is little to see
}

// WithoutHistory explains why a page has few fires.
const WithoutHistory = "The console has no history: this is what the records of the fleet know, which are the current runs and the latest failures."

// GridPageOf returns the page of a grid. hasHistory is whether the console has a history.
func GridPageOf(g past.Grid, hasHistory bool, l Links, t view.Times) GridPage {
	p := GridPage{Job: g.Job, JobLink: jobLink(l, g.Job), Drawing: Grid(g, l, t), Legend: Legend(), Table: GridTable(g, l, t)}
	if len(g.Rows) > 0 {
		p.Showing = fmt.Sprintf("Shards %v of %d", g.Of, g.Shards)
		if width := g.Rows[0].Len(); width > 1 {
			p.Showing += fmt.Sprintf(", %d in a row with the worst state; a row leads to its shards", width)
		}
		p.Showing += ". "
	}
	p.Showing += fmt.Sprintf("Fires: %d.", len(g.Fires))
	if g.Of.Len() < g.Shards {
		p.All = l.Grid(past.Range{First: 0, Last: -1}, g.Until)
	}
	if !g.Older.IsZero() {
		p.Older = l.Grid(g.Of, g.Older)
	}
	if !g.Until.IsZero() {
		p.Latest = l.Grid(g.Of, time.Time{})
	}
	if !hasHistory {
		p.WithoutHistory = WithoutHistory
	}
	return p
}

// jobLink returns the address of the job's page: its directory without the slash.
func jobLink(l Links, job string) string {
	return l.with(l.Base+"../"+escape(job), "")
}

// FirePage is the data of the template fire-content.
type FirePage struct {
	Job, JobLink, GridLink string
	Name                   Text // of the fire
	State                  string
	StateText, Text        string
	Counts                 string // of the shards by state
	Notes                  []string
	Drawing                template.HTML
	Legend                 template.HTML
	Table                  Table
	Outputs                []Output
	Hidden                 bool // outputs that the viewer may not see
	Showing                string
	Newer, Older           string // addresses of the pages of shards before and after
	Explain                string
	Retry                  string // the address of the form that retries what has failed, if the user may
	WithoutHistory         string
}

// Output is the end of the output of an attempt.
type Output struct {
	ID, Title, Text string
	Link            string // to the page that has all of it
	Cut             bool
}

// FirePageOf returns the page of a fire.
func FirePageOf(f past.OneFire, hasHistory bool, l Links, t view.Times) FirePage {
	p := FirePage{
		Job: f.Job, JobLink: jobLink(l, f.Job), GridLink: l.Grid(past.Range{First: 0, Last: -1}, time.Time{}),
		Name:  Text{Text: nameOf(t, f.Fire, f.Trigger), Exact: t.At(f.Fire)},
		State: f.Whole.State.Name(), StateText: f.Whole.State.String(), Text: f.Whole.Text, Counts: describeCounts(&f.Counts),
		Drawing: Bars(f.Job, f.Rows, f.Begin, f.End, l, t), Legend: Legend(), Table: BarsTable(f.Rows, l, t),
	}
	if f.Number > 0 {
		p.Showing = fmt.Sprintf("Showing %d to %d of %d shards, the worst first.", f.From+1, f.From+len(f.Rows), f.Number)
	}
	if f.From > 0 {
		p.Newer = l.FirePage(f.Fire, f.Trigger, max(0, f.From-past.ShardsOnPage))
	}
	if next := f.From + len(f.Rows); next < f.Number {
		p.Older = l.FirePage(f.Fire, f.Trigger, next)
	}
	for i := range f.Skipped {
		p.Notes = append(p.Notes, describeSkipped(&f.Skipped[i], t))
	}
	if f.Note != "" {
		p.Notes = append(p.Notes, f.Note+".")
	}
	p.Outputs, p.Hidden = outputsOf(f.Rows, l)
	if f.Trigger == 0 {
		p.Explain = l.with(l.Base+"explain", "at="+escape(FireName(f.Fire, 0)))
	}
	if !hasHistory {
		p.WithoutHistory = WithoutHistory
	}
	return p
}

// describeSkipped describes the skipped runs of a record.
func describeSkipped(f *history.Fire, t view.Times) string {
	text := fmt.Sprintf("%d runs were skipped", f.Skipped)
	if !f.SkippedFrom.IsZero() {
		text += fmt.Sprintf(", of the fires from %s to %s", exact(t, f.SkippedFrom), exact(t, f.Fire))
	}
	var reasons []string
	for reason, n := range f.SkippedBy.All() {
		reasons = append(reasons, fmt.Sprintf("%d %v", n, reason))
	}
	if len(reasons) > 0 {
		text += ": " + strings.Join(reasons, ", ")
	}
	return text + "."
}

// outputsOf returns the outputs of attempts.
func outputsOf(rows []past.ShardRuns, l Links) (outputs []Output, withheld bool) {
	for i := range rows {
		for j := range rows[i].Tries {
			try := &rows[i].Tries[j]
			withheld = withheld || try.Hidden
			if try.Output == "" {
				continue
			}
			outputs = append(outputs, Output{
				ID:    fmt.Sprintf("output-%d-%d-%d", try.Shard, try.Trigger, try.Attempt),
				Title: fmt.Sprintf("Shard %d, attempt %d on %s: %s", try.Shard, try.Attempt, try.Instance, outcomeOf(try)),
				Text:  try.Output, Link: l.Run(try.Fire, try.Trigger, try.Shard), Cut: try.Cut,
			})
		}
	}
	return outputs, withheld
}

// RunPage is the data of the template run-content.
type RunPage struct {
	Job, JobLink, FireLink string
	Fire                   Text
	Shard                  int
	State, StateText       string
	Note                   string
	Drawing                template.HTML
	Tries                  []RunTry
	Log                    LogPart // set by the caller
	Gaps                   []string
	Hidden                 bool
	Explain                string
	WithoutHistory         string
}

// RunTry is an attempt with all its known fields.
type RunTry struct {
	ID, Title, State, StateText string
	Fields                      []Field
	Error, Output               string
}

// Field is a labelled text.
type Field struct {
	Label string
	Text  Text
}

// RunPageOf returns the page of the attempts of a shard.
func RunPageOf(r past.Run, hasHistory bool, l Links, t view.Times) RunPage {
	p := RunPage{
		Job: r.Job, JobLink: jobLink(l, r.Job), FireLink: l.Fire(r.Fire, r.Trigger), Fire: Text{Text: nameOf(t, r.Fire, r.Trigger), Exact: t.At(r.Fire)},
		Shard: r.Shard, State: r.State.Name(), StateText: r.State.String(), Note: cmp.Or(r.Note, r.ShardRuns.Note),
		Drawing: Bars(r.Job, []past.ShardRuns{r.ShardRuns}, r.Begin, r.End, l, t),
	}
	for i := range r.Tries {
		try := &r.Tries[i]
		p.Hidden = p.Hidden || try.Hidden
		p.Tries = append(p.Tries, RunTry{
			ID:    fmt.Sprintf("try-%d-%d-%d", try.Trigger, try.Attempt, i),
			Title: fmt.Sprintf("Attempt %d on %s", try.Attempt, try.Instance), State: try.State.Name(), StateText: outcomeOf(try),
			Fields: fieldsOf(try, t), Error: try.Error, Output: try.Output,
		})
	}
	for i := range r.Gaps {
		p.Gaps = append(p.Gaps, describeGap(&r.Gaps[i])+".")
	}
	if r.Trigger == 0 {
		p.Explain = l.with(l.Base+"explain", fmt.Sprintf("at=%s&shard=%d", escape(FireName(r.Fire, 0)), r.Shard))
	}
	if !hasHistory {
		p.WithoutHistory = WithoutHistory
	}
	return p
}

// fieldsOf returns the known fields of an attempt, without its error and output.
func fieldsOf(try *past.Try, t view.Times) []Field {
	fields := []Field{{"instance", Text{Text: try.Instance}}}
	add := func(label string, known bool, text, exact string) {
		if known {
			fields = append(fields, Field{label, Text{Text: text, Exact: exact}})
		}
	}
	at := func(label string, at time.Time) { add(label, !at.IsZero(), exact(t, at), t.At(at)) }
	at("started", try.Started)
	at("ended", try.Ended)
	add("took", !try.Started.IsZero() && !try.Ended.IsZero(), view.Span(try.Duration()), "")
	add("trigger", try.Trigger != 0, fmt.Sprintf("#%d", try.Trigger), "")
	add("reason", try.Reason != "", try.Reason, "")
	add("fence", try.Fence != 0, fmt.Sprint(try.Fence), "")
	add("exit code", try.ExitCode != nil, exitCode(try), "")
	add("items", try.ItemsFetched+try.ItemsProcessed > 0, fmt.Sprintf("%d of %d processed", try.ItemsProcessed, try.ItemsFetched), "")
	add("trace", try.TraceID != "", try.TraceID, "")
	add("run", try.ID != "", try.ID, "")
	return slices.Clip(fields)
}

func exitCode(try *past.Try) string {
	if try.ExitCode == nil {
		return ""
	}
	return fmt.Sprint(*try.ExitCode)
}
