package history

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPage_HasEveryLogLineAtItsLevel(t *testing.T) {
	page, err := os.ReadFile("../docs/guide/history.md")
	require.NoError(t, err)
	var documented [][2]string
	for _, m := range regexp.MustCompile(`(?m)^\| ([^|]+) \| (INFO|WARN|ERROR) \|`).FindAllSubmatch(page, -1) {
		documented = append(documented, [2]string{string(m[1]), string(m[2])})
	}
	var logged [][2]string
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	line := regexp.MustCompile(`log\.(?:(Info|Warn|Error)\(|LogAttrs\(context\.Background\(\), slog\.Level(Info|Warn|Error), )"([^"]+)"`)
	levels := map[string]string{"Info": "INFO", "Warn": "WARN", "Error": "ERROR"}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range line.FindAllSubmatch(text, -1) {
			logged = append(logged, [2]string{string(m[3]), levels[string(m[1])+string(m[2])]})
		}
	}
	require.Len(t, logged, 6)
	require.ElementsMatch(t, logged, documented)
}
