package planning

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the tables of docs/strategies.md")

// The tables stand between these lines of the page.
const (
	tablesFrom = "<!-- go test ./internal/group/planning -run Compared -update: writes from here -->\n"
	tablesTo   = "<!-- to here -->\n"
)

func pageIsUpToDate(t *testing.T, all []map[string]*outcome) {
	const path = "../../../docs/strategies.md"
	page, err := os.ReadFile(path)
	require.NoError(t, err)
	before, rest, from := strings.Cut(string(page), tablesFrom)
	_, after, to := strings.Cut(rest, tablesTo)
	require.True(t, from && to, "%s has no place for the tables", path)
	want := before + tablesFrom + tables(all) + tablesTo + after
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(want), 0o644))
	} else if want != string(page) {
		t.Errorf("%s does not show what was computed: run go test ./internal/group/planning -run Compared -update", path)
	}
}

func tables(all []map[string]*outcome) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\nShards that move, in percent of all:\n\n| | | ideal | %s |\n|---|---|---|%s\n",
		strings.Join(compared, " | "), strings.Repeat("---|", len(compared)))
	for i, s := range settings {
		title := s.String()
		for kind, name := range []string{"one joins", "one leaves", "one crashes and returns"} {
			sticky := all[i]["sticky"]
			fmt.Fprintf(&b, "| %s | %s | %.1f |", title, name, sticky.percent(s, sticky.ideal[kind]))
			for _, strategy := range compared {
				o := all[i][strategy]
				fmt.Fprintf(&b, " %.1f |", o.percent(s, o.moved[kind]))
			}
			b.WriteString("\n")
			title = ""
		}
	}
	fmt.Fprintf(&b, "\nBy how many shards the members differ, at the worst:\n\n| | mean | %s |\n|---|---|%s\n",
		strings.Join(compared, " | "), strings.Repeat("---|", len(compared)))
	for i, s := range settings {
		fmt.Fprintf(&b, "| %s | %.1f |", s, float64(s.all())/float64(s.members))
		for _, strategy := range compared {
			fmt.Fprintf(&b, " %s |", thousands(all[i][strategy].spread))
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
	return b.String()
}

// thousands writes a number as the documents do.
func thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}
