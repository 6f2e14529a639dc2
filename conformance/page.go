package conformance

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Page returns a page in Markdown: the promises with the cases that prove them, and the
// cases with what each backend does without, and why. It goes by what the backends
// declare, which their runs of the suite hold them to.
func Page(backends ...Backend) string {
	p := &page{backends: backends}
	p.writeIntro()
	p.writeLacks()
	p.writePromises()
	p.writeCases()
	return p.b.String()
}

type page struct {
	b        strings.Builder
	backends []Backend
}

func (p *page) line(format string, args ...any) { fmt.Fprintf(&p.b, format+"\n", args...) }

// row writes a row of a table. In a cell, a bar would begin another.
func (p *page) row(cells ...string) {
	for i, c := range cells {
		cells[i] = strings.ReplaceAll(c, "|", `\|`)
	}
	p.line("| %s |", strings.Join(cells, " | "))
}

func (p *page) table(heads ...string) {
	p.row(heads...)
	p.row(slices.Repeat([]string{"---"}, len(heads))...)
}

func (p *page) writeIntro() {
	p.line("# Conformance\n")
	p.line("Written by the suite: `go test ./conformance -update` writes it anew, and a test fails while it is")
	p.line("out of date. It goes by what the backends declare. A run of the suite fails if a declaration is not")
	p.line("true, or a case that is not declared to be lacking does not pass.\n")
	p.table("backend", "cases", "passed", "lacking")
	for _, b := range p.backends {
		lacking := 0
		for _, c := range Cases() {
			if c.lackReason(b) != "" {
				lacking++
			}
		}
		n := len(Cases())
		p.row(b.Name, fmt.Sprint(n), fmt.Sprint(n-lacking), fmt.Sprint(lacking))
	}
	p.line("\nCases marked **S** are for safety: they may be lacking only where a store has too few members for one")
	p.line("to be missing. Codes stay when names change.\n")
}

func (p *page) writeLacks() {
	p.line("## What is lacking, and why\n")
	for _, b := range p.backends {
		p.line("### %s\n", b.Name)
		if len(b.Lacks) == 0 {
			p.line("Nothing.\n")
			continue
		}
		p.table("lack", "reason", "cases")
		for _, name := range slices.Sorted(maps.Keys(b.Lacks)) {
			var codes []string
			for _, c := range Cases() {
				if slices.Contains(c.lacking(b.Lacks), name) {
					codes = append(codes, c.Code)
				}
			}
			p.row(name, b.Lacks[name], cmp.Or(strings.Join(codes, " "), "none"))
		}
		p.line("")
	}
}

func (p *page) writePromises() {
	p.line("## Promises\n")
	p.line("In the order in which the documentation of package registry makes them; then those beyond it.\n")
	p.table("promise", "cases")
	for _, promise := range Promises() {
		var codes []string
		for _, c := range Cases() {
			if slices.Contains(c.Proves, promise) {
				codes = append(codes, c.Code)
			}
		}
		p.row(string(promise), strings.Join(codes, " "))
	}
	p.line("")
}

func (p *page) writeCases() {
	p.line("## Cases")
	last := ""
	for _, c := range Cases() {
		if c.Group != last {
			last = c.Group
			p.line("\n### %s\n", c.Group)
			heads := []string{"case", "", "levers"}
			for _, b := range p.backends {
				heads = append(heads, b.Name)
			}
			p.table(heads...)
		}
		name := c.Title()
		safety := ""
		if c.Safety {
			safety = "**S**"
		}
		cells := []string{name, safety, strings.Join(c.Needs, ", ")}
		for _, b := range p.backends {
			outcome := Passed
			if c.lackReason(b) != "" {
				outcome = Lacking
			}
			cells = append(cells, outcome.String())
		}
		p.row(cells...)
	}
}
