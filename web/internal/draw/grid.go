package draw

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/web/internal/past"
)

// ownCells is how many cells of a grid may have an address and a title of their own. With more, the cells of a fire in one state share
// a title that counts them, so that a page stays small.
const ownCells = 300

// briefFires is how many fires a brief strip has, so that a list of jobs fits a desk.
const briefFires = 20

// Strip draws the last fires of a job as a row of cells, each with a title and a link to the fire.
func Strip(s past.Strip, l Links, t view.Times) template.HTML {
	var m markup
	at, columns := columnsOf(s.Fires, s.After)
	m.open("cells strip", describeStrip(s), max(1, columns)*step, size+2)
	for i := range s.Fires {
		f := &s.Fires[i]
		m.missing(f.Missing, at[i]-1, 1, 1, size, t)
		var p pen
		p.add(f.State, at[i]*step+1, 1)
		m.path(f.State, &p, titleOfFire(t, f), l.Fire(f.Fire, f.Trigger))
	}
	m.missing(s.After, columns-1, 1, 1, size, t)
	return m.close()
}

// columnsOf returns the column of each fire, and the number of columns: what is missing has one of its own.
func columnsOf(fires []past.Fire, after *past.Missing) (at []int, n int) {
	at = make([]int, len(fires))
	for i := range fires {
		if fires[i].Missing != nil {
			n++
		}
		at[i] = n
		n++
	}
	if after != nil {
		n++
	}
	return at, n
}

// missing draws what is missing as a dashed line in a column, from y on.
func (m *markup) missing(of *past.Missing, column, left, y, height int, t view.Times) {
	if of == nil {
		return
	}
	class := "missing"
	if of.Skipped {
		class = "missing passed"
	}
	m.raw(`<path class="`, class, `" d="`, fmt.Sprintf("M%d %dv%d", left+column*step+size/2, y, height), `"><title>`)
	m.text(describeMissing(of, t))
	m.raw("</title></path>")
}

// describeMissing returns "3 fires skipped, from 12:05 to 12:15".
func describeMissing(of *past.Missing, t view.Times) string {
	if of.From.Equal(of.To) {
		return fmt.Sprintf("%s: %s", exact(t, of.From), of.Text)
	}
	return fmt.Sprintf("%s to %s: %s", exact(t, of.From), exact(t, of.To), of.Text)
}

// missingRow returns the row of what is missing, in a table of fires.
func missingRow(of *past.Missing, t view.Times) Row {
	state := past.Unknown
	if of.Skipped {
		state = past.Skipped
	}
	name := exact(t, of.From)
	if !of.From.Equal(of.To) {
		name += " to " + exact(t, of.To)
	}
	return Row{ID: "missing-" + FireName(of.From, 0), State: state.Name(), Cells: []Text{{Text: name}, {Text: state.String()}, {Text: of.Text}, {Text: "-"}, {Text: "-"}}}
}

// BriefStrip draws the last fires of a job for a list of many jobs, in about a kilobyte. The fires in one state share a title, which
// names the latest of them. The whole drawing is a link to the grid.
func BriefStrip(s past.Strip, l Links, t view.Times) template.HTML {
	if more := len(s.Fires) - briefFires; more > 0 {
		s.Fires = slices.Clone(s.Fires[more:]) // the strip is that of all viewers
		s.Fires[0].Missing = nil
	}
	var pens [past.States]pen
	var counts [past.States]int
	var latest [past.States]time.Time
	at, columns := columnsOf(s.Fires, s.After)
	for i := range s.Fires {
		f := &s.Fires[i]
		pens[f.State].add(f.State, at[i]*step+1, 1)
		counts[f.State]++
		latest[f.State] = f.Fire
	}
	var m markup
	m.raw(`<a href="`)
	m.text(l.Grid(past.Range{First: 0, Last: -1}, time.Time{}))
	m.raw(`">`)
	m.open("cells strip", describeStrip(s), max(briefFires, columns)*step, size+2)
	for i := range s.Fires {
		m.missing(s.Fires[i].Missing, at[i]-1, 1, 1, size, t)
	}
	m.missing(s.After, columns-1, 1, 1, size, t)
	for i := range pens {
		m.path(past.State(i), &pens[i], fmt.Sprintf("%d %v, the last %s", counts[i], past.State(i), exact(t, latest[i])), "")
	}
	m.close()
	m.raw("</a>")
	return template.HTML(m.String())
}

