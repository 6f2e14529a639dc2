package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/rotatest"
	"github.com/rota-dev/rota/schedule"
)

func TestPrintsTheStatusOfAJob(t *testing.T) {
	rotatest.Run(t, func(f *rotatest.Fleet) {
		nothing := func(context.Context, *executor.Run) error { return nil }
		f.Start("a", executor.Job{Name: "settle", Schedule: schedule.Every(time.Hour), Shards: 2, Handler: executor.HandlerFunc(nothing)})
		f.NextFire("settle")
		f.Settle()
		var out bytes.Buffer
		if err := printStatus(f.T().Context(), &out, f.Server().Client("console"), rotatest.Namespace, "settle"); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{`"schedule": "every 1h"`, `"next": "2000-01-01T02:00:00Z"`, `"owner": "a"`, `"succeeded": 2`} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("no %s in:\n%s", want, out.String())
			}
		}
	})
}
