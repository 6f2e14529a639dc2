package pool

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkPool measures what the pool adds to 10,000 runs that come at once, of one job or of
// 1,000, with a bound over all jobs and with one for each.
func BenchmarkPool(b *testing.B) {
	for _, workers := range []int{8, 0} {
		for _, jobs := range []int{1, 1000} {
			b.Run(fmt.Sprintf("workers=%d/jobs=%d", workers, jobs), func(b *testing.B) {
				const tasks = 10_000
				b.ReportAllocs()
				p := Pool{queue: queue{bound: workers}}
				names := make([]string, jobs)
				for i := range names {
					names[i] = fmt.Sprint("job-", i)
					p.SetBound(Lane{Name: names[i]}, 16)
				}
				fire := time.Now()
				for b.Loop() {
					p.Add(func(yield func(*Task) bool) {
						for i := range tasks {
							yield(&Task{Job: names[i%jobs], Fire: fire, Do: func() {}})
						}
					})
					<-p.Idle()
				}
			})
		}
	}
}
