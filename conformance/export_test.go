package conformance

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Page returns the Markdown page docs/conformance.md: the promises with the cases that
// test them, and the cases with the reasons why a backend skips some. It is built from
// the declarations of the backends, which their own runs of the suite verify.
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

// row writes a table row. It escapes bars, which would end a cell.
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
	p.line("Generated from the suite by `go test ./conformance -update`; a test fails while it is out of date. It")
	p.line("lists what the backends declare. A run of the suite fails if a declaration is wrong, or if a case that")
	p.line("is not declared as lacking fails. To write a backend, see [backends.md](backends.md).\n")
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
	p.line("\nCases marked **S** are safety cases: only a store with too few members to lose one may lack them.")
	p.line("Codes are stable; names may be reworded.\n")
}

func (p *page) writeLacks() {
	p.line("## Lacking fault controls and cases\n")
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
	p.line("In the order of the documentation of package registry, followed by promises beyond it.\n")
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
			heads := []string{"case", "", "fault controls"}
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
