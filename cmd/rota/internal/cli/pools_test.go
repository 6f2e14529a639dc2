package cli

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/schedule"
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

func TestPools_LateJobsNameThePoolThatTheyWaitFor(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		hold := executor.HandlerFunc(func(ctx context.Context, _ *executor.Run) error {
			<-ctx.Done()
			return nil
		})
		f.start("web-1", nil, executor.Job{Name: "settle", Schedule: schedule.Every(time.Minute), Shards: 3, Pool: "db", Handler: hold})
		require.Equal(t, exit.OK, f.run("set-pool db 1").code)
		time.Sleep(4 * time.Minute)
		assert.Regexp(t, `settle .*LATE: waits for pool db`, f.run("jobs").out)
		assert.Regexp(t, `due since +2000-01-01T.*, waits for pool db\n`, f.run("job settle").out)
		assert.Contains(t, f.run("check --max-late 2m").out, "LATE: waits for pool db")
		assert.Contains(t, f.run("explain settle").out, "the run waits for pool db: 1 of 1 slots taken by web-1 (1)")
		require.Equal(t, exit.OK, f.run("set-pool db 3").code)
		time.Sleep(10 * time.Second)
		assert.NotContains(t, f.run("job settle").out, "waits for pool")
	})
}
