package executor

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkPool measures what the pool adds to 10,000 runs that come at once: of one job, of
// which most wait, and of 1,000 jobs.
func BenchmarkPool(b *testing.B) {
	for _, jobs := range []int{1, 1000} {
		b.Run(fmt.Sprintf("%d jobs", jobs), func(b *testing.B) {
			const tasks = 10_000
			b.ReportAllocs()
			names := make([]string, jobs)
			for i := range names {
				names[i] = fmt.Sprint("job-", i)
			}
			p := &pool{queue: queue{bound: 8}}
			fire := time.Now()
			for b.Loop() {
				for i := range tasks {
					p.add(&task{job: names[i%jobs], fire: fire, do: func() {}})
				}
				<-p.idle()
			}
		})
	}
}
