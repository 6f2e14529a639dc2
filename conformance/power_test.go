package conformance_test

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/conformance"
	"github.com/rota-dev/rota/internal/test/long"
)

var powerRuns = flag.Int("power.runs", long.Pick(1, 20), "`number` of runs in which each saboteur of a history must be found")

// TestHistories_FindEachSaboteur states the power of the recorded histories: each saboteur is
// found in each run, by the histories of one case and with two seeds of C06, as on servers.
// The seeds of all runs differ.
func TestHistories_FindEachSaboteur(t *testing.T) {
	var table strings.Builder
	for _, s := range allSaboteurs() {
		if !strings.HasPrefix(s.code, "C") {
			continue
		}
		var missed []uint64
		for run := range *powerRuns {
			b := s.backend()
			b.Seed, b.Seeds = 1+1000*uint64(run), 2
			if len(conformance.Try(t, b, s.code)) == 0 {
				missed = append(missed, b.Seed)
			}
		}
		assert.Empty(t, missed, "%s does not detect a registry that %s, with these seeds", s.code, s.does)
		fmt.Fprintf(&table, "%s %-86s found in %d of %d runs\n", s.code, s.does, *powerRuns-len(missed), *powerRuns)
	}
	t.Logf("\n%s", table.String())
}
