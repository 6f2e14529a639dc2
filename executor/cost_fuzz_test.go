package executor

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/test/cost"
)

// costlyDefinitions are definitions that are legal, or nearly so, and whose fires are far apart, dense, or many.
func costlyDefinitions() (all []string) {
	instants := strings.Repeat("2026-01-02T03:04:05Z,", 4000)
	for _, schedule := range []string{
		"on trigger", "every 1ns", "every 1ms until 2261-01-01T00:00:00Z", "every 2562047h47m16.854775807s", "every 2h spread 1h59m",
		"fixed delay 1s", "always", "after b,c", "after " + strings.Repeat("a,", 1000) + "b",
		"cron 0 0 29 2 *", "cron 0 0 29 2 1 in Pacific/Apia", "cron * * * * *", "cron 0 0 31 2 *", "cron " + strings.Repeat("1,", 20_000) + "2 * * * *",
		"cron */7 1-5/2 ? jan-dec sun,mon from 2200-01-01T00:00:00Z", "cron @every 1ns", "cron 59 23 31 12 * in America/Sao_Paulo until 2026-06-01T00:00:00Z",
		"quartz 59 59 23 L-30W * ? 2099", "quartz 0 0 0 ? 2 MON#5", "quartz 0 0 0 29 2 ? 2026-2096/4", "quartz * * * * * ?", "quartz 0 0 0 ? * 6L in Asia/Kathmandu",
		"quartz " + strings.Repeat("0,", 20_000) + "1 * * * * ?", "quartz 0 0 0 31 2 ?",
		"at " + instants + "2026-01-02T03:04:06Z", "at 2261-12-31T00:00:00Z", "at 2026-01-02T03:04:05Z from 2027-01-01T00:00:00Z",
	} {
		for _, misfire := range []string{"run once", "run all 7", "skip missed"} {
			all = append(all, `{"name":"a","shards":3,"schedule":"`+schedule+`","on_misfire":"`+misfire+
				`","on_crash":"rerun elsewhere","max_attempts":3,"revision":0,"strategy":"sticky"}`)
		}
	}
	return append(all, `{"name":"a","shards":10000,"schedule":"every 1s","shard_params":{`+strings.Repeat(`"1":"",`, 5000)+`"2":""},"strategy":"sticky"}`)
}

// FuzzDefinition_Cost decodes a stored definition, compiles it and asks for twenty fires, as leaders and owners do that were away for
// years. Nothing of that may cost more than cost.Require allows for the definition.
func FuzzDefinition_Cost(f *testing.F) {
	for _, text := range costlyDefinitions() {
		f.Add([]byte(text), int64(0))
		f.Add([]byte(text), int64(200*365*24*time.Hour))
	}
	f.Fuzz(func(t *testing.T, stored []byte, away int64) {
		const fires = 20
		cost.Require(t, "definition", len(stored), func() {
			def, _, err := record.DecodeDefinition(stored)
			if err != nil {
				return
			}
			p, err := Compile(def)
			if err != nil {
				return
			}
			if _, err := p.(*program).MarshalJSON(); err != nil {
				t.Errorf("encode the compiled definition: %v", err)
			}
			last := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			now := last.Add(time.Duration(max(0, away)))
			for range fires {
				d := p.Due(last, time.Time{}, now)
				p.SkipDue(last, time.Time{}, now)
				if d.Fire.After(now) {
					t.Errorf("the fire at %v is due at %v", d.Fire, now)
				}
				next := d.Fire
				if next.IsZero() {
					next = d.Wake
				}
				if !next.After(last) {
					return
				}
				if last = next; now.Before(last) {
					now = last
				}
			}
		})
	})
}

func TestCompile_AcceptsMostCostlyDefinitions(t *testing.T) {
	compiled := 0
	for _, text := range costlyDefinitions() {
		def, _, err := record.DecodeDefinition([]byte(text))
		if err == nil {
			_, err = Compile(def)
		}
		if err == nil {
			compiled++
		}
	}
	require.Greater(t, compiled, 40, "of %d", len(costlyDefinitions()))
}
