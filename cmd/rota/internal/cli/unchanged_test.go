package cli

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/operator"
)

// An act that has nothing to end reports that, and is not on record.
func TestActs_SayThatNothingChanged(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		incident(f)
		for _, c := range []struct{ act, undo, done, unchanged string }{
			{"pause settle", "resume settle", "resumed settle\n", "settle is not paused: nothing changed\n"},
			{"pause --all --yes", "resume --all", "resumed the group\n", "the group is not paused: nothing changed\n"},
			{"pause settle --schedule", "resume settle", "resumed settle\n", "settle is not paused: nothing changed\n"},
			{"disable settle --shards 1", "enable settle --shards 1", "enabled shard 1 for settle\n", "shard 1 for settle: not disabled, nothing changed\n"},
			{"drain web-1", "undrain web-1", "undrained web-1\n", "web-1 is not drained: nothing changed\n"},
			{"override settle timeout=2h", "override settle --clear", "took the override of settle back\n", "settle has no override: nothing changed\n"},
			{"retire settle --yes", "unretire settle", "unretired settle\n", "settle is not retiring: nothing changed\n"},
		} {
			require.Equal(t, exit.OK, f.run(c.act).code, c.act)
			r := f.run(c.undo)
			assert.Equal(t, c.done, r.out, c.undo)
			acts := f.run("acts").out + f.run("acts settle").out
			r = f.run(c.undo)
			assert.Equal(t, exit.OK, r.code, c.undo)
			assert.Equal(t, c.unchanged, r.out, c.undo)
			assert.Equal(t, acts, f.run("acts").out+f.run("acts settle").out, c.undo)
		}
		require.Equal(t, exit.OK, f.run("override settle timeout=2h").code)
		assert.Equal(t, "the override of settle has none of these fields: nothing changed\n", f.run("override settle --clear shards").out)
		require.Equal(t, exit.OK, f.run("pause --all --yes").code)
		assert.Equal(t, "settle is not paused itself, as the group is: nothing changed\n", f.run("resume settle").out)
		require.Equal(t, exit.OK, f.run("retire settle --yes").code)
		for _, line := range []string{"resume settle", "enable settle --shards 1", "override settle --clear shards"} {
			r := f.run(line)
			assert.Equal(t, exit.NotMet, r.code, line)
			assert.True(t, strings.Contains(r.err, operator.ErrRetiring.Error()), r.err)
		}
	})
}
