package history

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRing_PrefersTheOwnersRecordOfARunToTheLeaders(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	run := func(id string, how Outcome) Run {
		return Run{Namespace: "billing", Group: "default", Job: "settle", Fire: at, ID: id, Instance: "a", Outcome: how}
	}
	g := NewRing(2)
	kept := func(runs ...Run) (out []string) {
		require.NoError(t, g.Write(t.Context(), Batch{Runs: runs}))
		all, err := g.Reader("billing", "").Runs(t.Context(), "settle", at, 0)
		require.NoError(t, err)
		for _, r := range all {
			out = append(out, r.ID+" "+string(r.Outcome))
		}
		return out
	}
	assert.Equal(t, []string{"1 crashed"}, kept(run("1", Crashed), run("1", Crashed)))
	assert.Equal(t, []string{"1 succeeded", "2 failed"}, kept(run("2", Failed), run("1", Succeeded)))
	assert.Equal(t, []string{"1 succeeded", "2 failed"}, kept(run("1", Crashed), run("2", Succeeded)))
	assert.Equal(t, []string{"2 failed", "3 crashed"}, kept(run("3", Crashed)), "the oldest is dropped")
	assert.Equal(t, []string{"2 failed", "3 session lost"}, kept(run("3", LostSession)))
	assert.Equal(t, []string{"1 crashed", "3 session lost"}, kept(run("1", Crashed)))
}
