package transcript_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// marked matches a block of a page and the comment before it that names its source.
var marked = regexp.MustCompile("(?s)<!-- (transcript|commits|record) ([^>]*) -->\n```(?:text|json)\n(.*?)```")

// TestPages compares the transcripts, commits and records that pages show with a run.
// With -update it has to run after TestScenarios, whose files it copies from: go test runs files in order of their names.
func TestPages(t *testing.T) {
	n := runCrash(t)
	for page, blocks := range map[string]int{"concepts.md": 2, "walkthrough.md": 8, "walkthrough/re-runs-and-moves.md": 3} {
		t.Run(page, func(t *testing.T) {
			path := filepath.Join("..", "..", "..", "docs", page)
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			if *update {
				text = marked.ReplaceAllFunc(text, func(block []byte) []byte {
					m := marked.FindSubmatch(block)
					shown := append(slices.Clone(m[3]), "```"...)
					return append(slices.Clone(bytes.TrimSuffix(block, shown)), n.block(t, string(m[1]), string(m[2]))+"```"...)
				})
				require.NoError(t, os.WriteFile(path, text, 0o644))
			}
			all := marked.FindAllStringSubmatch(string(text), -1)
			require.Len(t, all, blocks, "blocks with a source")
			for _, m := range all {
				assert.Equal(t, n.block(t, m[1], m[2]), m[3], "%s %s: if the change is meant: go test ./internal/test/transcript -update", m[1], m[2])
			}
		})
	}
}

// crashRun is the log of a fleet whose leader crashes, with the records at its end.
type crashRun struct {
	start    time.Time
	log      []memory.Commit
	records  map[registry.Key][]byte
	sessions *strings.Replacer // replaces session ids by S1, S2 and so on
}

// runCrash runs the scenario "instance crashes and returns" until shortly after the failover.
func runCrash(t *testing.T) *crashRun {
	t.Helper()
	n := &crashRun{records: map[registry.Key][]byte{}}
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		n.start = time.Now()
		job := newJob(4, 4*time.Second)
		s.start("a", job)
		s.start("b", job)
		s.advance(12 * time.Second)
		s.crash("a")
		s.advance(20200 * time.Millisecond)
		n.log = s.server.Log()
		s.end()
	})
	var names []string
	for _, c := range n.log {
		if c.Opened != "" {
			names = append(names, string(c.Opened), fmt.Sprintf("S%d", len(names)/2+1))
		}
		for _, op := range c.Then {
			if n.records[op.Key] = op.Value; op.Kind == registry.OpDelete {
				delete(n.records, op.Key)
			}
		}
	}
	n.sessions = strings.NewReplacer(names...)
	return n
}

// block returns the text of a block of a kind: lines of a transcript or commits between two
// times, or a record.
func (n *crashRun) block(t *testing.T, kind, source string) string {
	t.Helper()
	fields := strings.Fields(source)
	if kind == "record" {
		require.Len(t, fields, 1)
		return n.record(t, fields[0])
	}
	require.GreaterOrEqual(t, len(fields), 2)
	from, err := time.ParseDuration(fields[len(fields)-2])
	require.NoError(t, err)
	to, err := time.ParseDuration(fields[len(fields)-1])
	require.NoError(t, err)
	if kind == "commits" {
		return n.commits(from, to)
	}
	return linesBetween(t, filepath.Join("testdata", fields[0]), from, to)
}

func linesBetween(t *testing.T, path string, from, to time.Duration) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var out strings.Builder
	for line := range strings.Lines(string(text)) {
		at, err := time.ParseDuration(strings.Fields(line)[0])
		require.NoError(t, err)
		if at >= from && at <= to {
			out.WriteString(line)
		}
	}
	return out.String()
}

// at matches the commit that a condition or an operation names.
var at = regexp.MustCompile(` at \d+`)

// commits returns the commits between two times. They are numbered from 1.
func (n *crashRun) commits(from, to time.Duration) string {
	first := n.log[0].Rev.Seq
	var out strings.Builder
	for _, c := range n.log {
		after := c.At.Sub(n.start)
		if after < from || after > to || !c.Changed() {
			continue
		}
		var parts []string
		switch {
		case c.Opened != "":
			parts = append(parts, fmt.Sprintf("opens session %s", c.Opened))
		case c.Ended != "":
			parts = append(parts, fmt.Sprintf("session %s ends: %s vanish", c.Ended, joined(c.Gone)))
		}
		if len(c.If) > 0 {
			parts = append(parts, "if "+joined(c.If))
		}
		if len(c.Then) > 0 {
			parts = append(parts, joined(c.Then))
		}
		text := at.ReplaceAllStringFunc(strings.Join(parts, ": "), func(s string) string {
			seq, _ := strconv.ParseUint(strings.TrimPrefix(s, " at "), 10, 64)
			return fmt.Sprintf(" at %d", seq-first+1)
		})
		text = strings.NewReplacer("scenarios/groups/default/", "", "scenarios/", "").Replace(n.sessions.Replace(text))
		fmt.Fprintf(&out, "%2d %7.3fs %s  %s\n", c.Rev.Seq-first+1, after.Seconds(), c.Client, text)
	}
	return out.String()
}

func joined[T any](items []T) string {
	var texts []string
	for _, i := range items {
		texts = append(texts, fmt.Sprint(i))
	}
	return strings.Join(texts, ", ")
}

// term matches a term in a record.
var term = regexp.MustCompile(`"term":\d+`)

// record returns the one record whose key has a suffix, with a line for each field.
func (n *crashRun) record(t *testing.T, suffix string) string {
	t.Helper()
	var values [][]byte
	for key, value := range n.records {
		if strings.HasSuffix(n.sessions.Replace(string(key)), suffix) {
			values = append(values, value)
		}
	}
	require.Len(t, values, 1, suffix)
	text := term.ReplaceAllStringFunc(n.sessions.Replace(string(values[0])), func(s string) string {
		seq, _ := strconv.ParseUint(strings.TrimPrefix(s, `"term":`), 10, 64)
		return fmt.Sprintf(`"term":%d`, seq-n.log[0].Rev.Seq+1)
	})
	return "{\n" + fieldLines(t, []byte(text)) + "}\n"
}

// fieldLines returns a line for each field of an object, and for each element of a list of objects.
func fieldLines(t *testing.T, object []byte) string {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(object))
	_, err := d.Token()
	require.NoError(t, err)
	var fields []string
	for d.More() {
		name, err := d.Token()
		require.NoError(t, err)
		var value json.RawMessage
		require.NoError(t, d.Decode(&value))
		text := string(value)
		var elements []json.RawMessage
		if strings.HasPrefix(text, "[{") && json.Unmarshal(value, &elements) == nil {
			var lines []string
			for _, e := range elements {
				lines = append(lines, "    "+string(e))
			}
			text = "[\n" + strings.Join(lines, ",\n") + "\n  ]"
		}
		fields = append(fields, fmt.Sprintf("  %q: %s", name, text))
	}
	return strings.Join(fields, ",\n") + "\n"
}
