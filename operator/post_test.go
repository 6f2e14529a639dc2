package operator_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/schedule"
)

// posting is a registry that creates records by transactions, as registry.Poster describes it.
type posting struct {
	registry.Registry
	posted int
}

// userTx is a transaction of a user.
type userTx struct {
	ops []func(name string) registry.Op
}

func (p *posting) Post(_ context.Context, tx any, dir registry.Key, value []byte) error {
	u := tx.(*userTx)
	u.ops = append(u.ops, func(name string) registry.Op { return registry.Create(dir.Join(name), value) })
	return nil
}

func (p *posting) commit(t *testing.T, tx *userTx) {
	for _, op := range tx.ops {
		p.posted++
		_, err := p.Txn(t.Context(), registry.Txn{Then: []registry.Op{op(fmt.Sprintf("%019d", p.posted))}})
		require.NoError(t, err)
	}
}

func TestPosted(t *testing.T) {
	type store struct {
		defs
		reg *posting
	}
	run := func(name string, f func(t *testing.T, s store)) {
		runDefs(t, name, func(t *testing.T, d defs) {
			reg := &posting{Registry: d.Server.Client("user")}
			ns, group := d.Keys.Names()
			o, err := operator.New(reg, ns, group)
			require.NoError(t, err)
			d.op = o.WithCompiler(executor.Compile)
			f(t, store{d, reg})
		})
	}
	// apply does the posted acts by several leaders at once, of which one at most is a leader in its own time.
	apply := func(s store) {
		ctx, cancel := context.WithCancel(s.t.Context())
		for range 3 {
			go func() { s.t.Log(s.op.ApplyPosted(ctx, slog.New(slog.NewTextHandler(s.t.Output(), nil)))) }()
		}
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		cancel()
		synctest.Wait()
	}
	lastTrigger := func(s store, job string) uint64 {
		e, ok := s.GetRecord(s.Keys.Control(record.Segment(job)))
		require.True(s.t, ok)
		c, err := record.DecodeControl(e.Value)
		require.NoError(s.t, err)
		return c.LastTrigger
	}
	left := func(s store) int {
		l, err := s.reg.List(s.t.Context(), s.Keys.Posted(), registry.ReadOptions{Fresh: true})
		require.NoError(s.t, err)
		return len(l.Entries)
	}
	post := func(s store, f func(tx *userTx) error) {
		tx := &userTx{}
		require.NoError(s.t, f(tx))
		s.reg.commit(s.t, tx)
	}
	groupActs := func(s store) (what []string) {
		acts, err := s.op.Acts(s.t.Context(), "")
		require.NoError(s.t, err)
		for _, a := range acts {
			what = append(what, a.What)
		}
		return what
	}

	run("an act has no effect before its transaction is committed, and one after", func(t *testing.T, s store) {
		tx := &userTx{}
		require.NoError(t, s.op.As("kim", "an order").DefineIn(t.Context(), tx, note("a")))
		require.NoError(t, s.op.As("kim", "an order").TriggerIn(t.Context(), tx, "a", "x", []int{0}))
		require.NoError(t, s.op.TriggerIn(t.Context(), tx, "a", "y", nil))
		apply(s)
		require.Nil(t, s.read("a"))
		s.reg.commit(t, tx)
		apply(s)
		require.Zero(t, left(s))
		require.Equal(t, 1, s.read("a").Revision)
		acts, err := s.op.Acts(t.Context(), "a")
		require.NoError(t, err)
		var what []string
		for _, a := range acts {
			what = append(what, a.By+": "+a.What)
		}
		assert.Equal(t, []string{"kim: define", "kim: trigger 1 of shard 0", ": trigger 2"}, what, "each once, in their order, with their authors")
		apply(s)
		require.Equal(t, uint64(2), lastTrigger(s, "a"))
	})
	run("definitions take effect in the order of the commits", func(t *testing.T, s store) {
		for i := 1; i <= 5; i++ {
			def := note("a")
			def.Param = fmt.Sprint(i)
			post(s, func(tx *userTx) error { return s.op.DefineIn(t.Context(), tx, def) })
		}
		apply(s)
		d, err := s.op.Definition(t.Context(), "a")
		require.NoError(t, err)
		assert.Equal(t, "5", d.Definition.Param)
		assert.Equal(t, 5, d.Revision)
		post(s, func(tx *userTx) error { return s.op.DefineIn(t.Context(), tx, d.Definition) })
		apply(s)
		assert.Equal(t, 5, s.read("a").Revision, "one that changes nothing")
		assert.Zero(t, left(s))
	})
	run("a definition has its options, fields and defaults", func(t *testing.T, s store) {
		s.PutRecord(s.Keys.Kind("note"), `{"name":"note","revision":2,"defaults":{"timeout":"1m0s"}}`)
		def := operator.Definition{
			Name: "a", Kind: "note", KindRevision: 2, Schedule: schedule.Cron("0 * * * *"), Shards: 3, Param: "p", ShardParams: map[int]string{1: "one"},
			Description: "d", Policies: map[string]any{"max_attempts": 4, "retry": map[string]any{"max": 2, "initial": 3 * time.Second}},
			StartPaused: true, DeleteAfter: time.Hour,
		}
		post(s, func(tx *userTx) error { return s.op.DefineIn(t.Context(), tx, def, operator.IfAbsent()) })
		apply(s)
		got := s.read("a").Definition
		def.Name = "b"
		s.define(def)
		other := s.read("b").Definition
		assert.JSONEq(t, strings.NewReplacer(`"name":"b"`, `"name":"a"`, s.read("b").Created, s.read("a").Created).Replace(string(other)), string(got))
		post(s, func(tx *userTx) error { return s.op.DefineIn(t.Context(), tx, note("a"), operator.IfAbsent()) })
		post(s, func(tx *userTx) error { return s.op.DefineIn(t.Context(), tx, note("a"), operator.IfRevision(7)) })
		apply(s)
		assert.Equal(t, 1, s.read("a").Revision)
		require.Len(t, groupActs(s), 2)
		assert.Contains(t, groupActs(s)[0], `refused, posted by a transaction: define "a": the job is defined already`)
		assert.Contains(t, groupActs(s)[1], "and 7 was expected")
		assert.Zero(t, left(s))
	})
	run("what is wrong is refused by the call", func(t *testing.T, s store) {
		tx := &userTx{}
		assert.ErrorIs(t, s.op.TriggerIn(t.Context(), tx, "a", "\xff", nil), operator.ErrInvalidArgument)
		assert.ErrorIs(t, s.op.TriggerIn(t.Context(), tx, "a", "", []int{}), operator.ErrInvalidArgument)
		assert.ErrorIs(t, s.op.TriggerIn(t.Context(), tx, "a", "", []int{-1}), operator.ErrInvalidArgument)
		assert.ErrorIs(t, s.op.DefineIn(t.Context(), tx, note("a"), operator.DryRun()), operator.ErrInvalidArgument)
		assert.ErrorIs(t, s.op.DefineIn(t.Context(), tx, operator.Definition{Name: "a", Kind: "nothing"}), operator.ErrUnknownKind)
		bad := note("a")
		bad.Shards, bad.Policies = -1, map[string]any{"later": 1}
		assert.ErrorContains(t, s.op.DefineIn(t.Context(), tx, bad), "shards")
		assert.Empty(t, tx.ops)
		plain, _ := s.NewOperator()
		assert.ErrorIs(t, plain.TriggerIn(t.Context(), tx, "a", "", nil), registry.ErrNoPoster)
	})
	run("what proves impossible is refused, and holds nothing up", func(t *testing.T, s store) {
		s.define(note("b"))
		post(s, func(tx *userTx) error { return s.op.As("kim", "").TriggerIn(t.Context(), tx, "a", "", nil) })
		post(s, func(tx *userTx) error { return s.op.TriggerIn(t.Context(), tx, "b", "", []int{7}) })
		s.PutRecord(s.Keys.Posted().Join("0000000000000000003"), "{")
		s.reg.posted = 5
		post(s, func(tx *userTx) error { return s.op.TriggerIn(t.Context(), tx, "b", "", nil) })
		apply(s)
		assert.Zero(t, left(s))
		assert.Equal(t, uint64(1), lastTrigger(s, "b"))
		require.Len(t, groupActs(s), 3)
	})
	run("triggers wait while the job has no room for more, and hold back that job alone", func(t *testing.T, s store) {
		s.define(note("a"))
		s.define(note("b"))
		for range 70 {
			post(s, func(tx *userTx) error { return s.op.TriggerIn(t.Context(), tx, "a", "", nil) })
		}
		post(s, func(tx *userTx) error { return s.op.TriggerIn(t.Context(), tx, "b", "", nil) })
		apply(s)
		assert.Equal(t, 6, left(s))
		assert.Equal(t, uint64(1), lastTrigger(s, "b"))
	})
}
