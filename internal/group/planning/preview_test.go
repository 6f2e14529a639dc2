package planning

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// The targets of a view are what plans reach when the leader goes on deciding.
func TestFindTargets_AreReachedByDecide(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 1))
		w := NewWorld(t)
		jobs := []string{"a", "b", "c"}
		for _, job := range jobs {
			w.Define(job, 1+r.IntN(12), 0, []string{"", "", `,"strategy":"average"`}[r.IntN(3)])
		}
		join := func(name string) { w.Join(name, jobs[:1+r.IntN(3)]...) }
		for i := range 2 + r.IntN(3) {
			join(fmt.Sprint("m", i))
		}
		w.Settle()
		join("late")
		if r.IntN(2) == 0 {
			w.expire(record.Incarnation("m0", "m0"))
		}
		if r.IntN(2) == 0 {
			w.editMember(record.Incarnation("m1", "m1"), func(m *record.Member) { m.Draining = true })
		}
		targets := FindTargets(w.View)
		w.Settle()
		for _, target := range targets {
			if _, planned := w.View.Plans[target.Segment]; !planned {
				assert.Empty(t, target.Owners, "seed %d, job %s", seed, target.Segment)
				continue
			}
			p := w.Plan(target.Segment)
			owners := map[string]shardset.Set{}
			for inc, set := range target.Owners {
				if !set.IsZero() {
					owners[inc] = set
				}
			}
			assert.Equal(t, owners, p.Owners, "seed %d, job %s", seed, target.Segment)
			assert.Equal(t, target.Problem, p.Problem, "seed %d, job %s", seed, target.Segment)
		}
	}
}
