package claiming

import (
	"testing"

	"github.com/rota-dev/rota/coordinator/internal/coordtest"
	"github.com/rota-dev/rota/coordinator/internal/due"
	"github.com/rota-dev/rota/internal/record"
)

// claimant returns what instance "me" knows, owning all shards of a job with a fire each
// minute since start.
func claimant(t *testing.T, shards int) *Input {
	t.Helper()
	return &Input{
		Me: "me", MayClaim: true, Now: coordtest.Start, Claims: record.Claims{Job: "job"},
		Programs: map[int]due.Program{1: coordtest.Minutely{}, 2: coordtest.Minutely{}},
		Plan:     coordtest.OwnPlan(t, shards),
	}
}
