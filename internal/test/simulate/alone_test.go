package simulate_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"testing/cryptotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/conformance/child"
	"github.com/rota-dev/rota/internal/test/judge"
	"github.com/rota-dev/rota/internal/test/simulate"
)

// maxSeedTime bounds the time of a process for its seed. Most take less than a second, unless other tests keep the processors busy.
const maxSeedTime = 15 * time.Minute

// simulateInProcess simulates a seed of a test in a process of its own: all processes start in the same state, none affects
// another, and a panic belongs to a known seed. The error contains the output of the process.
func simulateInProcess(ctx context.Context, test string, seed uint64, dir string) (*judge.Report, error) {
	r := &judge.Report{}
	return r, runTestInProcess(ctx, test, seed, dir, r)
}

// runTestInProcess runs a test with a seed in a process of its own. The test writes its report as JSON.
func runTestInProcess(ctx context.Context, test string, seed uint64, dir string, into any, flags ...string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, maxSeedTime, fmt.Errorf("takes longer than %v", maxSeedTime))
	defer cancel()
	at := filepath.Join(dir, strconv.FormatUint(seed, 10)+".json")
	defer os.Remove(at)
	cmd := exec.Command(os.Args[0], append(flags, "-test.run=^"+test+"$", "-test.timeout=0", "-test.v="+strconv.FormatBool(*verbose),
		fmt.Sprintf("-simulate.seed=%d", seed), fmt.Sprintf("-simulate.part=%g", *part), "-simulate.report="+at, "-simulate.transcript="+*transcript,
		fmt.Sprintf("-simulate.trail=%d", *trail), fmt.Sprintf("-simulate.log=%t", *verbose))...)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1") // as many of these processes run as there are processors
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if *verbose {
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	}
	if err := child.Run(ctx, cmd); err != nil {
		return fmt.Errorf("seed %d: %w\n%s", seed, err, out.Bytes())
	}
	b, err := os.ReadFile(at)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, into)
}

// simulateAlone simulates the seed in such a process.
func simulateAlone(t *testing.T, config func(seed uint64) simulate.Config) {
	cryptotest.SetGlobalRandom(t, *seed) // ids are random
	c := config(*seed)
	if *transcript != "" {
		var all bytes.Buffer // writing to the file meanwhile would let other goroutines run
		c.Transcript = &all
		defer func() { require.NoError(t, os.WriteFile(*transcript, all.Bytes(), 0o600)) }()
	}
	r := run(t, c)
	b, err := json.Marshal(r)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(*report, b, 0o600))
}
