package main

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/rotatest"
)

// A document shows from here:

func TestSettleSurvivesACrash(t *testing.T) { // no server, no waiting: milliseconds
	rotatest.Run(t, func(f *rotatest.Fleet) {
		job := settleJob(aMinute)
		f.Start("a", job)
		f.Start("b", job)
		f.NextFire("settle")
		f.Crash("a")
		f.Settle() // until nothing is left to do
		rerun := func(r rotatest.Record) bool { return r.Attempt == 2 && r.Instance == "b" }
		if !slices.ContainsFunc(f.Runs("settle"), rerun) {
			t.Error("nothing of a was rerun on b")
		}
	})
}

// To here.

// aMinute runs for a minute.
func aMinute(ctx context.Context, _ *executor.Run) error {
	select {
	case <-time.After(time.Minute):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
