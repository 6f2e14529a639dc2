package web

import (
	"fmt"
	"html/template"
	"net/url"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/view"
)

// section is a section of a screen of the command, for a template.
type section struct {
	ID     string
	Title  string
	Fields []field
	Head   []string
	Rows   []row
	Lines  []string
}

type field struct {
	Label string
	Text  text
}

// row is a row of a table. ID and State are empty unless the page sets them.
type row struct {
	ID, State string
	Cells     []text
}

// text is a text that may be a link, and whose exact form may differ: relative times.
type text struct {
	Text, Exact, Link string
	Drawing           template.HTML // in place of the text
}

// screenOf returns a screen for a template. Each instant is shown relative to now; its exact form is that of the same screen with
// absolute times. Links returns the address for a text of a column, "" for none.
func screenOf(s func(view.Times) view.Screen, t view.Times, links func(column, text string) string) (out []section) {
	absolute := t
	if absolute.Mode = "local"; t.Zone == time.UTC {
		absolute.Mode = "utc"
	}
	exact := s(absolute)
	for i, v := range s(t) {
		e := exact[i]
		sec := section{ID: fmt.Sprintf("part%d", i), Title: v.Title, Lines: v.Lines}
		for j, f := range v.Fields {
			sec.Fields = append(sec.Fields, field{strings.TrimSpace(f.Label), textOf(f.Text, at(e.Fields, j).Text, "")})
		}
		for _, c := range v.Table.Columns {
			if !c.Wide {
				sec.Head = append(sec.Head, c.Name)
			}
		}
		for j, cells := range v.Table.Rows {
			var r row
			for k, cell := range cells {
				if c := v.Table.Columns[k]; !c.Wide {
					r.Cells = append(r.Cells, textOf(cell, at(at(e.Table.Rows, j), k), links(c.Name, cell)))
				}
			}
			sec.Rows = append(sec.Rows, r)
		}
		if len(sec.Fields)+len(sec.Rows)+len(sec.Lines) > 0 {
			out = append(out, sec)
		}
	}
	return out
}

// at returns an element, or a zero one: two screens at one instant have the same parts.
func at[T any](list []T, i int) (zero T) {
	if i < len(list) {
		return list[i]
	}
	return zero
}

func textOf(relative, exact, link string) text {
	if exact == relative {
		exact = ""
	}
	return text{Text: relative, Exact: exact, Link: link}
}

// jobLink returns the address of a job's page relative to the fleet's.
func jobLink(job string) string { return "jobs/" + url.PathEscape(job) }

// linkColumns returns a function for screenOf: names of jobs lead to their pages.
func linkColumns(root string) func(column, text string) string {
	return func(column, text string) string {
		if column == "JOB" || column == "ON" && text != "all jobs" {
			return root + jobLink(text)
		}
		return ""
	}
}

// instantOf parses an instant of a query.
func instantOf(s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	return time.Parse(time.RFC3339Nano, s)
}
