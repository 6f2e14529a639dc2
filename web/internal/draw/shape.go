// Package draw turns the models of package past into SVG and tables. Its functions are pure.
//
// A state has a shape besides its class, so that nobody needs to tell colours apart. Drawings have classes and no styles, which a
// strict content policy allows; static/draw.css has the styles. Each drawing has a table with the same facts.
package draw

import (
	"html/template"
	"strconv"
	"strings"

	"github.com/rota-dev/rota/web/internal/past"
)

// A cell is size wide and high; cells are step apart.
const (
	size = 8
	step = 10
)

// shape is the outline of a state within a cell: path commands from a point of the cell to another one.
type shape struct {
	x, y int
	path string
	u, v int // where path ends
}

var shapes = [past.States]shape{
	past.OK:         {0, 4, "h8", 8, 4},                   // a square, by the width of the stroke
	past.Unkept:     {2, 4, "h4", 6, 4},                   // a small square
	past.Repeated:   {0, 0, "h8l-8 8z", 0, 0},             // half a square
	past.Running:    {0, 0, "l8 4-8 4z", 0, 0},            // an arrow
	past.Due:        {0, 0, "h8v8h-8zm2 2v4h4v-4z", 2, 2}, // a hollow square
	past.Skipped:    {0, 4, "h8", 8, 4},                   // a dash
	past.Unknown:    {4, 2, "l2 2-2 2-2-2z", 4, 2},        // a dot
	past.Pending:    {0, 0, "h8l-8 8h8z", 0, 0},           // an hourglass
	past.Unfinished: {0, 4, "h8v4h-8z", 0, 4},             // the lower half of a square
	past.Crashed:    {4, 0, "l4 4-4 4-4-4z", 4, 0},        // a diamond
	past.Failed:     {0, 0, "l8 8m0-8l-8 8", 0, 8},        // a cross
}

// pen collects cells of one state in a path. Its moves are relative, which are shorter.
type pen struct {
	path []byte
	x, y int
}

// add adds the shape of a state in the cell with the corner x, y.
func (p *pen) add(s past.State, x, y int) {
	sh := &shapes[s]
	if sh.path == "" {
		return
	}
	p.path = append(p.path, 'm')
	p.path = strconv.AppendInt(p.path, int64(x+sh.x-p.x), 10)
	if dy := y + sh.y - p.y; dy >= 0 { // a minus separates numbers too
		p.path = append(p.path, ' ')
		p.path = strconv.AppendInt(p.path, int64(dy), 10)
	} else {
		p.path = strconv.AppendInt(p.path, int64(dy), 10)
	}
	p.path = append(p.path, sh.path...)
	p.x, p.y = x+sh.u, y+sh.v
}

// markup builds SVG. Texts and addresses are escaped.
type markup struct{ strings.Builder }

func (m *markup) raw(parts ...string) {
	for _, p := range parts {
		m.WriteString(p)
	}
}

func (m *markup) text(s string) { m.WriteString(template.HTMLEscapeString(s)) }

// open begins a drawing of a size. Its parts can be links, so it is no image but a group.
func (m *markup) open(class, label string, width, height int) {
	m.raw(`<svg class="`, class, `" role="group" aria-label="`)
	m.text(label)
	m.raw(`" viewBox="0 0 `, strconv.Itoa(width), " ", strconv.Itoa(height), `" width="`, strconv.Itoa(width), `" height="`, strconv.Itoa(height), `">`)
}

func (m *markup) close() template.HTML {
	m.raw("</svg>")
	return template.HTML(m.String())
}

// path writes the cells of a pen, with a title. It is a link if there is an address. Tab passes it over: the table has the same links.
func (m *markup) path(s past.State, p *pen, title, href string) {
	if len(p.path) == 0 {
		return
	}
	if href != "" {
		m.raw(`<a tabindex="-1" href="`)
		m.text(href)
		m.raw(`"><title>`)
		m.text(title)
		m.raw(`</title><path class="`, s.Name(), `" d="`, string(p.path), `"/></a>`)
		return
	}
	m.raw(`<path class="`, s.Name(), `" d="`, string(p.path), `"><title>`)
	m.text(title)
	m.raw(`</title></path>`)
}

// label writes a text at a point, as a link if there is an address.
func (m *markup) label(class string, x, y int, text, href string) {
	if href != "" {
		m.raw(`<a href="`)
		m.text(href)
		m.raw(`">`)
	}
	m.raw(`<text`)
	if class != "" {
		m.raw(` class="`, class, `"`)
	}
	m.raw(` x="`, strconv.Itoa(x), `" y="`, strconv.Itoa(y), `">`)
	m.text(text)
	m.raw("</text>")
	if href != "" {
		m.raw("</a>")
	}
}

// Legend returns a list of the shapes of states, without those that no drawing has.
func Legend() template.HTML {
	var m markup
	m.raw(`<ul class="legend">`)
	for i := range past.States {
		s := past.State(i)
		if shapes[s].path == "" {
			continue
		}
		var p pen
		p.add(s, 0, 0)
		m.raw(`<li><svg class="cells" aria-hidden="true" viewBox="-1 -1 10 10" width="12" height="12"><path class="`, s.Name(), `" d="`, string(p.path), `"/></svg> `)
		m.text(s.String())
		m.raw("</li>")
	}
	for _, missing := range []struct{ class, text string }{{"missing", "fires not on record"}, {"missing passed", "fires skipped at once"}} {
		m.raw(`<li><svg class="cells" aria-hidden="true" viewBox="-1 -1 10 10" width="12" height="12"><path class="`, missing.class, `" d="M4 0v8"/></svg> `, missing.text, "</li>")
	}
	m.raw("</ul>")
	return template.HTML(m.String())
}
