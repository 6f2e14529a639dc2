package explore

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// guardRow matches a row of the table of guards; its group is the first cell.
var guardRow = regexp.MustCompile(`(?m)^\| ([^|]+) \|`)

// guardName matches the name of a guard in a cell.
var guardName = regexp.MustCompile("`([a-z ]+: [a-z ]+)`")

func TestGuards_AreExplained(t *testing.T) {
	const path = "../../../docs/protocol/guards.md"
	page, err := os.ReadFile(path)
	require.NoError(t, err)
	_, section, found := strings.Cut(string(page), "\n## Guards\n")
	require.True(t, found, "%s has no section Guards", path)
	section, _, _ = strings.Cut(section, "\n## ")
	explained := map[string]bool{}
	for _, row := range guardRow.FindAllStringSubmatch(section, -1) {
		for _, name := range guardName.FindAllStringSubmatch(row[1], -1) {
			explained[name[1]] = true
		}
	}
	var named []string
	for _, s := range guardSites {
		named = append(named, s.names...)
	}
	for _, name := range named {
		assert.True(t, explained[name], "%s does not explain the guard %q", path, name)
	}
	for name := range explained {
		assert.True(t, slices.Contains(named, name), "%s explains %q, which is not a guard", path, name)
	}
	assert.Greater(t, len(explained), 30)
}
