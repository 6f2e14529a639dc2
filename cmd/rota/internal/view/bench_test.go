package view

import (
	"fmt"
	"testing"
	"time"

	"github.com/rota-dev/rota/coordinator"
)

// BenchmarkOverview is the part of top after the state of the group is known.
func BenchmarkOverview(b *testing.B) {
	st := coordinator.GroupStatus{At: time.Now()}
	for n := range 10_000 {
		st.Jobs = append(st.Jobs, coordinator.JobSummary{Job: fmt.Sprintf("job-%05d", n), Schedule: "every 1m", Shards: 4})
	}
	for b.Loop() {
		OverviewOf(st, 30).Screen(Times{Now: st.At, Mode: "relative"})
	}
}
