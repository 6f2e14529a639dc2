package conformance_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/conformance"
)

func allSaboteurs() []saboteur {
	return slices.Concat(readSaboteurs, keySaboteurs, txnSaboteurs, outcomeSaboteurs, watchSaboteurs, sessionSaboteurs, lockSaboteurs, handleSaboteurs, memberSaboteurs, historySaboteurs)
}

// TestSaboteurs shows of each promise that a registry which breaks it, and only it, fails
// the case that is meant for it, and prints the table.
func TestSaboteurs(t *testing.T) {
	var table strings.Builder
	red := 0
	sane := map[string]bool{}
	for _, s := range allSaboteurs() {
		t.Run(fmt.Sprintf("%s %s", s.code, s.does), func(t *testing.T) {
			if !sane[s.code] {
				require.Empty(t, conformance.Try(t, soundBackend(), s.code), "a sound registry passes %s", s.code)
				sane[s.code] = true
			}
			complaints := complaintsAbout(t, s)
			mark := "green"
			if assert.NotEmpty(t, complaints, "%s does not notice a registry that %s", s.code, s.does) {
				mark = "red"
				red++
				t.Log(summarizeComplaint(complaints[0]))
			}
			fmt.Fprintf(&table, "%-88s | %-86s | %s | %s\n", s.promise, s.does, s.code, mark)
		})
	}
	t.Logf("%d saboteurs, %d red\n%s", len(allSaboteurs()), red, table.String())
}

// complaintsAbout returns what the case that is meant for a saboteur complains of. A history goes by
// chance beside its seed, and now and then one shows nothing: one in sixty did for the two
// saboteurs that show least. So up to five are recorded.
func complaintsAbout(t *testing.T, s saboteur) (complaints []string) {
	b := s.backend()
	for b.Seed = 1; b.Seed <= 5 && len(complaints) == 0; b.Seed++ {
		complaints = conformance.Try(t, b, s.code)
		if !strings.HasPrefix(s.code, "C") {
			break // it takes no chances
		}
	}
	return complaints
}

// summarizeComplaint is the first lines of a complaint that tell something.
func summarizeComplaint(complaint string) string {
	var lines []string
	for line := range strings.Lines(complaint) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "Error Trace:") && !strings.HasPrefix(line, "/") {
			lines = append(lines, line)
		}
		if len(lines) == 4 {
			break
		}
	}
	return strings.Join(lines, " / ")
}

// TestEveryPromiseHasASaboteur holds the table of promises, the cases and the saboteurs
// against each other.
func TestEveryPromiseHasASaboteur(t *testing.T) {
	proves := map[string][]conformance.Promise{}
	proved := map[conformance.Promise]bool{}
	for _, c := range conformance.Cases() {
		assert.NotContains(t, proves, c.Code, "a code is used once")
		assert.NotEmpty(t, c.Proves, "%s proves something", c.Title())
		proves[c.Code] = c.Proves
		for _, p := range c.Proves {
			proved[p] = true
		}
	}
	sabotaged := map[conformance.Promise]bool{}
	for _, s := range allSaboteurs() {
		assert.Contains(t, proves[s.code], s.promise, "%s is meant for the promise that the saboteur breaks: %s", s.code, s.does)
		sabotaged[s.promise] = true
	}
	for _, c := range conformance.Cases() {
		assert.True(t, slices.ContainsFunc(allSaboteurs(), func(s saboteur) bool { return s.code == c.Code }), "%s can fail", c.Title())
	}
	for _, p := range conformance.Promises() {
		assert.True(t, proved[p], "a case proves that %s", p)
		assert.True(t, sabotaged[p], "a saboteur breaks that %s", p)
	}
}
