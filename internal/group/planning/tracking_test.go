package planning

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/record"
)

func TestPlan_FailoverOfUntrackedRuns(t *testing.T) {
	w := NewWorld(t)
	a, b := w.Join("a", "job"), w.Join("b", "job")
	w.Define("job", 4, 0, coordtest.ClaimsOnly)
	w.Settle()
	had := w.Plan("job").Owners[b]
	w.startRuns(b, "job", had, coordtest.Fire(1, 1))
	w.expire(b)
	w.Settle()
	assert.Equal(t, map[string]string{a: "0-3"}, w.owners("job"))
	assert.Empty(t, w.Plan("job").Reruns)
	assert.Equal(t, record.Counts{Unknown: uint64(had.Len())}, w.Plan("job").Counts)
}
