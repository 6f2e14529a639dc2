package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// section is a part of a document that the bench writes, between two comments.
type section struct {
	name   string
	render func(all map[string]result) string
}

// sections lists the parts of the documents that the bench writes.
var sections = []section{
	{"machine", renderMachine},
	{"storms", renderTable(isStorm, "held", "fires/s", "starved", "p50", "p99", "max")},
	{"costs", renderTable(isStorm, "client CPU", "server CPU", "sent", "received", "transactions", "start")},
	{"floors", renderTable(hasPrefix("floor-"), "held", "p50", "p99", "max", "client CPU", "server CPU", "sent", "transactions")},
	{"peers", renderTable(isPeerStorm, "held", "lost", "doubled", "p50", "p99", "client CPU", "server CPU", "sent", "transactions")},
	{"promises", renderPromises},
	{"shards", renderTable(hasPrefix("shards-"), "held", "p50", "p99", "max", "client CPU", "server CPU", "sent", "transactions")},
	{"crashes", renderTable(hasPrefix("crash-"), "expiry", "p50", "p99", "max", "gap", "others max", "moved", "reruns", "lost", "doubled")},
	{"changes", renderTable(hasPrefix("leave-", "join-", "restart-", "reshard-"), "gap", "p50", "p99", "max", "moved", "lost", "doubled")},
	{"outages", renderTable(hasPrefix("cadence-", "catchup-"), "due", "made", "p50", "max", "resume", "catch-up", "fires/s, shard", "lost", "doubled")},
	{"footprint", renderTable(hasPrefix("footprint-"), "start", "stop", "memory, instance", "memory, job", "CPU at rest", "sent at rest")},
	{"looks", renderTable(hasPrefix("look-"), "jobs", "jobs max", "jobs CPU", "jobs requests", "top at rest", "top")},
	{"definitions", renderTable(hasPrefix("define-"), "rate", "p99 alone", "p99 beside", "first p99", "due", "made", "p50", "p99", "lost", "doubled", "stored, job", "memory, job", "deletions", "left")},
	{"once", renderTable(hasPrefix("once-"), "due", "made", "p50", "p99", "max", "lost", "doubled", "client CPU", "server CPU", "sent", "transactions")},
	{"primitives", renderTable(hasPrefix("lock-", "leader-", "watch-", "fanout-"), "p50", "p99", "rate", "peer p50", "peer p99", "peer rate")},
}

// pagePaths are the documents that have the sections.
var pagePaths = []string{"../docs/performance.md", "../docs/cost.md"}

// writePages replaces the sections of the documents, and writes the plots.
func writePages(results string) error {
	all, err := loadResults(results)
	if err != nil {
		return err
	}
	_, texts, err := renderPages(all)
	if err != nil {
		return err
	}
	if err := writePlots(plotsDir, all); err != nil {
		return err
	}
	for i, path := range pagePaths {
		if err := os.WriteFile(path, []byte(texts[i]), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// renderPages returns the documents as they are, and with the sections of the results. Each section is in one of them.
func renderPages(all map[string]result) (old, texts []string, err error) {
	for _, path := range pagePaths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, nil, err
		}
		old = append(old, string(text))
	}
	texts, err = replaceSections(old, all)
	return old, texts, err
}

const endMark = "<!-- bench: end -->\n"

// replaceSections replaces the texts between "<!-- bench: NAME -->" and the end mark.
func replaceSections(texts []string, all map[string]result) ([]string, error) {
	texts = slices.Clone(texts)
	for _, s := range sections {
		mark := "<!-- bench: " + s.name + " -->\n"
		i := slices.IndexFunc(texts, func(text string) bool { return strings.Contains(text, mark) })
		if i < 0 {
			return nil, fmt.Errorf("no section %q", s.name)
		}
		before, rest, _ := strings.Cut(texts[i], mark)
		_, after, closed := strings.Cut(rest, endMark)
		if !closed {
			return nil, fmt.Errorf("section %q has no end", s.name)
		}
		texts[i] = before + mark + s.render(all) + endMark + after
	}
	return texts, nil
}

func isStorm(name string) bool {
	return hasPrefix("storm-", "spread-")(name) && !isPeer(name)
}

func isPeerStorm(name string) bool {
	return strings.HasPrefix(name, "storm-") && (isPeer(name) || slices.Contains([]string{"storm-etcd-100", "storm-etcd-500", "storm-etcd-2000"}, name))
}

func hasPrefix(prefixes ...string) func(name string) bool {
	return func(name string) bool {
		return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
	}
}

// renderTable renders the chosen cases in the order of the list. A cell has the median of
// the runs and, if it differs, the worst value in parentheses.
func renderTable(chosen func(name string) bool, columns ...string) func(map[string]result) string {
	return func(all map[string]result) string {
		var shown []metric
		head := []string{"case"}
		for _, name := range columns {
			m := metricNamed(name)
			shown = append(shown, m)
			if m.unit != "" {
				name += ", " + m.unit
			}
			head = append(head, name)
		}
		rows := [][]string{head}
		for _, c := range cases {
			r, ok := all[c.name]
			if !ok || !chosen(c.name) {
				continue
			}
			row := []string{"`" + c.name + "`"}
			for _, m := range shown {
				row = append(row, r.cell(m))
			}
			rows = append(rows, row)
		}
		return markdownTable(rows)
	}
}

func (r result) cell(m metric) string {
	median, worst, ok := r.summaryOf(m)
	if !ok {
		return ""
	}
	text := m.format(median)
	if w := m.format(worst); w != text && m.better != neutral {
		text += " (" + w + ")"
	}
	return text
}

// markdownTable renders rows, the first of which is the head.
func markdownTable(rows [][]string) string {
	var b strings.Builder
	for i, row := range rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			b.WriteString(strings.Repeat("|---", len(row)) + "|\n")
		}
	}
	return b.String()
}

