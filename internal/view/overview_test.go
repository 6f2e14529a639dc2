package view

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/operator"
)

// overviewOfAll is the plain form of Tally.Overview: it visits all jobs, sorted by name.
func overviewOfAll(st operator.GroupStatus, maxJobs int) Overview {
	v := Overview{
		Version: Version, At: st.At, Group: groupOf(&st), States: map[string]int{}, Total: len(st.Jobs),
		Instances: InstancesOf(st).Instances, Alerts: alertsOf(&st, len(st.Jobs)),
	}
	for gravity, state := range JobStates {
		for i := range st.Jobs {
			if gravityOf(&st.Jobs[i], st.At) != gravity {
				continue
			}
			v.States[state]++
			v.Running += st.Jobs[i].Running
			add(&v.Counts, st.Jobs[i].Counts, 1)
			if len(v.Jobs) < maxJobs {
				v.Jobs = append(v.Jobs, JobOf(&st.Jobs[i], st.At, LateAfter))
			}
		}
	}
	return v
}

func TestTally_AgreesWithAnOverviewOfAllJobs(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 0))
		st := operator.GroupStatus{At: time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC), Instances: []operator.InstanceStatus{{Instance: "a", Alive: true}}}
		all := map[string]operator.JobSummary{}
		var tally Tally
		for step := range 100 {
			st.At = st.At.Add(time.Duration(random.IntN(40)) * time.Second)
			changed := map[string]operator.JobSummary{}
			var removed []string
			for range random.IntN(6) {
				name := fmt.Sprintf("job-%02d", random.IntN(30))
				if _, known := all[name]; known && random.IntN(4) == 0 {
					delete(all, name)
					delete(changed, name)
					removed = append(removed, name)
					continue
				}
				if slices.Contains(removed, name) {
					continue
				}
				j := operator.JobSummary{Job: name, Shards: random.IntN(4), Running: random.IntN(3), Counts: operator.Counts{Claimed: random.Uint64N(9), Lost: random.Uint64N(9)}}
				switch random.IntN(6) {
				case 0:
					j.Overdue = st.At.Add(-time.Duration(random.IntN(90)) * time.Second)
				case 1:
					j.Unowned = 1
				case 2:
					j.Paused = true
				}
				all[name], changed[name] = j, j
			}
			st.Jobs = nil
			for _, name := range slices.Sorted(maps.Keys(all)) {
				st.Jobs = append(st.Jobs, all[name])
			}
			onlyChanged := st
			onlyChanged.Jobs = slices.Collect(maps.Values(changed))
			most := 1 + random.IntN(12)
			require.Equal(t, overviewOfAll(st, most), tally.Overview(onlyChanged, removed, most), "seed %d, step %d", seed, step)
		}
	}
}
