package conformance_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/conformance"
)

// waysPage lists, for each promise, the ways in which it can be kept in the simple case and
// broken in another.
const waysPage = "../docs/contributing/contract.md"

// wayKinds are the kinds of ways.
var wayKinds = []string{"simple", "size", "position", "history", "race", "handle", "given back"}

// section is a promise on the page.
type section struct {
	promise   conformance.Promise
	sentences string
	cells     []wayCell
}

// wayCell is a way with its cases, or with the reason why it has none.
type wayCell struct{ kind, way, cases string }

func (c wayCell) String() string { return fmt.Sprintf("%s, %s: %s", c.kind, c.way, c.cases) }

// codes returns the codes of the cell's cases, none if it gives a reason instead.
func (c wayCell) codes() []string {
	for _, reason := range []string{"not a promise: ", "open: "} {
		if strings.HasPrefix(c.cases, reason) {
			return nil
		}
	}
	return strings.Fields(c.cases)
}

// TestEachPromiseHasItsWays compares the page with the suite, in both directions.
func TestEachPromiseHasItsWays(t *testing.T) {
	var want, got []string
	for _, s := range contractSections() {
		want = append(want, fmt.Sprintf("%s\n%s", s.promise, s.sentences))
	}
	proves := map[string][]conformance.Promise{}
	for _, c := range conformance.Cases() {
		proves[c.Code] = c.Proves
	}
	named := map[string]bool{} // promise and code
	for _, s := range readSections(t) {
		got = append(got, fmt.Sprintf("%s\n%s", s.promise, s.sentences))
		assert.True(t, slices.ContainsFunc(s.cells, func(c wayCell) bool { return c.kind == "simple" || c.kind == "given back" }),
			"%s has no simple way", s.promise)
		for _, cell := range s.cells {
			assert.Contains(t, wayKinds, cell.kind, "%v", cell)
			assert.NotEmpty(t, cell.cases, "%v", cell)
			for _, code := range cell.codes() {
				assert.Contains(t, proves[code], s.promise, "%s is a case of a way of this promise, and must prove it", code)
				named[string(s.promise)+code] = true
			}
		}
	}
	require.Equal(t, want, got, "the promises of the contract, each with its sentences, in the order of the contract")
	for _, s := range contractSections() {
		for _, c := range conformance.Cases() {
			if slices.Contains(c.Proves, s.promise) {
				assert.True(t, named[string(s.promise)+c.Code], "no way of this promise names %s, which proves it: %s", c.Code, s.promise)
			}
		}
	}
}

// contractSections returns the promises of the contract with their sentences.
func contractSections() []section {
	var all []section
	number := map[string]int{}
	for _, clause := range conformance.Contract {
		number[clause.Of]++
		name := fmt.Sprintf("%s %d", clause.Of, number[clause.Of])
		for _, p := range clause.Promises {
			i := slices.IndexFunc(all, func(s section) bool { return s.promise == p })
			if i < 0 {
				all = append(all, section{promise: p, sentences: name})
				continue
			}
			all[i].sentences += ", " + name
		}
	}
	return all
}

// readSections reads the page.
func readSections(t *testing.T) []section {
	t.Helper()
	text, err := os.ReadFile(waysPage)
	require.NoError(t, err)
	_, promises, found := strings.Cut(string(text), "\n## Promises\n")
	require.True(t, found)
	var all []section
	for _, part := range strings.Split(promises, "\n### ")[1:] {
		lines := strings.Split(strings.TrimSpace(part), "\n")
		require.Greater(t, len(lines), 6, part)
		s := section{promise: conformance.Promise(lines[0]), sentences: lines[2]}
		for _, row := range lines[6:] {
			cells := strings.Split(strings.Trim(row, "| "), " | ")
			require.Len(t, cells, 3, row)
			s.cells = append(s.cells, wayCell{cells[0], cells[1], cells[2]})
		}
		all = append(all, s)
	}
	return all
}