// renderMachine names the circumstances of all results.
func renderMachine(all map[string]result) string {
	if len(all) == 0 {
		return ""
	}
	var first, last time.Time
	var newest result
	low, high, runs := 1e9, 0.0, 1<<30
	var lengths []time.Duration
	commits := map[string]string{}
	for _, r := range all {
		if first.IsZero() || r.When.Before(first) {
			first = r.When
		}
		if r.When.After(last) {
			last, newest = r.When, r
		}
		runs = min(runs, len(r.Runs))
		lengths = append(lengths, r.Duration)
		commits[r.Versions["rota"]] = ""
		for _, x := range r.Runs {
			low, high = min(low, x.LoadBefore), max(high, x.LoadBefore, x.LoadAfter)
		}
	}
	rows := [][]string{
		{"", ""},
		{"measured", first.Format(time.DateOnly) + " to " + last.Format(time.DateOnly)},
		{"machine", fmt.Sprintf("%d cores of %s, %s, Linux %s", newest.Machine.Cores, newest.Machine.CPU, newest.Machine.Memory, newest.Machine.Kernel)},
		{"load average", fmt.Sprintf("%.1f to %.1f", low, high)},
		{"fsync of 2 KiB, median", newest.Machine.Sync.Round(10 * time.Microsecond).String()},
		{"runs of each case", fmt.Sprintf("at least %d, of %v to %v", runs, slices.Min(lengths), slices.Max(lengths))},
	}
	rows = append(rows, []string{"rota", strings.Join(sortedKeys(commits), ", ")}) // a case that was not run again has an older one
	for _, name := range sortedKeys(newest.Versions) {
		if name != "rota" {
			rows = append(rows, []string{name, newest.Versions[name]})
		}
	}
	return markdownTable(rows)
}

func sortedKeys(m map[string]string) (keys []string) {
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// renderPromises shows the promises of each library.
func renderPromises(map[string]result) string {
	rows := [][]string{{"library", "store", "used as", "a fire may be lost", "a fire may run twice without a crash", "after a crash", "the run gets its fire", "shards"}}
	add := func(library, store string) {
		p := libraryPromises[library]
		rows = append(rows, []string{library, store, p.idiom, yesNo(p.mayLose), yesNo(p.mayDouble), p.failover, p.fireTime, p.sharding})
	}
	add("rota", "etcd, ZooKeeper, PostgreSQL, memory")
	for _, p := range peerStores {
		add(p.library, p.store)
	}
	return markdownTable(rows)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// pagesAreCurrent reports whether the documents show the results.
func pagesAreCurrent(results string) (bool, error) {
	all, err := loadResults(results)
	if err != nil {
		return false, err
	}
	old, texts, err := renderPages(all)
	return slices.Equal(old, texts), err
}
