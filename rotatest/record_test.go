package rotatest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
)

func TestRecord_PrintsAsOneLine(t *testing.T) {
	errHandler := errors.Join(errors.New("one"), errors.New("two"))
	Run(t, func(f *Fleet) {
		f.Start("a", every(time.Hour, 1, executor.HandlerFunc(func(_ context.Context, r *executor.Run) error {
			time.Sleep(time.Minute)
			if r.FireTime.Hour() == 1 {
				return errHandler
			}
			return nil
		})))
		f.NextFire("job")
		const first = `rotatest/default/job/0/2000-01-01T01:00:00Z/1 \(scheduled on a, shard 0 of 1, fence \d+\) at 2000-01-01 01:00:00`
		require.Regexp(t, `^\[`+first+`: running\]$`, fmt.Sprint(f.Runs("job")))
		f.NextFire("job")
		f.Settle()
		require.Regexp(t, `^\[`+first+` for 1m0s: error: one; two `+
			`rotatest/default/job/0/2000-01-01T02:00:00Z/1 \(scheduled on a, .*\) at 2000-01-01 02:00:00 for 1m0s: ok\]$`, fmt.Sprint(f.Runs("job")))
	})
}
