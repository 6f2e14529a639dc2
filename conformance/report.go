package conformance

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"testing"
)

// ReportVariable is the variable of the environment that names an existing directory in
// which each Run leaves a file, for a table of several runs. It has a line for the run,
//
//	run <tab> name of the backend's package <tab> name of the test
//
// and, when the run has come to its end, one for each case that was not left out by -run
// and a last one:
//
//	case <tab> outcome <tab> title <tab> reason of a lack
//	end
const ReportVariable = "ROTA_CONFORMANCE_REPORT"

// beginReport writes the head of a report, and returns what writes the rest.
func beginReport(t *testing.T, b Backend) (end func(Summary)) {
	t.Helper()
	dir := os.Getenv(ReportVariable)
	if dir == "" {
		return func(Summary) {}
	}
	name := "?"
	if len(b.Packages) > 0 {
		name = path.Base(b.Packages[0])
	}
	f, err := os.CreateTemp(dir, "run-*")
	if err != nil {
		t.Fatalf("report to %s: %v", dir, err)
	}
	_, err = fmt.Fprintf(f, "run\t%s\t%s\n", name, t.Name())
	return func(s Summary) {
		t.Helper()
		if err := errors.Join(err, s.writeReport(f), f.Close()); err != nil {
			t.Errorf("report to %s: %v", dir, err)
		}
	}
}

func (s Summary) writeReport(w io.Writer) error {
	var b strings.Builder
	for _, r := range s.Results {
		if r.Outcome != NotRun {
			reason := strings.Join(strings.Fields(r.Reason), " ") // on one line
			fmt.Fprintf(&b, "case\t%s\t%s\t%s\n", r.Outcome, r.Case.Title(), reason)
		}
	}
	b.WriteString("end\n")
	_, err := io.WriteString(w, b.String())
	return err
}
