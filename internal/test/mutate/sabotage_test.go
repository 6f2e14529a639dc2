package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sabotage is a fault made by hand. Unlike the faults that mutateFile finds, it breaks a known
// sentence of the contract of package registry, often only beyond some number, size or time.
type sabotage struct {
	name   string
	breaks string // the sentence, as conformance.Contract counts them
	does   string
	code   string // of the case that must fail
	says   string // part of the reason that this case gives
	edits  []replacement
}

// replacement replaces the only occurrence of a piece of source in a file. In its new text, SABOTAGED
// is whether the sabotage is selected.
type replacement struct{ file, old, new string }

// saboteurTarget is a package with sabotages and the test that runs the conformance suite on it.
type saboteurTarget struct {
	edited    string // the package whose source is edited
	tested    string // the package with the test
	test      string // the first elements of the names of the cases' subtests
	sabotages []sabotage
}

const sabotageVariable = "ROTA_SABOTAGE"

// TestSabotages_FailTheirCase shows that the suite notices each sabotage, by the case that is meant for
// it and for the right reason. All sabotages are compiled into one test binary.
func TestSabotages_FailTheirCase(t *testing.T) {
	t.Chdir("../../..")
	for _, target := range []saboteurTarget{
		{"registry/memory", "registry/memory", "TestConformance$/.*", memorySabotages},
		{"registry/backend", "examples/mapstore", "TestCasesWithoutFaults/.*", backendSabotages},
	} {
		t.Run(filepath.Base(target.edited), func(t *testing.T) { target.run(t) })
	}
}

func (target saboteurTarget) run(t *testing.T) {
	work := t.TempDir()
	list, err := target.write(work)
	require.NoError(t, err)
	p := &testProgram{binary: filepath.Join(work, "tests"), dir: target.tested}
	require.NoError(t, p.build(t.Context(), list))

	var codes []string
	for _, s := range target.sabotages {
		codes = append(codes, s.code)
	}
	_, err = target.try(t.Context(), p, "", strings.Join(codes, "|"))
	require.NoError(t, err, "without a sabotage")
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	t.Run("each", func(t *testing.T) {
		for _, s := range target.sabotages {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				slots <- struct{}{}
				defer func() { <-slots }()
				output, err := target.try(t.Context(), p, s.name, s.code)
				assert.Error(t, err, "%s does not notice a registry that %s (%s)", s.code, s.does, s.breaks)
				assert.Contains(t, reasons(output), s.says, "%s fails for another reason", s.code)
			})
		}
	})
}

// reasons returns the output of a failed test without the names of tests, which are promises too.
func reasons(output string) string {
	return testNames.ReplaceAllString(output, "")
}

var testNames = regexp.MustCompile(`(?m)^.*(--- FAIL: |\sTest:\s|^\s+failed   ).*$`)

// try runs the cases of these codes with a sabotage.
func (target saboteurTarget) try(ctx context.Context, p *testProgram, name, codes string) (output string, err error) {
	q := *p
	q.args = []string{"-test.timeout=60s", "-test.run=" + target.test + "/^(" + codes + ")_"}
	output, _, err = q.exec(ctx, 0, sabotageVariable+"="+name)
	if err == nil && strings.Contains(output, "no tests to run") {
		err = fmt.Errorf("no test matches %s", codes)
	}
	return output, err
}

// write writes the package with all its sabotages to work, and returns the file for -overlay.
func (target saboteurTarget) write(work string) (string, error) {
	sources := map[string]string{}
	for _, s := range target.sabotages {
		for _, e := range s.edits {
			file := filepath.Join(target.edited, e.file)
			if sources[file] == "" {
				text, err := os.ReadFile(file)
				if err != nil {
					return "", err
				}
				sources[file] = string(text)
			}
			if n := strings.Count(sources[file], e.old); n != 1 {
				return "", fmt.Errorf("sabotage %s: %s has %d times, not once: %s", s.name, file, n, e.old)
			}
			text := strings.ReplaceAll(e.new, "SABOTAGED", fmt.Sprintf("sabotaged(%q)", s.name))
			sources[file] = strings.Replace(sources[file], e.old, text, 1)
		}
	}
	sources[filepath.Join(target.edited, "sabotage_switch.go")] = fmt.Sprintf(`package %s

import "os"

var selectedSabotage = os.Getenv(%q)

func sabotaged(name string) bool { return selectedSabotage == name }
`, filepath.Base(target.edited), sabotageVariable)
	overlay := map[string]string{}
	for file, text := range sources {
		if err := addOverlay(overlay, work, file, []byte(text)); err != nil {
			return "", err
		}
	}
	return writeOverlay(work, overlay)
}
