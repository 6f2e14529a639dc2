package screen

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/operator"
)

func TestText_ShortensFlexibleColumns(t *testing.T) {
	long := strings.Repeat("x", 120)
	s := view.Screen{{Table: view.Table{
		Columns: []view.Column{{Name: "JOB", Flex: true}, {Name: "HOST", Flex: true}, {Name: "PID", Wide: true}, {Name: "N"}},
		Rows:    [][]string{{long, "short", "17", "1"}, {"报表", long, "18", "2"}},
	}}}
	lines := strings.Split(strings.TrimSuffix(Text(s, false), "\n"), "\n")
	for _, l := range lines {
		assert.LessOrEqual(t, width(l), Width)
	}
	assert.NotContains(t, lines[0], "PID")
	assert.Equal(t, strings.Index(lines[0], "HOST"), strings.Index(lines[1], "short"))
	assert.Contains(t, lines[1], "xx..  short")
	assert.Equal(t, width(lines[1]), width(lines[2]), "Han characters take two columns")
	wide := Text(s, true)
	assert.Contains(t, wide, long)
	assert.Contains(t, wide, "PID")
}

func TestText_WrapsFieldsAndRemovesControlCharacters(t *testing.T) {
	s := view.Screen{
		{Title: "job", Fields: []view.Field{{Label: "error", Text: strings.Repeat("word ", 40)}, {Label: "x", Text: "a\x1b[31mred\nb"}}},
		{},
		{Lines: []string{"end\a"}},
	}
	text := Text(s, false)
	assert.NotContains(t, text, "\x1b")
	assert.NotContains(t, text, "\a")
	lines := strings.Split(text, "\n")
	assert.Equal(t, "job", lines[0])
	for _, l := range lines {
		assert.LessOrEqual(t, width(l), Width)
	}
	assert.True(t, strings.HasPrefix(lines[2], "         word"), lines[2])
	assert.True(t, strings.HasSuffix(text, "\n\nend \n"), "an empty section leaves no line")
}

func TestText_KeepsAWordThatDoesNotFit(t *testing.T) {
	long := strings.Repeat("x", 150)
	assert.Equal(t, "a  "+long+"\n", Text(view.Screen{{Fields: []view.Field{{Label: "a", Text: long}}}}, false))
}

// BenchmarkText is the table of 10,000 jobs.
func BenchmarkText(b *testing.B) {
	st := operator.GroupStatus{At: time.Now()}
	for n := range 10_000 {
		st.Jobs = append(st.Jobs, operator.JobSummary{Job: fmt.Sprintf("job-%05d", n), Schedule: "cron 0 3 * * * in Asia/Shanghai", Shards: 4})
	}
	for b.Loop() {
		Text(view.JobsOf(st, view.JobsFilter{}).Screen(view.Times{Now: st.At, Mode: "relative"}), false)
	}
}
