package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rota-dev/rota/conformance"
)

// writeMutants writes the target's package with all its faults to work. It returns the faults and
// the file for the go command's -overlay.
func writeMutants(work string, t target, only string) ([]*mutant, string, error) {
	files, err := filepath.Glob(filepath.Join(t.dir, "*.go"))
	if err != nil {
		return nil, "", err
	}
	files = slices.DeleteFunc(files, func(file string) bool { return strings.HasSuffix(file, "_test.go") })
	sources, consts := map[string][]byte{}, map[string]bool{}
	for _, file := range files {
		if sources[file], err = os.ReadFile(file); err != nil {
			return nil, "", err
		}
		if err := constNames(sources[file], consts); err != nil {
			return nil, "", err
		}
	}
	var all []*mutant
	var pkg string
	overlay := map[string]string{}
	for _, file := range files {
		if base := filepath.Base(file); !strings.Contains(base, only) || len(t.files) > 0 && !slices.Contains(t.files, base) {
			continue
		}
		m, err := mutateFile(filepath.Base(file), sources[file], consts, len(all)+1)
		if err != nil {
			return nil, "", err
		}
		pkg = m.pkg
		all = append(all, m.mutants...)
		if err := addOverlay(overlay, work, file, m.source); err != nil {
			return nil, "", err
		}
	}
	if len(all) == 0 {
		return nil, "", fmt.Errorf("no code to mutate in %s", t.dir)
	}
	if err := addOverlay(overlay, work, filepath.Join(t.dir, "mutant_switch.go"), switchSource(pkg)); err != nil {
		return nil, "", err
	}
	list, err := writeOverlay(work, overlay)
	return all, list, err
}

// addOverlay writes source to work and lets it replace file, which need not exist.
func addOverlay(overlay map[string]string, work, file string, source []byte) error {
	absolute, err := filepath.Abs(file)
	if err != nil {
		return err
	}
	copied := filepath.Join(work, filepath.Base(file))
	overlay[absolute] = copied
	return os.WriteFile(copied, source, 0o644)
}

// writeOverlay writes the file for -overlay.
func writeOverlay(work string, overlay map[string]string) (string, error) {
	text, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		return "", err
	}
	at := filepath.Join(work, "overlay.json")
	return at, os.WriteFile(at, text, 0o644)
}

// testProgram is a test binary with all faults.
type testProgram struct {
	binary string
	dir    string
	args   []string
	cpu    time.Duration
}

func (p *testProgram) build(ctx context.Context, overlay string) error {
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", p.binary, "./"+p.dir)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the tests of %s with all faults: %w\n%s", p.dir, err, text)
	}
	return nil
}

// noticeAll runs the tests for each fault that no test has noticed yet. A first run without a
// fault finds out which of the faults the tests reach; the others need no run.
func (p *testProgram) noticeAll(ctx context.Context, mutants []*mutant, workers int, file string) error {
	reached, err := p.findReached(ctx, file)
	if err != nil {
		return err
	}
	work := make(chan *mutant)
	var running sync.WaitGroup
	for range max(workers, 1) {
		running.Go(func() {
			for m := range work {
				m.noticedBy = p.findFailure(ctx, m.number)
			}
		})
	}
	for _, m := range mutants {
		if reached[m.number] && m.noticedBy == "" {
			m.reached = true
			work <- m
		}
	}
	close(work)
	running.Wait()
	return nil
}

// findReached runs the tests without a fault and returns the numbers of the faults whose code
// they run. It raises the limit of processor time to several such runs.
func (p *testProgram) findReached(ctx context.Context, file string) (map[int]bool, error) {
	output, used, err := p.exec(ctx, time.Hour, reachedVariable+"="+file)
	if err != nil {
		return nil, fmt.Errorf("the tests of %s fail without a fault: %w\n%s", p.dir, err, output)
	}
	p.cpu = max(p.cpu, 5*used)
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	reached := map[int]bool{}
	for _, word := range strings.Fields(string(text)) {
		n, err := strconv.Atoi(word)
		if err != nil {
			return nil, err
		}
		reached[n] = true
	}
	return reached, nil
}

// findFailure returns the test that fails with a fault, or "".
func (p *testProgram) findFailure(ctx context.Context, number int) string {
	text, _, err := p.exec(ctx, p.cpu, selectVariable+"="+strconv.Itoa(number))
	if err == nil {
		return ""
	}
	return failedTest(text)
}

// failedTest returns the innermost failed test in the output of a test binary, or how the
// binary ended.
func failedTest(text string) string {
	failed := ""
	for _, line := range strings.Split(text, "\n") {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "--- FAIL: "); ok {
			name, _, _ = strings.Cut(name, " ")
			if strings.HasPrefix(name, failed) {
				failed = name
			}
		}
	}
	switch {
	case strings.Contains(text, noProgress):
		return "no progress"
	case failed == "":
		return "end of the program"
	}
	return failed
}

// exec runs the tests and returns their output. The limit of real time is a last resort: a run
// without progress ends itself, see switchSource.
func (p *testProgram) exec(ctx context.Context, cpu time.Duration, variable string) (output string, used time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.binary, p.args...)
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), variable, cpuVariable+"="+cpu.String(), "GOMAXPROCS=1",
		conformance.ReportVariable+"=") // a mutant that fails the suite is no backend that does
	text, err := cmd.CombinedOutput()
	if cmd.ProcessState != nil {
		used = cmd.ProcessState.UserTime()
	}
	return string(text), used, err
}
