package rotatest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/schedule"
)

// fakeT takes down what a fleet tells a test.
type fakeT struct {
	mu   sync.Mutex
	said []string
}

func (f *fakeT) Helper() {}

func (f *fakeT) Errorf(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.said = append(f.said, fmt.Sprintf(format, args...))
}

// errFatal is what a fakeT panics with to leave the test's function.
var errFatal = fmt.Errorf("fatal")

func (f *fakeT) Fatalf(format string, args ...any) {
	f.Errorf(format, args...)
	panic(errFatal)
}

// failures returns with what Run would fail a test.
func failures(t *testing.T, test func(*Fleet)) []string {
	fake := &fakeT{}
	synctest.Test(t, func(t *testing.T) {
		defer func() {
			if v := recover(); v != nil && v != errFatal {
				panic(v)
			}
		}()
		runFleet(t, fake, test)
	})
	return fake.said
}

// takes returns a handler whose runs take d, or until their context ends.
func takes(d time.Duration) executor.HandlerFunc {
	return func(ctx context.Context, _ *executor.Run) error {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// ignores returns a handler whose runs take d, whatever becomes of their context.
func ignores(d time.Duration) executor.HandlerFunc {
	return func(context.Context, *executor.Run) error {
		time.Sleep(d)
		return nil
	}
}

// every returns a job with shards that fires so often.
func every(d time.Duration, shards int, h executor.Handler) executor.Job {
	return executor.Job{Name: "job", Schedule: schedule.Every(d), Shards: shards, Handler: h}
}

// slow makes every exchange of processes with the registry take its time, so that what
// follows from what can be told apart.
func slow(f *Fleet, instances ...string) {
	for _, instance := range instances {
		f.Server().Delay(instance, 20*time.Millisecond, 20*time.Millisecond)
	}
}

// plan returns the plan of the job.
func plan(f *Fleet) *record.Plan {
	for _, e := range f.Server().Dump() {
		if strings.HasSuffix(string(e.Key), "/plan/job") {
			p, err := record.DecodePlan(e.Value)
			require.NoError(f.T(), err)
			return p
		}
	}
	return nil
}

// shares returns how many shards each instance owns according to the plan.
func shares(f *Fleet) map[string]int {
	out := map[string]int{}
	for incarnation, shards := range plan(f).Owners {
		instance, _ := splitIncarnation(incarnation)
		out[instance] += shards.Len()
	}
	return out
}

// where returns the instances of runs by shard, those of one fire.
func where(runs []Record, fire time.Time) map[int]string {
	out := map[int]string{}
	for _, r := range runs {
		if r.FireTime.Equal(fire) {
			out[r.Shard] += r.Instance
		}
	}
	return out
}
