package view

import (
	"fmt"
	"testing"
	"time"

	"github.com/rota-dev/rota/operator"
)

// BenchmarkTally_Overview is the part of top after the state of the group is known: of 10,000 jobs, 17 have
// changed.
func BenchmarkTally_Overview(b *testing.B) {
	st := operator.GroupStatus{At: time.Now()}
	for n := range 10_000 {
		st.Jobs = append(st.Jobs, operator.JobSummary{Job: fmt.Sprintf("job-%05d", n), Schedule: "every 1m", Shards: 4})
	}
	var tally Tally
	tally.Overview(st, nil, 30)
	for b.Loop() {
		st.Jobs = st.Jobs[:17]
		for i := range st.Jobs {
			st.Jobs[i].Counts.Claimed++
		}
		tally.Overview(st, nil, 30).Screen(Times{Now: st.At, Mode: "relative"})
	}
}
