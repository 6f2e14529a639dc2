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
	return slices.Concat(readSaboteurs, keySaboteurs, txnSaboteurs, outcomeSaboteurs, watchSaboteurs, sessionSaboteurs, lockSaboteurs, handleSaboteurs, memberSaboteurs, historySaboteurs,
		readFormSaboteurs, txnFormSaboteurs, deliverySaboteurs, sessionEndSaboteurs, delaySaboteurs, cutOffSaboteurs, lifetimeSaboteurs, longRunSaboteurs)
}

// TestSaboteurs shows for each promise that a registry which breaks only that promise
// fails the case meant for it. It prints the results as a table.
func TestSaboteurs(t *testing.T) {
	var table strings.Builder
	red := 0
	sane := map[string]bool{}
	for _, s := range allSaboteurs() {
		t.Run(fmt.Sprintf("%s %s", s.code, s.does), func(t *testing.T) {
			if !sane[s.code] {
				require.Empty(t, conformance.Try(t, soundBackend(), s.code), "a sound registry must pass %s", s.code)
				sane[s.code] = true
			}
			complaints := complaintsAbout(t, s)
			mark := "green"
			if assert.NotEmpty(t, complaints, "%s does not detect a registry that %s", s.code, s.does) {
				mark = "red"
				red++
				t.Log(summarizeComplaint(complaints[0]))
			}
			fmt.Fprintf(&table, "%-88s | %-86s | %s | %s\n", s.promise, s.does, s.code, mark)
		})
	}
	t.Logf("%d saboteurs, %d red\n%s", len(allSaboteurs()), red, table.String())
}

// complaintsAbout returns the failures of the case meant for a saboteur. A history depends on
// more than its seed, so up to five are recorded before a saboteur counts as undetected;
// TestHistories_FindEachSaboteur counts how often one is enough.
func complaintsAbout(t *testing.T, s saboteur) (complaints []string) {
	b := s.backend()
	for b.Seed = 1; b.Seed <= 5 && len(complaints) == 0; b.Seed++ {
		complaints = conformance.Try(t, b, s.code)
		if !strings.HasPrefix(s.code, "C") {
			break // deterministic
		}
	}
	return complaints
}

// summarizeComplaint returns the first informative lines of a failure.
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

// TestEveryPromiseHasASaboteur compares the promises, the cases and the saboteurs: each
// promise has a case and a saboteur, and each case has a saboteur.
func TestEveryPromiseHasASaboteur(t *testing.T) {
	proves := map[string][]conformance.Promise{}
	proved := map[conformance.Promise]bool{}
	for _, c := range conformance.Cases() {
		assert.NotContains(t, proves, c.Code, "a code is used twice")
		assert.NotEmpty(t, c.Proves, "%s proves nothing", c.Title())
		proves[c.Code] = c.Proves
		for _, p := range c.Proves {
			proved[p] = true
		}
	}
	sabotaged := map[conformance.Promise]bool{}
	for _, s := range allSaboteurs() {
		assert.Contains(t, proves[s.code], s.promise, "%s must prove the promise broken by a registry that %s", s.code, s.does)
		sabotaged[s.promise] = true
	}
	for _, c := range conformance.Cases() {
		assert.True(t, slices.ContainsFunc(allSaboteurs(), func(s saboteur) bool { return s.code == c.Code }), "no saboteur fails %s", c.Title())
	}
	for _, p := range conformance.Promises() {
		assert.True(t, proved[p], "no case proves: %s", p)
		assert.True(t, sabotaged[p], "no saboteur breaks: %s", p)
	}
}
