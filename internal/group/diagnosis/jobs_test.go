package diagnosis

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

func TestDiagnose_ReportsJobsThatStandStill(t *testing.T) {
	triggers := func(n int, param string) *record.Control {
		c := &record.Control{Job: "job", LastTrigger: uint64(n)}
		for i := range n {
			c.Triggers = append(c.Triggers, record.Trigger{Number: uint64(i + 1), At: coordtest.At(1), Param: param})
		}
		return c
	}
	for name, c := range map[string]struct {
		minutes int // since the last claimed fire
		change  func(*world)
		control *record.Control
		want    string // "" for no finding
		sev     Severity
	}{
		"a fire that is late":             {minutes: 90, want: "is late by 1h2", sev: Error},
		"a fire that is late by a minute": {minutes: 1},
		"a run that lasts": {minutes: 90, change: func(w *world) {
			w.claims[inc] = record.Claims{Job: "job", Running: record.Runs{{Shards: shardset.Range(0, 4), Ref: record.Ref{Epoch: 1, Fire: coordtest.At(1), Attempt: 1}}}}
		}},
		"a paused job": {minutes: 90, change: func(w *world) { w.plan.Paused = true }},
		"a retry without an end": {minutes: 1, change: func(w *world) {
			w.plan.Reruns = record.Runs{{Shards: shardset.Of(1), Ref: record.Ref{Epoch: 1, Fire: coordtest.At(1), Attempt: 2, NotBefore: coordtest.At(1e6), RetryDelay: record.Duration(time.Minute)}}}
		}, want: "a retry of shard 1 waits until", sev: Error},
		"triggers near their bound": {minutes: 1, control: triggers(60, ""), want: "60 triggers wait for the leader, of at most 64", sev: Warning},
		"more than that":            {minutes: 1, control: triggers(100, ""), want: "100 triggers wait for the leader, of at most 64", sev: Error},
		"long parameters":           {minutes: 1, control: triggers(7, strings.Repeat("p", 8192)), want: "7 triggers wait", sev: Warning},
		"few triggers":              {minutes: 1, control: triggers(7, "p")},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.plan.Watermarks = record.Watermarks{{Shards: shardset.Range(0, 4), Watermark: record.Watermark{Epoch: 1, Fire: coordtest.At(1), Attempt: 1}}}
			if c.change != nil {
				c.change(w)
			}
			r := w.records()
			r.Now = coordtest.At(1).Add(time.Duration(c.minutes)*time.Minute - time.Second)
			r.Compile = func(json.RawMessage) (due.Program, error) { return coordtest.Minutely{}, nil }
			if c.control != nil {
				r.Put(w.entry(r.Keys.Control("job"), c.control))
			}
			findings := Diagnose(r)
			if c.want == "" {
				require.Empty(t, findings)
				return
			}
			require.Len(t, findings, 1)
			assert.Equal(t, Stuck, findings[0].Kind)
			assert.Equal(t, c.sev, findings[0].Severity)
			assert.Equal(t, "job", findings[0].Job)
			assert.Contains(t, findings[0].What, c.want)
		})
	}
}