// describeStrip counts the fires by state: "last 60 fires: 58 ok, 2 failed".
func describeStrip(s past.Strip) string {
	var counts [past.States]int
	for i := range s.Fires {
		counts[s.Fires[i].State]++
	}
	var parts []string
	for state, n := range counts {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %v", n, past.State(state)))
		}
	}
	if parts == nil {
		return s.Job + ": no fires on record"
	}
	return fmt.Sprintf("%s: last %d fires: %s", s.Job, len(s.Fires), strings.Join(parts, ", "))
}

func titleOfFire(t view.Times, f *past.Fire) string {
	title := nameOf(t, f.Fire, f.Trigger) + ": " + f.State.String()
	if f.Text != "" {
		title += ": " + f.Text
	}
	return title
}

// StripTable is the table of a strip, the latest fire first.
func StripTable(s past.Strip, l Links, t view.Times) Table {
	table := Table{Head: []string{"FIRE", "STATE", "RUNS", "LATE", "TOOK"}}
	table.addMissing(s.After, t)
	for _, f := range slices.Backward(s.Fires) {
		table.Rows = append(table.Rows, fireRow(&f, l, t, f.Text))
		table.addMissing(f.Missing, t)
	}
	return table
}

func (table *Table) addMissing(of *past.Missing, t view.Times) {
	if of != nil {
		table.Rows = append(table.Rows, missingRow(of, t))
	}
}

// fireRow returns the row of a fire.
func fireRow(f *past.Fire, l Links, t view.Times, text string) Row {
	late, took := "-", "-"
	if r := &f.Recorded; !r.FirstStart.IsZero() {
		if f.Trigger == 0 {
			late = view.Span(r.MaxLate)
		}
		if !r.LastEnd.IsZero() {
			took = view.Span(r.LastEnd.Sub(r.FirstStart))
		}
	}
	name := FireName(f.Fire, f.Trigger)
	if f.Trigger != 0 { // a number may have fires at several instants
		name = FireName(f.Fire, 0) + name
	}
	return Row{ID: "fire-" + name, State: f.State.Name(), Cells: []Text{
		{Text: nameOf(t, f.Fire, f.Trigger), Exact: t.At(f.Fire), Link: l.Fire(f.Fire, f.Trigger)}, {Text: f.State.String()}, {Text: text}, {Text: late}, {Text: took},
	}}
}

// Margins of a grid: names of rows at the left, times at the top, then the state of each fire as a whole.
const (
	gridLeft = 80
	gridTop  = 28
	headRow  = 14
	tickGap  = 12 // columns between times
)

// Grid draws a grid: a column for each fire, a row for each range of shards.
func Grid(g past.Grid, l Links, t view.Times) template.HTML {
	var m markup
	own := hasOwnCells(&g)
	label := fmt.Sprintf("%s: %d fires by shards %v; the table has the same facts", g.Job, len(g.Fires), g.Of)
	at, columns := columnsOf(g.Fires, g.After)
	m.open("cells grid", label, gridLeft+max(tickGap, columns)*step, gridTop+len(g.Rows)*step)
	height := gridTop + len(g.Rows)*step - headRow
	m.missing(g.After, columns-1, gridLeft, headRow, height, t)
	before, tick := time.Time{}, 0
	for i := range g.Fires {
		f := &g.Fires[i]
		x := gridLeft + at[i]*step
		if at[i] >= tick {
			m.label("tick", x, 9, clock(t, f.Fire, before), "")
			before, tick = f.Fire, at[i]+tickGap
		}
		m.missing(f.Missing, at[i]-1, gridLeft, headRow, height, t)
		var p pen
		p.add(f.State, x, headRow)
		title := nameOf(t, f.Fire, f.Trigger) + ": " + f.State.String()
		if own {
			title = titleOfFire(t, f)
		}
		m.path(f.State, &p, title, l.Fire(f.Fire, f.Trigger))
	}
	for j, row := range g.Rows {
		href := ""
		if row.Len() > 1 {
			href = l.Grid(row, g.Until)
		}
		m.label("row", gridLeft-6, gridTop+j*step+size, row.String(), href)
	}
	for i := range g.Fires {
		m.column(&g, i, gridLeft+at[i]*step, own, l, t)
	}
	return m.close()
}

