// Package screen prints views: as tables that fit a terminal, as JSON, JSON lines, YAML or names.
package screen

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/rota-dev/rota/internal/view"
)

// View is what a command shows.
type View interface {
	Screen(t view.Times) view.Screen
	Names() []string // for -o name
	Items() []any    // for -o jsonl
}

// Width is the width of tables that are not wide.
const Width = 100

// Print prints a view in a form of settings.Outputs.
func Print(w io.Writer, v View, form string, t view.Times) error {
	switch form {
	case "json", "jsonl", "yaml":
		return printData(w, v, form)
	case "name":
		for _, name := range v.Names() {
			if _, err := fmt.Fprintln(w, name); err != nil {
				return err
			}
		}
		return nil
	}
	_, err := io.WriteString(w, Text(v.Screen(t), form == "wide"))
	return err
}

// PrintJSON prints a struct as JSON. Nil lists in it are [].
func PrintJSON(w io.Writer, v any) error { return view.WriteJSON(w, v) }

// printData prints a view as JSON, JSON lines or YAML.
func printData(w io.Writer, v View, form string) error {
	switch form {
	case "json":
		return PrintJSON(w, v)
	case "yaml":
		return printYAML(w, view.FillLists(v))
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	for _, item := range v.Items() {
		if err := e.Encode(view.FillLists(item)); err != nil {
			return err
		}
	}
	return nil
}

// printYAML prints the JSON form as YAML, with the fields in the same order.
func printYAML(w io.Writer, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var node yaml.Node
	if err := yaml.Unmarshal(text, &node); err != nil { // JSON is YAML
		return err
	}
	useBlockStyle(&node)
	e := yaml.NewEncoder(w)
	e.SetIndent(2)
	if err := e.Encode(&node); err != nil {
		return err
	}
	return e.Close()
}

// useBlockStyle removes the styles of JSON. The encoder quotes texts that need it, and keeps [] and {}.
func useBlockStyle(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode || len(n.Content) > 0 {
		n.Style = 0
	}
	for _, c := range n.Content {
		useBlockStyle(c)
	}
}

// Text returns a screen as text. Unless it is wide, no line of a table is longer than Width.
func Text(s view.Screen, wide bool) string {
	var b strings.Builder
	for _, section := range s {
		text := sectionText(&section, wide)
		if text == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(text)
	}
	return b.String()
}

func sectionText(s *view.Section, wide bool) string {
	var b strings.Builder
	if s.Title != "" {
		b.WriteString(clean(s.Title) + "\n")
	}
	indent := ""
	if s.Title != "" && len(s.Fields) > 0 {
		indent = "  "
	}
	label := 0
	for _, f := range s.Fields {
		label = max(label, width(f.Label))
	}
	for _, f := range s.Fields {
		line := indent + pad(f.Label, label) + "  " + clean(f.Text)
		if !wide {
			line = wrap(line, len(indent)+label+2)
		}
		b.WriteString(line + "\n")
	}
	b.WriteString(tableText(&s.Table, wide))
	for _, l := range s.Lines {
		b.WriteString(clean(l) + "\n")
	}
	return b.String()
}

// wrap breaks a line at spaces so that it fits, with so many spaces before each further line.
func wrap(line string, indent int) string {
	var out []string
	for width(line) > Width {
		at := strings.LastIndexByte(line[:min(len(line), Width+1)], ' ')
		if at <= indent {
			break // a word that does not fit
		}
		out = append(out, line[:at])
		line = strings.Repeat(" ", indent) + line[at+1:]
	}
	return strings.Join(append(out, line), "\n")
}

func tableText(t *view.Table, wide bool) string {
	var cols []int // the columns that are shown
	for i, c := range t.Columns {
		if wide || !c.Wide {
			cols = append(cols, i)
		}
	}
	if len(cols) == 0 {
		return ""
	}
	rows := make([][]string, 0, len(t.Rows)+1)
	header := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		header[i] = c.Name
	}
	rows = append(rows, header)
	for _, r := range t.Rows {
		cells := make([]string, len(r))
		for i, cell := range r {
			cells[i] = clean(cell)
		}
		rows = append(rows, cells)
	}
	widths := columnWidths(t.Columns, cols, rows, wide)
	var b strings.Builder
	for _, r := range rows {
		var line strings.Builder
		for n, i := range cols {
			cell := shorten(r[i], widths[i])
			if n < len(cols)-1 {
				cell = pad(cell, widths[i]) + "  "
			}
			line.WriteString(cell)
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return b.String()
}

// columnWidths returns the width of each column. Unless the table is wide, the widest of the flexible
// columns shrink until it fits.
func columnWidths(columns []view.Column, shown []int, rows [][]string, wide bool) []int {
	widths := make([]int, len(columns))
	total := 2 * (len(shown) - 1)
	for _, i := range shown {
		for _, r := range rows {
			widths[i] = max(widths[i], width(r[i]))
		}
		total += widths[i]
	}
	for ; !wide && total > Width; total-- {
		widest := -1
		for _, i := range shown {
			least := max(8, width(columns[i].Name))
			if columns[i].Flex && widths[i] > least && (widest < 0 || widths[i] >= widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
	}
	return widths
}

// shorten cuts a text to a width.
func shorten(text string, most int) string {
	if width(text) <= most {
		return text
	}
	cut := ""
	for _, r := range text {
		if width(cut)+width(string(r)) > most-2 {
			break
		}
		cut += string(r)
	}
	return cut + ".."
}

func pad(text string, to int) string { return text + strings.Repeat(" ", max(0, to-width(text))) }

// width returns how many columns of a terminal a text takes.
func width(text string) (n int) {
	for _, r := range text {
		n++
		if r > unicode.MaxLatin1 && unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul) {
			n++
		}
	}
	return n
}

// clean replaces control characters, with which an error or a label could change the terminal.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}
