package cli

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// incidentFile has what the person on call sees in TestIncident_OnServers.
const incidentFile = "testdata/incident.txt"

const incidentPage = "../../../../docs/operating/incident.md"

var incidentBlock = regexp.MustCompile("(?s)<!-- incident ([a-z ]+) -->\n```text\n(.*?)```\n")

// readIncident returns the screens of the incident, by part and command line.
func readIncident(t *testing.T) map[string]map[string]string {
	t.Helper()
	text, err := os.ReadFile(incidentFile)
	require.NoError(t, err)
	parts := map[string]map[string]string{}
	var part, command string
	for line := range strings.Lines(string(text)) {
		switch {
		case strings.HasPrefix(line, "== "):
			part = strings.Trim(line, "= \n")
			parts[part] = map[string]string{}
			continue
		case strings.HasPrefix(line, "$ "):
			command = line
		}
		parts[part][command] += line
	}
	return parts
}

// TestIncidentPage compares the screens of the page with those of the incident. With -update it writes the output
// of each command line of a block.
func TestIncidentPage(t *testing.T) {
	text, err := os.ReadFile(incidentPage)
	require.NoError(t, err)
	parts := readIncident(t)
	shown := map[string]bool{}
	next := incidentBlock.ReplaceAllStringFunc(string(text), func(block string) string {
		m := incidentBlock.FindStringSubmatch(block)
		var screens strings.Builder
		for line := range strings.Lines(m[2]) {
			if strings.HasPrefix(line, "$ ") {
				require.NotEmpty(t, parts[m[1]][line], "%s has no %s", m[1], line)
				screens.WriteString(parts[m[1]][line])
			}
		}
		shown[m[1]] = true
		return "<!-- incident " + m[1] + " -->\n```text\n" + strings.TrimRight(screens.String(), "\n") + "\n```\n"
	})
	for part := range parts {
		assert.True(t, shown[part] || part == "the killed instance is back", "the page does not show %q", part)
	}
	if *update {
		require.NoError(t, os.WriteFile(incidentPage, []byte(next), 0o644))
		return
	}
	assert.Equal(t, next, string(text), "if the change is meant: go test ./internal/cli -update")
}

func TestIncidentPage_FitsTheWidth(t *testing.T) {
	for _, screens := range readIncident(t) {
		for command, text := range screens {
			if strings.HasPrefix(command, "$ rota check") {
				continue
			}
			for line := range strings.Lines(text) {
				assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), 100, line)
			}
		}
	}
}
