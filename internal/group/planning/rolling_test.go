package planning

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

func TestPlan_ClearsEpochsThatTheLeaderCannotCompile(t *testing.T) {
	setUp := func(t *testing.T) (*world, string) {
		w := NewWorld(t)
		a := w.Join("a", "job")
		w.Define("job", 2, 1, coordtest.UnsupportedSchedule)
		w.Settle()
		w.View.Compile = func(def json.RawMessage) (due.Program, error) {
			if strings.Contains(string(def), "lunar") {
				return nil, errors.New("unknown word")
			}
			return coordtest.Minutely{}, nil
		}
		w.Define("job", 2, 2, "")
		w.Settle()
		require.Len(t, w.Plan("job").Epochs, 2)
		w.View.Now, w.View.SlowTick = coordtest.At(10), true
		return w, a
	}
	t.Run("not while a live member offers the job and serves their fires", func(t *testing.T) {
		w, _ := setUp(t)
		w.Settle()
		assert.Len(t, w.Plan("job").Epochs, 2)
	})
	t.Run("when all shards have claimed fires of a later one", func(t *testing.T) {
		w, a := setUp(t)
		w.claim(a, "job", func(c *record.Claims) {
			c.Watermarks = c.Watermarks.Raise(shardset.Of(0), record.Watermark{Epoch: 2, Fire: coordtest.At(9), Attempt: 1})
		})
		w.Settle()
		require.Len(t, w.Plan("job").Epochs, 2)
		w.claim(a, "job", func(c *record.Claims) {
			c.Watermarks = c.Watermarks.Raise(shardset.Of(1), record.Watermark{Epoch: 2, Fire: coordtest.At(9), Attempt: 1})
		})
		w.Settle()
		assert.Len(t, w.Plan("job").Epochs, 1)
	})
	t.Run("when no live member offers the job, and logs what is dropped", func(t *testing.T) {
		w, a := setUp(t)
		w.editMember(a, func(m *record.Member) { m.Jobs, m.Unsupported = nil, []string{"job"} })
		var why []string
		for range 5 {
			for _, c := range w.round().Changes {
				why = append(why, c.Why...)
			}
		}
		assert.Empty(t, w.owners("job"))
		assert.Len(t, w.Plan("job").Epochs, 1)
		assert.Contains(t, why, "drop what may be due in epoch 1: no live instance supports its definition")
	})
	t.Run("never while a re-run of one waits", func(t *testing.T) {
		w, a := setUp(t)
		w.startRuns(a, "job", shardset.Of(1), coordtest.Fire(0, 1))
		w.expire(a)
		w.Settle()
		assert.Len(t, w.Plan("job").Epochs, 2)
		assert.Len(t, w.Plan("job").Reruns, 1)
	})
}
