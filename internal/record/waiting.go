package record

import (
	"cmp"
	"maps"
	"slices"

	"github.com/rota-dev/rota/internal/shardset"
)

// Waiting is the claimed runs of a job that wait for a worker of their instance. It informs
// operators and never influences a decision.
type Waiting struct {
	Shards shardset.Set `json:"shards"`           // with at most maxWaitingRanges ranges
	More   int          `json:"more,omitempty"`   // how many further shards wait
	Since  Instant      `json:"since"`            // when the first run was started
	Behind string       `json:"behind,omitempty"` // the reached bound, shortened
}

// The bounds keep member records small: all jobs of an instance may wait at once.
const (
	maxWaitingJobs   = 100
	maxWaitingRanges = 8
	maxBehindBytes   = 300
)

// BoundWaiting returns the part of waiting, a map by job, that fits a member record. If there are
// too many jobs, it keeps the jobs that have waited longest.
func BoundWaiting(waiting map[string]Waiting) map[string]Waiting {
	if len(waiting) == 0 {
		return nil
	}
	jobs := slices.SortedFunc(maps.Keys(waiting), func(a, b string) int {
		return cmp.Or(cmp.Compare(waiting[a].Since, waiting[b].Since), cmp.Compare(a, b))
	})
	out := make(map[string]Waiting, min(len(jobs), maxWaitingJobs))
	for _, job := range jobs[:min(len(jobs), maxWaitingJobs)] {
		w := waiting[job]
		shards, more := firstRanges(w.Shards, maxWaitingRanges)
		w.Shards, w.More, w.Behind = shards, w.More+more, cut(w.Behind, maxBehindBytes)
		out[job] = w
	}
	return out
}

// Equal reports whether w and o are the same.
func (w Waiting) Equal(o Waiting) bool {
	return w.Shards.Equal(o.Shards) && w.More == o.More && w.Since == o.Since && w.Behind == o.Behind
}