// hasOwnCells reports whether each cell that is worth a look has its own title and address.
func hasOwnCells(g *past.Grid) bool {
	n := 0
	for _, row := range g.Cells {
		for i := range row {
			if row[i].State.IsNotable() {
				n++
			}
		}
	}
	return n <= ownCells
}

// column draws the cells of a fire. Those worth a look have their own title and link if own is set.
func (m *markup) column(g *past.Grid, i, x int, own bool, l Links, t view.Times) {
	f := &g.Fires[i]
	name, brief := nameOf(t, f.Fire, f.Trigger), clock(t, f.Fire, f.Fire)
	var pens [past.States]pen
	var rows, shards [past.States]int
	for j, row := range g.Rows {
		c := &g.Cells[j][i]
		y := gridTop + j*step
		if !own || !c.State.IsNotable() {
			pens[c.State].add(c.State, x, y)
			rows[c.State]++
			shards[c.State] += c.Counts[c.State]
			continue
		}
		var p pen
		p.add(c.State, x, y)
		href := l.Run(f.Fire, f.Trigger, row.First)
		if row.Len() > 1 {
			href = l.Grid(row, g.Until)
		}
		m.path(c.State, &p, fmt.Sprintf("%s, %s: %s", name, shardsText(row), describeCounts(&c.Counts)), href)
	}
	for s := range pens {
		title := fmt.Sprintf("%s %v: %d rows, %d shards", brief, past.State(s), rows[s], shards[s])
		m.path(past.State(s), &pens[s], title, "")
	}
}

func shardsText(r past.Range) string {
	if r.Len() == 1 {
		return "shard " + r.String()
	}
	return "shards " + r.String()
}

// describeCounts returns "2 failed, 155 ok", the worst first.
func describeCounts(c *past.Counts) string {
	var parts []string
	for s := past.States - 1; s >= 0; s-- {
		if c[s] > 0 && (s > 0 || len(parts) == 0) {
			parts = append(parts, fmt.Sprintf("%d %v", c[s], past.State(s)))
		}
	}
	return strings.Join(parts, ", ")
}

// GridTable is the table of a grid, the latest fire first: the ranges of shards by their worst state.
func GridTable(g past.Grid, l Links, t view.Times) Table {
	table := Table{Head: []string{"FIRE", "STATE", "SHARDS", "LATE", "TOOK"}}
	table.addMissing(g.After, t)
	own := hasOwnCells(&g)
	for i := len(g.Fires) - 1; i >= 0; i-- {
		text := describeColumn(&g, i, own)
		for _, more := range []string{g.Fires[i].Text, g.Notes[i]} {
			if more != "" {
				text += ". " + more
			}
		}
		table.Rows = append(table.Rows, fireRow(&g.Fires[i], l, t, text))
		table.addMissing(g.Fires[i].Missing, t)
	}
	return table
}

// describeColumn returns the ranges of a fire by state, the worst first: "failed: 3-5 (1), 7; ok: the others". A range with shards in
// other states has the number of those in this one, if counts is set.
func describeColumn(g *past.Grid, i int, counts bool) string {
	var lists [past.States][]string
	counted := [past.States]bool{}
	for j := 0; j < len(g.Rows); j++ {
		c := &g.Cells[j][i]
		of := g.Rows[j]
		if counts && c.Counts[c.State] < of.Len() {
			lists[c.State] = append(lists[c.State], fmt.Sprintf("%v (%d)", of, c.Counts[c.State]))
			counted[c.State] = true
			continue
		}
		for j+1 < len(g.Rows) && g.Cells[j+1][i].State == c.State && (!counts || g.Cells[j+1][i].Counts[c.State] == g.Rows[j+1].Len()) {
			j++
			of.Last = g.Rows[j].Last
		}
		lists[c.State] = append(lists[c.State], of.String())
	}
	others := past.Absent // the state with the longest list, which the other lists leave
	for s := range lists {
		if !counted[s] && len(lists[s]) > max(1, len(lists[others])) {
			others = past.State(s)
		}
	}
	if len(lists[others]) > 1 && others != past.Absent {
		lists[others] = []string{"the others"}
	}
	var parts []string
	for s := past.States - 1; s > 0; s-- {
		if len(lists[s]) > 0 {
			parts = append(parts, past.State(s).String()+": "+strings.Join(lists[s], ", "))
		}
	}
	return cmp.Or(strings.Join(parts, "; "), "-")
}
