package executor

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/executor/internal/pool"
	"github.com/rota-dev/rota/internal/group/claimer"
	"github.com/rota-dev/rota/internal/group/member"
)

func TestClaimedRuns(t *testing.T) {
	c := &claim{Run: claimer.Run{Job: "job", Shards: 3}, e: &Executor{member: &member.Member{}}, program: &program{}}
	run := func(shard int) *claimedRun { return &claimedRun{claim: c, task: pool.Task{Job: "job", Shard: shard}} }
	t.Run("a handler runs from its call until its return", func(t *testing.T) {
		var all claimedRuns
		r := run(1)
		all.add(c, []*claimedRun{r, run(2)})
		assert.Empty(t, all.runningHandlers())
		assert.True(t, all.handlerStarts(r, time.Now()))
		assert.Len(t, all.runningHandlers(), 1)
		r.returned.Store(true) // while its gate still waits for a write in flight
		assert.Empty(t, all.runningHandlers())
	})
	t.Run("no handler is called after the end of all contexts, which ends those of handlers that run", func(t *testing.T) {
		var all claimedRuns
		r, late := run(0), run(1)
		all.add(c, []*claimedRun{r, late})
		assert.True(t, all.handlerStarts(r, time.Now()))
		enough := errors.New("enough")
		all.cancelAll(enough)
		assert.Equal(t, enough, r.signal.ended)
		assert.NoError(t, late.signal.ended)
		assert.False(t, all.handlerStarts(late, time.Now()))
	})
}
