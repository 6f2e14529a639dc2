package draw

import (
	"cmp"
	"fmt"
	"html/template"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/web/internal/past"
)

// Bars of a fire: names of shards at the left, owners at the right, time between them.
const (
	barLeft  = 70
	barWidth = 600
	barRight = 150
	barTop   = 16
	barStep  = 14
	ownerMax = 22 // characters of an owner's name
)

// axis maps times to a drawing.
type axis struct{ begin, end time.Time }

func (a axis) x(at time.Time) int {
	span := a.end.Sub(a.begin)
	if span <= 0 {
		return barLeft
	}
	return barLeft + int(float64(barWidth)*min(1, max(0, float64(at.Sub(a.begin))/float64(span))))
}

// Bars draws a row for each shard: a bar for each attempt, which ends with the shape of its state, and dashes where no run was on
// record. job is for the label.
func Bars(job string, rows []past.ShardRuns, begin, end time.Time, l Links, t view.Times) template.HTML {
	var m markup
	label := fmt.Sprintf("%s: attempts of %d shards over time; the table has the same facts", job, len(rows))
	m.open("cells bars", label, barLeft+barWidth+barRight, barTop+max(1, len(rows))*barStep)
	a := axis{begin, end}
	if !begin.IsZero() {
		m.label("tick", barLeft, 9, exact(t, begin), "")
		m.label("tick end", barLeft+barWidth, 9, "+"+view.Span(end.Sub(begin)), "")
	}
	for i := range rows {
		m.shard(&rows[i], a, barTop+i*barStep, l, t)
	}
	return m.close()
}

// shard draws the row of a shard.
func (m *markup) shard(s *past.ShardRuns, a axis, y int, l Links, t view.Times) {
	href, owner := "", ""
	if n := len(s.Tries); n > 0 {
		try := &s.Tries[n-1]
		href, owner = l.Run(try.Fire, try.Trigger, s.Shard), try.Instance
	}
	m.label("row", barLeft-6, y+size, fmt.Sprint(s.Shard), href)
	middle := y + size/2
	if s.Late > 0 && len(s.Tries) > 0 {
		start := s.Tries[0].Started
		m.line("late", a.x(start.Add(-s.Late)), a.x(start), middle, "late "+view.Span(s.Late))
	}
	for i := range s.Gaps {
		g := &s.Gaps[i]
		class := "gap"
		if g.Failover {
			class = "gap failover"
		}
		m.line(class, a.x(g.From), a.x(g.To), middle, describeGap(g))
	}
	for i := range s.Tries {
		try := &s.Tries[i]
		from, to := try.Started, try.Ended
		class := "bar " + try.State.Name()
		if from.IsZero() { // a crash, or a run that has not ended: where it began is not on record
			class = "bar unsure"
			if from = a.begin; i > 0 && !s.Tries[i-1].Ended.IsZero() {
				from = s.Tries[i-1].Ended
			}
		}
		if to.IsZero() {
			to = a.end
		}
		m.line(class, a.x(from), a.x(to), middle, "")
		var p pen
		p.add(try.State, a.x(to)-size/2, y)
		m.path(try.State, &p, describeTry(try, t), l.Run(try.Fire, try.Trigger, s.Shard))
	}
	if len(s.Tries) == 0 && s.State != past.Absent {
		var p pen
		p.add(s.State, barLeft, y)
		m.path(s.State, &p, cmp.Or(s.Note, s.State.String()), "")
	}
	if owner != "" {
		m.label("", barLeft+barWidth+10, y+size, shorten(owner), "")
	}
}

// line draws a horizontal line, with a title if there is one.
func (m *markup) line(class string, from, to, y int, title string) {
	m.raw(`<path class="`, class, fmt.Sprintf(`" d="M%d %dH%d"`, from, y, max(to, from+1)))
	if title == "" {
		m.raw("/>")
		return
	}
	m.raw("><title>")
	m.text(title)
	m.raw("</title></path>")
}

func shorten(name string) string {
	if r := []rune(name); len(r) > ownerMax {
		return string(r[:ownerMax-1]) + "…"
	}
	return name
}

