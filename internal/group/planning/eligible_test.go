package planning

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/internal/shardset"
)

// Members are kept by the sets of jobs that they offer.
func TestFindEligible_IsInTheOrderOfNamesWhateverElseMembersOffer(t *testing.T) {
	w := NewWorld(t)
	w.Define("job", 3, 1, "")
	a := w.Join("a", "job", "other")
	b := w.Join("b", "job")
	c := w.Join("c", "job", "other")
	w.Settle()
	assert.Equal(t, map[string]shardset.Set{a: shardset.Of(0), b: shardset.Of(1), c: shardset.Of(2)}, w.Plan("job").Owners)
}
