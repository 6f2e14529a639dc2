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

// ReportVariable names an environment variable. If it is set to an existing directory,
// each Run writes a report file there. The file begins with a line for the run,
//
//	run <tab> name of the backend's package <tab> name of the test
//
// followed, when the run ends, by one line for each case that -run did not exclude and a
// last line:
//
//	case <tab> outcome <tab> title <tab> reason of a lack
//	end
const ReportVariable = "ROTA_CONFORMANCE_REPORT"

// beginReport writes the first line of a report and returns a function that writes the
// rest.
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