func describeGap(g *past.Gap) string {
	return fmt.Sprintf("%s without a run: %s", view.Span(g.To.Sub(g.From)), g.Text)
}

// describeTry describes an attempt, without its error, which may be long.
func describeTry(try *past.Try, t view.Times) string {
	text := fmt.Sprintf("shard %d, attempt %d on %s: %s", try.Shard, try.Attempt, try.Instance, outcomeOf(try))
	switch {
	case try.State == past.Running:
		text += "; when it began is not on record"
	case try.Started.IsZero():
		text += fmt.Sprintf(", found %s; when it began is not on record", exact(t, try.Ended))
	default:
		text += fmt.Sprintf(", from %s, took %s", exact(t, try.Started), view.Span(try.Duration()))
	}
	return text
}

func outcomeOf(try *past.Try) string {
	if try.Outcome == "" {
		return try.State.String()
	}
	return string(try.Outcome)
}

// hidden replaces texts that the viewer may not see.
const hidden = "(needs the role reveal)"

// BarsTable is the table of Bars: a row for each attempt, and one for each shard without any.
func BarsTable(rows []past.ShardRuns, l Links, t view.Times) Table {
	table := Table{Head: []string{"SHARD", "STATE", "TRY", "OWNER", "STARTED", "TOOK", "ERROR", "NOTE"}}
	for i := range rows {
		s := &rows[i]
		if len(s.Tries) == 0 {
			table.Rows = append(table.Rows, Row{ID: fmt.Sprintf("shard-%d", s.Shard), State: s.State.Name(), Cells: []Text{
				{Text: fmt.Sprint(s.Shard)}, {Text: s.State.String()}, {Text: "-"}, {Text: "-"}, {Text: "-"}, {Text: "-"}, {Text: "-"}, {Text: cmp.Or(s.Note, "-")},
			}})
		}
		for j := range s.Tries {
			table.Rows = append(table.Rows, tryRow(s, j, l, t))
		}
	}
	return table
}

// tryRow returns the row of an attempt.
func tryRow(s *past.ShardRuns, j int, l Links, t view.Times) Row {
	try := &s.Tries[j]
	started, took := Text{Text: "-"}, "-"
	if !try.Started.IsZero() {
		started, took = Text{Text: exact(t, try.Started), Exact: t.At(try.Started)}, view.Span(try.Duration())
	}
	number := fmt.Sprint(try.Attempt)
	if try.Trigger != 0 {
		number += fmt.Sprintf(" of trigger #%d", try.Trigger)
	}
	var notes []string
	if j == 0 && s.Late > 0 {
		notes = append(notes, "late "+view.Span(s.Late))
	}
	for i := range s.Gaps {
		if s.Gaps[i].To.Equal(try.Started) {
			notes = append(notes, describeGap(&s.Gaps[i]))
		}
	}
	if j == 1 && s.Left > 0 {
		notes = append(notes, fmt.Sprintf("%d attempts before are on the page of the run", s.Left))
	}
	if j == len(s.Tries)-1 && s.Note != "" {
		notes = append(notes, s.Note)
	}
	return Row{ID: fmt.Sprintf("shard-%d-%d-%d-%d", s.Shard, try.Trigger, try.Attempt, j), State: try.State.Name(), Cells: []Text{
		{Text: fmt.Sprint(s.Shard), Link: l.Run(try.Fire, try.Trigger, s.Shard)},
		{Text: outcomeOf(try)},
		{Text: number},
		{Text: try.Instance},
		started,
		{Text: took},
		{Text: errorOf(try)},
		{Text: cmp.Or(strings.Join(notes, "; "), "-")},
	}}
}

// errorOf returns the error of an attempt with its exit code, "-" if there is none.
func errorOf(try *past.Try) string {
	switch {
	case try.Hidden:
		return hidden
	case try.Error == "":
		return "-"
	case try.ExitCode != nil && *try.ExitCode >= 0 && !strings.Contains(try.Error, "exit"):
		return fmt.Sprintf("exit code %d: %s", *try.ExitCode, try.Error)
	}
	return try.Error
}
