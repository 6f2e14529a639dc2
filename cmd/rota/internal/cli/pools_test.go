package cli

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
)

func TestPools(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		assert.Contains(t, f.run("pools").out, "no pools: rota set-pool gives one a size")
		assert.Contains(t, f.run("set-pool db 8").out, "pool db has 8 slots")
		assert.Contains(t, f.run("set-pool db 8").out, "nothing changed")
		assert.Regexp(t, `NAME +SIZE +TAKEN +WAITING +INSTANCES\n *db +8 +0 +0 +-`, f.run("pools").out)
		assert.Contains(t, f.run("acts").out, "set pool db to 8")
		assert.Contains(t, f.run("delete-pool db --yes").out, "pool db has no size any more")
		assert.Contains(t, f.run("delete-pool db --yes").out, "nothing changed")
		for _, wrong := range []string{"set-pool db many", "set-pool db -- -1", "set-pool a/b 3", "set-pool db", "set-pool db 10001"} {
			assert.Equal(t, exit.Usage, f.run(wrong).code, wrong)
		}
	})
}
