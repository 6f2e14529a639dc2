package planning

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

func TestPlan_StoppedSchedule(t *testing.T) {
	setUp := func(t *testing.T) (*world, string) {
		w := NewWorld(t)
		a := w.Join("a", "job")
		w.Define("job", 2, 1, "")
		w.Settle()
		w.View.Now = coordtest.At(5)
		w.editControl("job", func(c *record.Control) { c.Stopped = true })
		w.Settle()
		return w, a
	}
	t.Run("ends the epochs, and a resume begins one at an instant that no clock has reached", func(t *testing.T) {
		w, _ := setUp(t)
		require.Len(t, w.Plan("job").Epochs, 1)
		assert.Equal(t, coordtest.At(5), w.Plan("job").Last().Until)
		w.View.Now = coordtest.At(9)
		w.editControl("job", func(c *record.Control) { c.Stopped = false })
		w.Settle()
		p := w.Plan("job")
		require.Len(t, p.Epochs, 2)
		assert.Equal(t, coordtest.At(5), p.Epochs[0].Until)
		assert.Equal(t, coordtest.At(9).Add(5*time.Second), p.Epochs[1].From)
		assert.Zero(t, p.Epochs[1].Until)
	})
	t.Run("applies a new definition to no fire, also to none that was claimed ahead", func(t *testing.T) {
		w, a := setUp(t)
		w.claim(a, "job", func(c *record.Claims) {
			c.Watermarks = record.Watermarks{{Shards: shardset.Of(0), Watermark: record.Watermark{Epoch: 1, Fire: coordtest.At(5).Add(2 * time.Second), Attempt: 1}}}
		})
		w.Define("job", 3, 2, "")
		w.Settle()
		p := w.Plan("job")
		require.Len(t, p.Epochs, 2)
		assert.Equal(t, coordtest.At(5), p.Epochs[0].Until, "due fires stay as they were")
		assert.Equal(t, coordtest.At(5).Add(2*time.Second)+1, p.Epochs[1].From)
		assert.Equal(t, p.Epochs[1].From, p.Epochs[1].Until)
	})
	t.Run("applies a definition only after reads of all owners' claims", func(t *testing.T) {
		w, a := setUp(t)
		w.Define("job", 3, 2, "")
		clear(w.View.Reads)
		d := w.decideOnce()
		assert.Empty(t, d.Changes)
		assert.Equal(t, []string{a}, d.Reads)
	})
	t.Run("applies a definition stored with the stop in a second change", func(t *testing.T) {
		w := NewWorld(t)
		w.Join("a", "job")
		w.Define("job", 2, 1, "")
		w.Settle()
		w.Define("job", 3, 2, "")
		w.editControl("job", func(c *record.Control) { c.Stopped = true })
		w.round()
		assert.True(t, w.Plan("job").Stopped)
		assert.Len(t, w.Plan("job").Epochs, 1)
		w.round()
		assert.Len(t, w.Plan("job").Epochs, 2)
	})
	t.Run("keeps epochs in order just after a resume", func(t *testing.T) {
		w, _ := setUp(t)
		w.View.Now = coordtest.At(9)
		w.editControl("job", func(c *record.Control) { c.Stopped = false })
		w.Settle()
		w.View.Now = coordtest.At(9).Add(time.Second)
		w.editControl("job", func(c *record.Control) { c.Stopped = true })
		w.Settle()
		w.Define("job", 3, 2, "")
		w.Settle()
		p := w.Plan("job")
		require.Len(t, p.Epochs, 3)
		assert.Equal(t, p.Epochs[1].From, p.Epochs[2].From)
	})
	t.Run("is in the first plan of a job", func(t *testing.T) {
		w := NewWorld(t)
		w.Join("a", "job")
		w.Define("job", 2, 1, "")
		w.editControl("job", func(c *record.Control) { c.Stopped = true })
		w.round()
		p := w.Plan("job")
		assert.True(t, p.Stopped)
		assert.Equal(t, p.Last().From, p.Last().Until)
	})
	t.Run("begins no epoch for a definition of a lower revision", func(t *testing.T) {
		w, _ := setUp(t)
		w.Define("job", 3, 0, "")
		w.Settle()
		assert.Len(t, w.Plan("job").Epochs, 1)
	})
	t.Run("keeps no more epochs than a plan may have", func(t *testing.T) {
		w, _ := setUp(t)
		for i := range maxEpochs + 2 {
			w.editControl("job", func(c *record.Control) {
				c.Triggers = []record.Trigger{{Number: uint64(i + 1), At: w.View.Now}}
			})
			w.Settle()
			w.Define("job", 2, i+2, "")
			w.Settle()
			w.View.Now = w.View.Now.Add(time.Minute)
		}
		assert.Len(t, w.Plan("job").Epochs, maxEpochs)
		assert.Contains(t, w.Plan("job").Problem, "a new definition waits")
	})
	for name, hold := range map[string]func(c *record.Control, held bool){
		"stopped": func(c *record.Control, held bool) { c.Stopped = held },
		"paused":  func(c *record.Control, held bool) { c.Paused = held },
	} {
		t.Run("begins no more epochs than a plan may have, however often the schedule is "+name+" and resumed", func(t *testing.T) {
			w, _ := setUp(t)
			w.editControl("job", func(c *record.Control) { c.Stopped = false })
			w.Settle()
			most := 0
			for range maxResumedEpochs + 5 {
				for _, held := range []bool{true, false} {
					w.View.Now = w.View.Now.Add(time.Minute)
					w.editControl("job", func(c *record.Control) { hold(c, held) })
					w.Settle()
				}
				most = max(most, len(w.Plan("job").Epochs))
			}
			assert.Equal(t, maxResumedEpochs, most)
			p := w.Plan("job")
			assert.False(t, p.Paused || p.Stopped)
			assert.Zero(t, p.Last().Until, "the job has fires again")
			assert.Empty(t, p.Problem)
		})
	}
}
