package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/cmd/rota/internal/settings"
)

// leaves calls f for each command without sub-commands.
func leaves(c *cobra.Command, f func(*cobra.Command)) {
	if len(c.Commands()) == 0 {
		f(c)
	}
	for _, sub := range c.Commands() {
		leaves(sub, f)
	}
}

// commandsIn returns the first words of the `rota ...` of a text, sorted, each once.
func commandsIn(text string) []string {
	var all []string
	for _, m := range regexp.MustCompile("`rota ([a-z-]+)").FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// The page, the help and package exit have the same exit codes, and the row of code 4 names the commands whose help
// has it.
func TestPage_HasTheExitCodesOfTheHelp(t *testing.T) {
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	_, table, found := strings.Cut(string(text), "| exit code | meaning |\n|---|---|\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n\n")
	rows := strings.Split(table, "\n")
	require.Len(t, rows, len(exit.Meanings))
	for i, m := range exit.Meanings {
		assert.Regexp(t, fmt.Sprintf(`^\| %d \| %s[ :]`, m.Code, m.Short), rows[i])
	}
	_, help, _ := execute(t, "--help")
	assert.Contains(t, help, "Exit codes: "+exit.Help()+".")

	root, _ := newRoot(settings.New(nil), Streams{})
	var named []string
	leaves(root, func(c *cobra.Command) {
		if regexp.MustCompile(`(exits with|exit code) ` + strconv.Itoa(exit.NotMet)).MatchString(strings.ReplaceAll(c.Long, "\n", " ")) {
			named = append(named, c.Name())
		}
	})
	slices.Sort(named)
	assert.Equal(t, named, commandsIn(rows[exit.NotMet]))
}

func TestPage_HasTheDefaultsOfTheFlags(t *testing.T) {
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	root, _ := newRoot(settings.New(nil), Streams{})
	found := 0
	for _, row := range regexp.MustCompile("(?m)^\\| [^|\n]*`--([a-z]+)`[^|\n]* \\|[^|\n]*\\|[^|\n]*\\| `([^`]+)` \\|$").FindAllStringSubmatch(string(text), -1) {
		flag := root.PersistentFlags().Lookup(row[1])
		if assert.NotNil(t, flag, row[1]) && flag.DefValue != "" { // a context or the backend has the others
			found++
			assert.Equal(t, flag.DefValue, row[2], "--%s", row[1])
		}
	}
	assert.Positive(t, found)
}

// Each verb is run once without --yes. Those that ask are the ones that the page lists.
func TestPage_ListsTheVerbsThatAsk(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		incident(f)
		dump := filepath.Join(t.TempDir(), "dump.json")
		require.NoError(t, os.WriteFile(dump, []byte(f.runUnedited(t.Context(), "dump --params", "").out), 0o600))
		verbs := map[string]string{ // each with its arguments
			"trigger": "export", "backfill": "tenants --from 00:20 --to 00:21", "backfill --stop": "tenants", "retry": "tenants --fire 01:09",
			"cancel": "tenants", "pause": "settle", "pause --all": "", "resume": "settle", "resume --all": "", "disable": "--host a",
			"enable": "--host a", "drain": "web-9", "undrain": "web-9", "override": "settle shards=4", "override --clear": "settle",
			"reset": "settle", "retire": "settle", "unretire": "settle", "forget": "settle", "raise-fences": "--above 7", "acknowledge": "", "restore": dump,
			"define": "report --kind report --every 1h", "delete": "report", "set-pool": "db 8", "delete-pool": "db",
		}
		var ask []string
		for verb, args := range verbs {
			if strings.Contains(f.runContext(t.Context(), verb+" "+args, "n\n").err, "Continue? [y/N]") {
				ask = append(ask, verb)
			}
		}
		root, _ := newRoot(settings.New(nil), Streams{})
		for _, c := range root.Commands() {
			if c.GroupID == groupAct {
				assert.Contains(t, verbs, c.Name())
			}
		}
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		sentence := regexp.MustCompile("(?s)((?:`rota [a-z -]+`(?:,| and)?\\s)+)ask first, unless `--yes` is set").FindStringSubmatch(string(text))
		require.NotNil(t, sentence)
		var listed []string
		for _, m := range regexp.MustCompile("`rota ([a-z -]+)`").FindAllStringSubmatch(sentence[1], -1) {
			listed = append(listed, m[1])
		}
		assert.ElementsMatch(t, listed, ask)
	})
}
