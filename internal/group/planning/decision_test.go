package planning

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

func TestChange_NoteDecision(t *testing.T) {
	t.Run("adds the reasons to the plan", func(t *testing.T) {
		c := Change{Plan: &record.Plan{}, Why: []string{"freeze 1", "pause"}}
		c.NoteDecision(record.Decision{Term: 7})
		require.Len(t, c.Plan.Decisions, 1)
		assert.Equal(t, record.Decision{Term: 7, What: "freeze 1; pause"}, c.Plan.Decisions[0])
	})
	t.Run("adds nothing without reasons", func(t *testing.T) {
		c := Change{Plan: &record.Plan{}, Upkeep: []string{"clear trigger 1"}}
		c.NoteDecision(record.Decision{Term: 7})
		assert.Empty(t, c.Plan.Decisions)
	})
}

func TestChange_EncodeShare(t *testing.T) {
	keys, err := record.NewKeys("test", "default")
	require.NoError(t, err)
	first, err := record.NewEpoch(1, coordtest.At(0), []byte(coordtest.Def("job", 0, 4, "")))
	require.NoError(t, err)
	plan := func() *record.Plan {
		return &record.Plan{Format: record.Format, Job: "job", Epochs: []record.Epoch{first}, Owners: map[string]shardset.Set{}}
	}
	t.Run("creates a plan, or replaces a revision of it", func(t *testing.T) {
		for _, rev := range []registry.Rev{{}, {Seq: 7}} {
			c := Change{Segment: "job", Plan: plan(), rev: rev}
			share, err := c.EncodeShare(keys)
			require.NoError(t, err)
			value, err := record.Encode(c.Plan)
			require.NoError(t, err)
			want := registry.Create(keys.Plan("job"), value)
			if !rev.IsZero() {
				want = registry.Set(keys.Plan("job"), rev, value)
			}
			assert.Equal(t, []registry.Op{want}, share.Ops)
			assert.Empty(t, share.Conds)
		}
	})
	t.Run("has the conditions and operations of the change, and the end of each session whose claims it absorbs", func(t *testing.T) {
		absent, gone := registry.Absent(keys.Claims("a.a", "job")), registry.Delete(keys.Claims("b.b", "job"), registry.Rev{Seq: 3})
		c := Change{Segment: "job", Plan: plan(), conds: []registry.Cond{absent}, ops: []registry.Op{gone}, Expired: []registry.SessionID{"a", "b"}}
		share, err := c.EncodeShare(keys)
		require.NoError(t, err)
		assert.Equal(t, []registry.Cond{absent, registry.Dead("a"), registry.Dead("b")}, share.Conds)
		require.Len(t, share.Ops, 2)
		assert.Equal(t, gone, share.Ops[0])
	})

	// sized returns a plan whose encoding has as many bytes.
	rng := rand.New(rand.NewPCG(1, 1))
	letters := make([]byte, 2*registry.PortableLimits.ValueBytes) // which cannot be deflated much
	for i := range letters {
		letters[i] = byte(' ' + 1 + rng.IntN(94))
	}
	sized := func(t *testing.T, size int, p *record.Plan) *record.Plan {
		n := size
		for i := range 100 { // other letters each time: not each length has each size
			p.Problem = string(letters[i : i+n])
			value, err := record.Encode(p)
			if errors.Is(err, registry.ErrTooLarge) {
				n -= 1 + i%7
				continue
			}
			require.NoError(t, err)
			if len(value) == size {
				return p
			}
			n += size - len(value)
		}
		require.Fail(t, "no plan of that size")
		return nil
	}
	most := registry.PortableLimits.ValueBytes
	t.Run("keeps the history of a plan that just fits", func(t *testing.T) {
		p := plan()
		p.Note(record.Decision{Term: 1, What: "create"})
		c := Change{Segment: "job", Plan: sized(t, most, p)}
		share, err := c.EncodeShare(keys)
		require.NoError(t, err)
		assert.Len(t, share.Ops[0].Value, most)
		assert.Len(t, c.Plan.Decisions, 1)
	})
	t.Run("drops the history of a plan that is too large with it", func(t *testing.T) {
		p := sized(t, most, plan())
		p.Note(record.Decision{Term: 1, What: "create"})
		p.Failures = record.Failures{{Error: "failed"}}
		c := Change{Segment: "job", Plan: p}
		share, err := c.EncodeShare(keys)
		require.NoError(t, err)
		assert.Len(t, share.Ops[0].Value, most)
		assert.Empty(t, c.Plan.Decisions)
		assert.Empty(t, c.Plan.Failures)
	})
	t.Run("fails for a plan that is too large without its history", func(t *testing.T) {
		p := sized(t, most, plan())
		p.Problem += string(letters[:20])
		c := Change{Segment: "job", Plan: p}
		_, err := c.EncodeShare(keys)
		require.ErrorIs(t, err, registry.ErrTooLarge)
	})
	t.Run("fails for a plan that no instance could read", func(t *testing.T) {
		for rule, change := range map[string]func(*record.Plan){
			`owners: "zzz" is not the name`: func(p *record.Plan) { p.Owners["zzz"] = shardset.Of(1) },
			"a shard has two owners":        func(p *record.Plan) { p.Owners["a.1"], p.Owners["b.2"] = shardset.Of(1), shardset.Of(1) },
			"is above 4611686018427387904":  func(p *record.Plan) { p.Epochs[0].Number = record.MaxNumber + 1 },
			"epoch 9, which the plan": func(p *record.Plan) {
				p.Reruns = record.Runs{{Shards: shardset.Of(1), Ref: record.Ref{Epoch: 9, Attempt: 1}}}
			},
		} {
			p := plan().Clone()
			change(p)
			c := Change{Segment: "job", Plan: p}
			_, err := c.EncodeShare(keys)
			require.ErrorContains(t, err, rule)
		}
	})
	t.Run("fails for a plan that cannot be encoded", func(t *testing.T) {
		p := plan()
		p.Epochs = []record.Epoch{{Number: 1, Def: []byte("{")}}
		c := Change{Segment: "job", Plan: p}
		_, err := c.EncodeShare(keys)
		require.Error(t, err)
	})
}

func TestEndedPause_Record(t *testing.T) {
	job, group := &record.Control{Job: "job"}, &record.GroupControl{}
	t.Run("is that of the job, or of the group", func(t *testing.T) {
		assert.Same(t, job, (&EndedPause{Control: job}).Record())
		assert.Same(t, group, (&EndedPause{Group: group}).Record())
	})
}
