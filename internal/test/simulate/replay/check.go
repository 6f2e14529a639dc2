package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// replayCheck simulates seeds twice and compares their transcripts.
type replayCheck struct {
	first, seeds int
	args         []string // of the test binary, besides the seed
}

// parseCheck returns the check that the arguments ask for, or nil without -check.
func parseCheck(args []string) (*replayCheck, error) {
	isCheck := func(arg string) bool { return arg == "-check" || arg == "--check" }
	if !slices.ContainsFunc(args, isCheck) {
		return nil, nil
	}
	c := &replayCheck{first: 1, seeds: 3}
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		var number *int
		switch strings.TrimLeft(name, "-") {
		case "check":
			continue
		case "simulate.seeds":
			number = &c.seeds
		case "simulate.first":
			number = &c.first
		case "simulate.seed", "simulate.transcript":
			return nil, fmt.Errorf("%s: not with -check, which sets it", name)
		default:
			c.args = append(c.args, arg)
			continue
		}
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%s: want a number from 1 after =", arg)
		}
		*number = n
	}
	return c, nil
}

// run prints a line for each seed. It fails if a seed ran two ways.
func (c *replayCheck) run(ctx context.Context, simulator *exec.Cmd, dir string) error {
	transcribe := func(seed int) ([]byte, error) {
		at := filepath.Join(dir, "transcript")
		cmd := exec.CommandContext(ctx, simulator.Path, slices.Concat(simulator.Args[1:], c.args,
			[]string{"-test.timeout=0", fmt.Sprintf("-simulate.seed=%d", seed), "-simulate.transcript=" + at})...)
		cmd.Dir, cmd.Env = simulator.Dir, simulator.Env
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("simulate seed %d: %w\n%s", seed, err, out)
		}
		return os.ReadFile(at)
	}
	var errs []error
	var before []byte
	for seed := c.first; seed < c.first+c.seeds; seed++ {
		one, err := transcribe(seed)
		if err != nil {
			return err
		}
		two, err := transcribe(seed)
		if err != nil {
			return err
		}
		if err := compareTranscripts(before, one, two); err != nil {
			err = fmt.Errorf("seed %d: %w", seed, err)
			fmt.Println(err)
			errs = append(errs, err)
		} else {
			fmt.Printf("seed %d: the same %d lines twice\n", seed, bytes.Count(one, []byte("\n")))
		}
		before = one
	}
	fmt.Printf("%d of %d seeds ran the same way twice\n", c.seeds-len(errs), c.seeds)
	return errors.Join(errs...)
}

// minLines is how many lines a transcript of all commits and calls has at least.
const minLines = 1000

// compareTranscripts compares the two transcripts of a seed. before is that of another seed: if it is the
// same as these, the comparison proves nothing, and neither does it if they are short.
func compareTranscripts(before, one, two []byte) error {
	if n := bytes.Count(one, []byte("\n")); n < minLines {
		return fmt.Errorf("the transcript has %d lines, want at least %d", n, minLines)
	}
	if bytes.Equal(before, one) {
		return errors.New("the transcript is that of the seed before")
	}
	a, b := bytes.Split(one, []byte("\n")), bytes.Split(two, []byte("\n"))
	for i := range min(len(a), len(b)) {
		if !bytes.Equal(a[i], b[i]) {
			return fmt.Errorf("two ways from line %d on:\n%s\n%s", i+1, a[i], b[i])
		}
	}
	if len(a) != len(b) {
		return fmt.Errorf("%d lines, then %d", len(a)-1, len(b)-1)
	}
	return nil
}
