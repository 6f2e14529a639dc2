package planning

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/coordinator/internal/coordtest"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

func TestPlan_RunsOfUnknownEpochsAreCountedAsLost(t *testing.T) {
	w := NewWorld(t)
	a := w.Join("a", "job")
	w.Define("job", 1, 0, "")
	w.Settle()
	w.startRuns(a, "job", w.View.Plans["job"].Owners[a], record.Ref{Epoch: 7, Fire: coordtest.Start, Attempt: 1})
	w.expire(a)
	w.Join("b", "job")
	w.Settle()
	p := w.View.Plans["job"]
	assert.Empty(t, p.Reruns)
	assert.EqualValues(t, 1, p.Counts.Lost)
}

func TestPlan_WithoutAPlanMembersKeepTheShardsThatTheyRun(t *testing.T) {
	w := NewWorld(t)
	a, b := w.Join("a", "job"), w.Join("b", "job")
	w.Define("job", 2, 0, "")
	w.View.Term = w.nextRev() // later than the definition: there may have been a plan
	both := shardset.Range(0, 2)
	w.startRuns(a, "job", both, record.Ref{Epoch: 7, Fire: coordtest.Start, Attempt: 1})
	w.round()
	p := w.Plan("job")
	assert.Equal(t, both.String(), p.Owners[a].String())
	assert.True(t, p.Owners[b].IsZero())
	assert.Equal(t, 8, p.Last().Number)
}
