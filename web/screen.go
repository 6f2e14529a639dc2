package web

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/instant"
	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/web/internal/draw"
)

// section is a section of a screen of the command, for a template.
type section struct {
	ID     string
	Title  string
	Fields []draw.Field
	draw.Table
	Lines []string
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
			sec.Fields = append(sec.Fields, draw.Field{Label: strings.TrimSpace(f.Label), Text: textOf(f.Text, at(e.Fields, j).Text, "")})
		}
		for _, c := range v.Table.Columns {
			if !c.Wide {
				sec.Head = append(sec.Head, c.Name)
			}
		}
		for j, cells := range v.Table.Rows {
			var r draw.Row // without an ID and a state, which the page may set
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

// longestText bounds a text of a screen, such as the list of an owner's shards. The command prints all of it.
const longestText = 512

func textOf(relative, exact, link string) draw.Text {
	if exact == relative || len(exact) > longestText {
		exact = ""
	}
	if len(relative) > longestText {
		relative = strings.ToValidUTF8(relative[:longestText], "") + " ..."
	}
	return draw.Text{Text: relative, Exact: exact, Link: link}
}

// jobLink returns the address of a job's page relative to the fleet's.
func jobLink(job string) string { return "jobs/" + url.PathEscape(job) }

// instanceLink returns the directory of an instance relative to the fleet's page.
func instanceLink(instance string) string { return "instances/" + url.PathEscape(instance) }

// linkColumns returns a function for screenOf: names of jobs lead to their pages.
func linkColumns(root string) func(column, text string) string {
	return func(column, text string) string {
		if column == "JOB" || column == "ON" && text != "all jobs" && text != "-" {
			return root + jobLink(text)
		}
		return ""
	}
}

// instantOf parses an instant of a query, as the command does: a time of day is the last one.
func (c *Console) instantOf(r *request, name string) (time.Time, error) {
	at, err := instant.Parse(strings.TrimSpace(r.URL.Query().Get(name)), time.Now(), c.times(r).Zone, instant.Past)
	if err != nil {
		return at, problemf(http.StatusBadRequest, "The instant is %v.", err)
	}
	return at, nil
}
